#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/prepare/corpora.hpp"
#include "src/prepare/files.hpp"

namespace trireme::prepare {

/// Tokens of a part that become tokens of a corpus.
struct TakenTokens {
  std::int64_t first = 0;  ///< first one in the part; all after it are taken
  std::int64_t begin = 0;  ///< its number in the corpus
};

/// Copying of parts into the token blocks of a corpus, which ranks divide among themselves, also while later parts are
/// made. A block is copied with the part in which it begins. Rank 0 writes the places of the parts to a file in which
/// all ranks find them.
class TokenCopy {
 public:
  /// `folder` is that of the parts `paths`. The arguments must outlive this object.
  TokenCopy(const Files& files, const std::vector<std::string>& paths, const std::string& folder);

  /// File that the tokens are copied to, at the position that they have in the corpus.
  const std::string& target() const { return target_; }
  /// On one rank, before all else: makes the two files.
  void create_files() const;
  /// On that rank: writes the place of part `number`, the next one. One after the last part has the end of the corpus.
  void place(std::size_t number, TakenTokens taken) const;

  /// Copies the blocks that begin in a part, and verifies it. Returns their digests as a text for `digests`; none if
  /// the places of the parts that hold them are not known yet. `blocks.tokens` may be too great by then. Throws
  /// IoError, DataError.
  std::optional<std::string> copy_part(const TokenBlocks& blocks, std::size_t number) const;
  /// Syncs what was copied to disk.
  void sync() const;

 private:
  const Files& files_;
  const std::vector<std::string>& paths_;
  std::string places_;
  std::string target_;
};

/// Returns the digests of all blocks, one after another, from the results of `copy_part` for all parts.
std::string digests_of(const TokenBlocks& blocks, const std::vector<std::string>& results);

}  // namespace trireme::prepare

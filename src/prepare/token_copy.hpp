#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/prepare/corpora.hpp"
#include "src/prepare/files.hpp"

namespace trireme::prepare {

/// Tokens of a part that become tokens of a corpus.
struct TakenTokens {
  std::int64_t first = 0;  ///< first one in the part; all after it are taken
  std::int64_t begin = 0;  ///< its number in the corpus
};

/// Copying of parts into the token blocks of a corpus, which ranks divide among themselves.
struct TokenCopy {
  TokenBlocks blocks;
  std::vector<TakenTokens> taken;  ///< by part

  /// The same as a text, to send to other ranks.
  std::string text() const;
  static TokenCopy from_text(const std::string& text);

  /// Writes the blocks that begin in some of the parts `paths` to the corpus `target`, by all threads of `pool`, and
  /// syncs them to disk. Returns their digests as a text. Verifies these parts. Throws IoError, DataError.
  std::string copy(const Files& files, const std::vector<std::string>& paths, const std::vector<std::size_t>& numbers,
                   const std::string& target, ThreadPool& pool) const;
  /// Returns the digests of all blocks, one after another, from the results of `copy` on all ranks.
  std::string digests(const std::vector<std::string>& results) const;
};

}  // namespace trireme::prepare

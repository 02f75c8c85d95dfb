#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/hash.hpp"
#include "src/comm/communicator.hpp"
#include "src/prepare/shared_files.hpp"

namespace trireme::prepare {

/// A span (`data::SpanOptions`) that occurs earlier: in another document, or in the same one.
struct RepeatedSpan {
  std::int64_t document;  ///< number in the entire input, as the next one
  std::int64_t first_part;
  std::int64_t kept;  ///< document of its first occurrence
};

/// Search for the spans of all ranks' documents that occur earlier. Hashes and results lie on the disk, in a folder
/// shared by all ranks: 16 bytes for each span, 32 for each in a kept document and 24 for each repeated one. A rank
/// holds the hashes of at most about `hashes_at_once` different spans, whatever the frequency of each.
class RepeatedText {
 public:
  static constexpr std::int64_t hashes_at_once = std::int64_t{1} << 19;

  /// Collective.
  RepeatedText(const Files& files, Communicator& comm, std::string folder);
  ~RepeatedText();
  RepeatedText& operator=(RepeatedText&&) = delete;

  /// Adds the hashes of the spans of this rank's next document (`data::span_hashes`).
  void append(const std::vector<Hash128>& spans);
  /// Finds repeated spans of the documents that `is_kept` names by their numbers in the entire input; others count as
  /// absent. The result does not depend on the number of ranks. Collective.
  void find(const std::function<bool(std::int64_t)>& is_kept, std::int64_t at_once = hashes_at_once);
  /// Returns the repeated spans of a document of this rank, in order. Documents are asked for in ascending order.
  std::vector<RepeatedSpan> of(std::int64_t document);

 private:
  struct Lists;
  void find_in(std::size_t list);
  std::size_t list_of(std::int64_t document) const;

  const Files& files_;
  Communicator& comm_;
  std::string folder_;
  DocumentSpool hashes_;
  std::unique_ptr<Lists> lists_;
};

}  // namespace trireme::prepare

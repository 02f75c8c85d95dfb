#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::prepare {

/// Distributes complete documents over ranks: in order, with about the same number of file bytes each. A text file is a
/// document or, in the format `lines`, each of its non-blank lines is. Files of lines and tables are split between
/// ranks, each of which reads only its own ranges; single-document texts and indivisible files go to one rank.
class DocumentReader {
 public:
  /// Throws as TextReader does.
  DocumentReader(Files files, const std::vector<std::string>& paths, TextReaderOptions options, int rank, int ranks);

  /// Advances to the next document of this rank, as one complete piece (`text_of` gives its text). Returns false at the
  /// end.
  bool next(TextPiece& document);

  /// Bytes on the disk of this rank's ranges of the files.
  std::int64_t total_bytes() const { return total_bytes_; }
  std::int64_t bytes_read() const { return earlier_bytes_ + (reader_ ? reader_->bytes_read() : 0); }

 private:
  bool open_next();
  bool next_whole(TextPiece& document);
  bool next_line(TextPiece& document);

  Files files_;
  std::vector<FileRange> ranges_;
  TextReaderOptions options_;
  std::size_t range_number_ = 0;  // number of the next range
  std::optional<TextReader> reader_;
  bool reads_lines_ = false;  // in the format `lines`, if the range is not a table's
  std::int64_t total_bytes_ = 0;
  std::int64_t earlier_bytes_ = 0;  // bytes of ranges before this one
  TextPiece rest_;                  // format `lines`: text of a range read but not yet returned
  std::size_t rest_begin_ = 0;
};

/// Reads all documents of `reader` into the `piece` of a Work each, in batches: `examine(Work&)` runs on the threads of
/// `pool`, then `add(const Work&)` in order. `progress` is called with the bytes read and the total.
template <class Work, class Examine, class Add>
void read_in_batches(DocumentReader& reader, ThreadPool& pool, const ByteProgress& progress, Examine&& examine,
                     Add&& add) {
  const std::int64_t batch_bytes = (std::int64_t{2} << 20) * pool.threads();
  for (;;) {
    std::vector<Work> batch;
    for (TextPiece& piece : read_batch(reader, batch_bytes)) batch.emplace_back().piece = std::move(piece);
    progress(reader.bytes_read(), reader.total_bytes());
    if (batch.empty()) return;
    pool.parallel_for(static_cast<std::int64_t>(batch.size()),
                      [&](std::int64_t i) { examine(batch[static_cast<std::size_t>(i)]); });
    for (const Work& examined : batch) add(examined);
  }
}

}  // namespace trireme::prepare

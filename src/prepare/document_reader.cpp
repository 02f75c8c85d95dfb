#include "src/prepare/document_reader.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/data/text/words.hpp"

namespace trireme::prepare {

DocumentReader::DocumentReader(Files files, const std::vector<std::string>& paths, TextReaderOptions options, int rank,
                               int ranks)
    : files_(std::move(files)), options_(std::move(options)) {
  const std::int64_t all_bytes =
      TextReader(files_, paths, options_).total_bytes();  // checks all files before any is read
  // First byte of a rank in the concatenated files.
  const auto first_byte = [&](int r) { return all_bytes / ranks * r + all_bytes % ranks * r / ranks; };
  std::int64_t before = 0;  // bytes of the files before this one
  for (const std::string& path : paths) {
    const InputFileInfo file = files_.inputs->inspect(path);
    const std::int64_t size_bytes = file.size_bytes;
    const std::int64_t begin = first_byte(rank) - before;
    const std::int64_t end = first_byte(rank + 1) - before;
    before += size_bytes;
    const bool has_lines = options_.format == TextFormat::lines || is_read_as_json(file, path, options_.format);
    if (has_lines && file.is_divisible) {
      const FileRange range{path, line_begin(files_, path, file, begin), line_begin(files_, path, file, end)};
      if (range.begin < range.end) ranges_.push_back(range);
    } else if (size_bytes > 0 && begin <= 0 && end > 0) {
      ranges_.push_back({path, 0, size_bytes});
    }
  }
  for (const FileRange& range : ranges_) total_bytes_ += range.end - range.begin;
}

bool DocumentReader::open_next() {
  earlier_bytes_ = bytes_read();
  reader_.reset();
  if (range_number_ == ranges_.size()) return false;
  const FileRange& range = ranges_[range_number_++];
  reads_lines_ = options_.format == TextFormat::lines && !files_.inputs->inspect(range.path).holds_rows;
  reader_.emplace(files_, std::vector<FileRange>{range}, options_);
  rest_ = {};
  rest_begin_ = 0;
  return true;
}

bool DocumentReader::next(TextPiece& document) {
  while (reader_ || open_next()) {
    if (reads_lines_ ? next_line(document) : next_whole(document)) return true;
    if (!open_next()) break;
  }
  return false;
}

/// Reads the next line of JSON, or an entire text.
bool DocumentReader::next_whole(TextPiece& document) {
  if (!reader_->next(document)) return false;
  const auto check_size = [&] {
    TRIREME_CHECK(document.is_json || static_cast<std::int64_t>(document.bytes.size()) <= options_.max_bytes, DataError,
                  "{}: the document has more than {} bytes; <max_line> allows more, <input_format> lines makes each "
                  "line a document",
                  document.path, options_.max_bytes);
  };
  check_size();
  for (TextPiece piece; !document.ends_document && reader_->next(piece); document.ends_document = piece.ends_document) {
    document.bytes += piece.bytes;
    check_size();
  }
  return true;
}

/// Reads the next non-blank line of a text.
bool DocumentReader::next_line(TextPiece& document) {
  const auto check_size = [&](std::size_t size_bytes) {
    TRIREME_CHECK(static_cast<std::int64_t>(size_bytes) <= options_.max_bytes, DataError,
                  "{}: the line at byte {} has more than {} bytes; <max_line> allows more", rest_.path,
                  rest_.position + static_cast<std::int64_t>(rest_begin_), options_.max_bytes);
  };
  for (bool at_end = false;;) {
    std::size_t end = rest_.bytes.find('\n', rest_begin_);
    while (end == std::string::npos && !at_end) {
      TextPiece piece;
      at_end = !reader_->next(piece);
      if (at_end) break;
      if (rest_.path.empty()) rest_.position = piece.position;
      rest_.path = piece.path;
      rest_.bytes.erase(0, rest_begin_);
      rest_.position += static_cast<std::int64_t>(std::exchange(rest_begin_, 0));
      const std::size_t searched = rest_.bytes.size();
      check_size(searched);
      rest_.bytes += piece.bytes;
      end = rest_.bytes.find('\n', searched);
    }
    if (rest_begin_ == rest_.bytes.size()) return false;
    const std::size_t line_end = std::min(end, rest_.bytes.size());
    check_size(line_end - rest_begin_);
    document = {.bytes = rest_.bytes.substr(rest_begin_, line_end - rest_begin_),
                .is_json = false,
                .ends_document = true,
                .path = rest_.path,
                .position = rest_.position + static_cast<std::int64_t>(rest_begin_)};
    rest_begin_ = std::min(line_end + 1, rest_.bytes.size());
    if (document.bytes.ends_with('\r')) document.bytes.pop_back();
    if (!std::ranges::all_of(document.bytes, data::is_ascii_space)) return true;
  }
}

}  // namespace trireme::prepare

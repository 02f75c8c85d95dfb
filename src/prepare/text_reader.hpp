#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "io/compression/input_file.hpp"
#include "src/data/text/text_cut.hpp"

namespace trireme::io {

enum class TextFormat {
  by_name,    ///< .json, .jsonl and .ndjson, with .gz or .zst behind it or not, are JSON lines, the rest is text
  text,       ///< a file is a document
  json_lines  ///< a line is a JSON object with a document under a key; blank lines are skipped
};

struct TextReaderOptions {
  TextFormat format = TextFormat::by_name;
  std::string json_key = "text";
  bool check_utf8 = true;  ///< refuse bytes that are not UTF-8, and byte-order marks
  /// Returns whether a text may be cut before a byte, as `data::Tokenizer::can_cut`.
  std::function<bool(std::string_view, std::size_t)> can_cut = data::is_word_cut;
  std::int64_t piece_bytes = std::int64_t{1} << 20;  ///< texts are cut into pieces of about this size
  /// Length after which a text is cut even where `can_cut` allows no cut. It bounds the bytes a tokenizer holds at
  /// once.
  std::int64_t max_run_bytes = std::int64_t{1} << 20;
  std::int64_t max_bytes = std::int64_t{256} << 20;  ///< limit of a line of JSON, which is held whole
};

/// Returns whether the file holds JSON lines, by the format or by its name.
bool holds_json(const std::string& path, TextFormat format);

/// Where `text` is to be cut.
struct TextCut {
  std::size_t size_bytes = 0;  ///< bytes of the first part; all of a text of up to `piece_bytes`
  bool forced = false;         ///< not at a place that `can_cut` allows, but between two characters
};

/// The first cut of `text`, which is all there is or more than `max_run_bytes` and `piece_bytes` of it.
TextCut cut_text(std::string_view text, const TextReaderOptions& options);

/// Bytes [begin, end) of a file. JSON must be cut behind an end of a line; a compressed file is not cut.
struct TextRange {
  std::string path;
  std::int64_t begin = 0;
  std::int64_t end = INT64_MAX;  ///< or the end of the file
};

/// How many lines of a file end before byte `end`: read when it is first asked for, which only messages do.
class LinesBefore {
 public:
  LinesBefore(std::string path, std::int64_t end) : path_(std::move(path)), end_(end) {}
  std::int64_t count();

 private:
  std::string path_;
  std::int64_t end_;
  std::once_flag once_;
  std::int64_t count_ = 0;
};

/// A part of the input that can be tokenized by itself.
struct TextPiece {
  std::string bytes;  ///< bytes of a text, or a line of JSON as it stands in the file
  bool is_json = false;
  bool ends_document = false;
  std::string path;
  /// Text: first byte of the piece in the unpacked file. JSON: number of the line in the range, from 1.
  std::int64_t position = 0;
  std::shared_ptr<LinesBefore> lines_before = nullptr;  ///< the range
};

/// Reads files, or ranges of them, one after another in pieces, so that memory does not grow with them. Texts are cut
/// where `cut_text` says, so that, but for forced cuts, the tokens are those of the whole. Compressed files are
/// unpacked on the way.
class TextReader {
 public:
  /// Throws at once, before anything is read, where a file is missing, not regular or, as its first bytes say, UTF-16
  /// or no text (`check_is_text`): IoError or DataError.
  TextReader(std::vector<TextRange> ranges, TextReaderOptions options);
  TextReader(const std::vector<std::string>& paths, TextReaderOptions options);

  /// Moves on to the next piece. False at the end of the last range. A text's piece ends the document where the range
  /// reaches the end of the file.
  bool next(TextPiece& piece);

  /// Bytes of the files on the disk, compressed or not.
  std::int64_t total_bytes() const { return total_bytes_; }
  std::int64_t bytes_read() const { return earlier_bytes_ + (file_ ? file_->file_bytes_read() : 0); }
  /// Forced cuts of texts so far.
  std::int64_t cut_runs() const { return cut_runs_; }

 private:
  const TextRange& range() const { return ranges_[range_number_ - 1]; }
  void open_next();
  bool fill(std::size_t wanted);
  bool next_line(TextPiece& piece);
  void next_text(TextPiece& piece);
  void take(std::size_t size_bytes, TextPiece& piece);
  void check_line(std::size_t size_bytes, std::int64_t line);
  std::string_view pending() const { return std::string_view(buffer_).substr(begin_); }

  std::vector<TextRange> ranges_;
  std::vector<bool> ends_file_;  // whether each range ends its file
  TextReaderOptions options_;
  std::size_t range_number_ = 0;  // number of the next range
  std::unique_ptr<ByteSource> file_;
  std::shared_ptr<LinesBefore> lines_before_;
  bool is_json_ = false;
  bool at_end_ = true;  // at the end of the range
  std::string buffer_;
  std::size_t begin_ = 0;      // first byte not yet returned
  std::int64_t position_ = 0;  // bytes or lines given out
  std::int64_t total_bytes_ = 0;
  std::int64_t earlier_bytes_ = 0;  // bytes of ranges before this one
  std::int64_t cut_runs_ = 0;
};

/// The document, or part of one, that a piece holds. Throws DataError with the place in the file where it is not UTF-8
/// (unless `check_utf8` is off) or not a JSON object with a string under the key.
std::string text_of(TextPiece piece, const TextReaderOptions& options);

}  // namespace trireme::io

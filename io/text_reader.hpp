#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_handle.hpp"
#include "src/data/text_cut.hpp"

namespace trireme::io {

enum class TextFormat {
  by_name,    ///< .json, .jsonl and .ndjson are JSON lines, everything else is text
  text,       ///< a file is a document
  json_lines  ///< a line is a JSON object with a document under a key; blank lines are skipped
};

struct TextReaderOptions {
  TextFormat format = TextFormat::by_name;
  std::string json_key = "text";
  bool check_utf8 = true;  ///< refuse bytes that are not UTF-8, and byte-order marks
  /// Whether a text may be cut before a byte: what `data::Tokenizer::can_cut` says.
  std::function<bool(std::string_view, std::size_t)> can_cut = data::is_word_cut;
  std::int64_t piece_bytes = std::int64_t{1} << 20;       ///< texts are cut into pieces of about this size
  std::int64_t greatest_bytes = std::int64_t{256} << 20;  ///< of a line, or of a text without a place to cut it
};

/// A part of the input that can be tokenized by itself.
struct TextPiece {
  std::string bytes;  ///< of a text, or a line of JSON as it stands in the file
  bool is_json = false;
  bool ends_document = false;
  std::string path;
  std::int64_t position =
      0;  ///< of a text's piece: its first byte in the file; of JSON: the number of the line, from 1
};

/// Reads files one after another in pieces, so that memory does not grow with them. Texts are cut only where
/// `TextReaderOptions::can_cut` allows it, so that the tokens are those of the whole.
class TextReader {
 public:
  /// Throws at once, before anything is read, where a file is missing, not regular or, as its first bytes say,
  /// compressed or UTF-16: IoError or DataError.
  TextReader(std::vector<std::string> paths, TextReaderOptions options);

  /// Moves on to the next piece. False at the end of the last file.
  bool next(TextPiece& piece);

  std::int64_t total_bytes() const { return total_bytes_; }
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  bool fill(std::size_t wanted);
  bool next_line(TextPiece& piece);
  void next_text(TextPiece& piece);
  void take(std::size_t size_bytes, TextPiece& piece);
  std::string_view pending() const { return std::string_view(buffer_).substr(begin_); }

  std::vector<std::string> paths_;
  TextReaderOptions options_;
  std::size_t file_number_ = 0;  // of the next file
  Descriptor file_;
  bool is_json_ = false;
  bool at_end_ = true;  // of the file
  std::string buffer_;
  std::size_t begin_ = 0;      // of what is not yet given out
  std::int64_t position_ = 0;  // bytes or lines given out
  std::int64_t total_bytes_ = 0;
  std::int64_t bytes_read_ = 0;
};

/// The document, or part of one, that a piece holds. Throws DataError with the place in the file where it is not UTF-8
/// (unless `check_utf8` is off) or not a JSON object with a string under the key.
std::string text_of(TextPiece piece, const TextReaderOptions& options);

}  // namespace trireme::io

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.hpp"
#include "src/data/text/words.hpp"
#include "src/prepare/files.hpp"

namespace trireme::prepare {

enum class TextFormat {
  by_name,    ///< .json, .jsonl and .ndjson, or these compressed, are JSON lines, all others text
  text,       ///< a file is a document
  lines,      ///< likewise for a TextReader; for a DocumentReader each of its non-blank lines is one
  json_lines  ///< a line is a JSON object with a document under a key; blank lines are skipped
};

struct TextReaderOptions {
  TextFormat format = TextFormat::by_name;
  std::string json_key = "text";  ///< one, or several and nested ones: "title,meta.text"
  /// Text of a line of JSON instead of that under `json_key`. Throws DataError that begins with `where`.
  std::function<std::string(std::string_view line, const std::string& where)> text_in_line = nullptr;
  bool whole_rows = false;      ///< lines made of a table's rows have all columns, not only those under `json_key`
  bool check_utf8 = true;       ///< refuse bytes that are not UTF-8, and byte-order marks
  bool may_keep_bytes = false;  ///< the command has <invalid_utf8>, a remedy for them
  /// Returns whether a text may be cut before a byte, as `data::Tokenizer::can_cut`.
  std::function<bool(std::string_view, std::size_t)> can_cut = data::is_word_cut;
  std::int64_t piece_bytes = std::int64_t{1} << 20;  ///< texts are cut into pieces of about this size
  /// Length after which a text is cut even if `can_cut` allows no cut. It bounds the bytes held by a tokenizer.
  std::int64_t max_uncut_bytes = std::int64_t{1} << 20;
  std::int64_t max_bytes = std::int64_t{256} << 20;  ///< limit of a line of JSON, which is held in memory
};

/// Leading bytes of a file needed by the functions below; fewer for a shorter file. They are those of the unpacked
/// file.
inline constexpr std::size_t container_head_bytes = 4096;

/// Returns whether `head` has no bytes that occur in no text.
bool is_text(std::string_view head);

/// Files of rows that Apache Arrow reads.
enum class TableKind { none, parquet, arrow_file, arrow_stream };

/// A format that is not text.
struct Container {
  std::string_view magic;
  const char* name;
  const char* remedy;
  std::size_t at = 0;  ///< first byte of the magic
  TableKind table = TableKind::none;
};

/// Returns the container, such as Parquet, a database or an archive, that begins with `head`; null for text and unknown
/// bytes.
const Container* find_container(std::string_view head);

/// Returns the name of that container and a remedy, for messages; empty if none.
std::string container_fault(std::string_view head);

/// Throws DataError, naming format and remedy, if the file at `path` begins as a container does. As text it would
/// become a document of binary bytes.
void check_is_text(const std::string& path, std::string_view head);

/// Returns whether the file holds JSON lines, by the format or by its name.
bool holds_json(const std::string& path, TextFormat format);
/// Returns whether it is read as JSON lines: it holds them, or is a table.
inline bool is_read_as_json(const InputFileInfo& file, const std::string& path, TextFormat format) {
  return file.holds_rows || holds_json(path, format);
}

/// End of the first piece of a text.
struct CutPoint {
  std::size_t position = 0;  ///< bytes of the piece; all of a text of up to `piece_bytes`
  bool forced = false;       ///< between two characters although `can_cut` allows no cut
};

/// Returns the first cut of `text`, which is the entire text or more than `max_uncut_bytes` and `piece_bytes` of it.
CutPoint first_cut(std::string_view text, const TextReaderOptions& options);

/// Returns the first byte from `at` on where a line of a divisible file begins, or a row group of a table; or the end
/// of the file.
std::int64_t line_begin(const Files& files, const std::string& path, const InputFileInfo& file, std::int64_t at);

/// Number of lines of a file that end before a byte. Counted on first use, by messages only.
class LinesBefore {
 public:
  LinesBefore(std::shared_ptr<const InputFiles> inputs, std::string path, std::int64_t end)
      : inputs_(std::move(inputs)), range_{std::move(path), 0, end} {}
  std::int64_t count();

 private:
  std::shared_ptr<const InputFiles> inputs_;
  FileRange range_;
  std::once_flag once_;
  std::int64_t count_ = 0;
};

/// Part of a text processed by one thread; its tokens are the same as in the full text.
struct TextPiece {
  std::string bytes;  ///< text, or a line of JSON as in the file
  bool is_json = false;
  bool ends_document = false;
  std::string path;
  /// Text: first byte of the piece in the unpacked file. JSON: number of the line, or row, in the range, from 1.
  std::int64_t position = 0;
  std::shared_ptr<LinesBefore> lines_before = nullptr;  ///< those before the range; null at the start of the file
};

/// Reads files, or ranges of them, sequentially in pieces, in constant memory. Texts are cut at `first_cut`: except at
/// forced cuts, the tokens are those of the full text. Ranges of JSON begin with a line, those of tables with a row
/// group; indivisible files are read entirely.
class TextReader {
 public:
  /// Throws IoError or DataError before reading if a file is missing, not regular or, by its first bytes, UTF-16 or not
  /// text (`check_is_text`).
  TextReader(Files files, std::vector<FileRange> ranges, TextReaderOptions options);
  TextReader(Files files, const std::vector<std::string>& paths, TextReaderOptions options);

  /// Advances to the next piece; returns false after the last. A text's piece ends the document if the range reaches
  /// the end of the file.
  bool next(TextPiece& piece);

  /// Bytes of the ranges on the disk, compressed or not.
  std::int64_t total_bytes() const { return total_bytes_; }
  std::int64_t bytes_read() const { return earlier_bytes_ + (file_ ? file_->file_bytes_read() : 0); }
  /// Forced cuts of texts so far.
  std::int64_t forced_cuts() const { return forced_cuts_; }

 private:
  const FileRange& range() const { return ranges_[range_number_ - 1]; }
  void open_next();
  bool fill(std::size_t wanted);
  static void check_unchanged(const FileRange& range, const InputFileInfo& file);
  bool next_line(TextPiece& piece);
  void next_text(TextPiece& piece);
  void take(std::size_t size_bytes, TextPiece& piece);
  void check_line(std::size_t size_bytes, std::int64_t line);
  std::string_view pending() const { return std::string_view(buffer_).substr(begin_); }

  Files files_;
  std::vector<FileRange> ranges_;
  std::vector<bool> ends_file_;   // for each range: it ends its file
  std::vector<bool> holds_json_;  // for each range: it is read as JSON lines
  TextReaderOptions options_;
  std::size_t range_number_ = 0;  // number of the next range
  std::unique_ptr<ByteSource> file_;
  std::shared_ptr<LinesBefore> lines_before_;
  bool is_json_ = false;
  bool at_end_ = true;  // at the end of the range
  std::string buffer_;
  std::size_t begin_ = 0;      // first byte not yet returned
  std::int64_t position_ = 0;  // bytes or lines returned
  std::int64_t total_bytes_ = 0;
  std::int64_t earlier_bytes_ = 0;  // bytes of ranges before this one
  std::int64_t forced_cuts_ = 0;
};

/// Reads the next pieces of a `TextReader` or `DocumentReader`, of at least `batch_bytes` in total; none at the end.
template <class Reader>
std::vector<TextPiece> read_batch(Reader& reader, std::int64_t batch_bytes) {
  std::vector<TextPiece> batch;
  TextPiece piece;
  for (std::int64_t bytes = 0; bytes < batch_bytes && reader.next(piece); piece = {}) {
    bytes += std::ssize(piece.bytes);
    batch.push_back(std::move(piece));
  }
  return batch;
}

/// Throws DataError with the position in the file where a piece is not UTF-8, unless `check_utf8` is off.
void check_bytes(const TextPiece& piece, const TextReaderOptions& options);

/// Calls `read(line)` with the number of the line of JSON in `piece`. The lines before its range are counted only if
/// that throws DataError, to throw again with the file's number.
template <class Read>
auto read_line(const TextPiece& piece, const Read& read) {
  try {
    return read(piece.position);
  } catch (const DataError&) {
    if (!piece.lines_before) throw;
    return read(piece.position + piece.lines_before->count());
  }
}

/// Returns the text in a line of JSON: that of `text_in_line`, or under the key.
std::string text_in(std::string_view line, const Files& files, const TextReaderOptions& options,
                    const std::string& path, std::int64_t line_number);

/// Returns the text in a piece; takes the bytes of text, not those of JSON. Throws DataError as `check_bytes`, and
/// likewise if a line is not a JSON object with a string under the key, or as `text_in_line`.
std::string text_of(const Files& files, TextPiece& piece, const TextReaderOptions& options);

}  // namespace trireme::prepare

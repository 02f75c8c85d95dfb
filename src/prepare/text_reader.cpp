#include "src/prepare/text_reader.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"

namespace trireme::prepare {
namespace {

using namespace std::string_view_literals;

constexpr const char* to_lines = "convert it to JSON lines";
constexpr const char* to_arrow =
    "convert it to JSON lines, or build the program with Apache Arrow, which reads it where it is not compressed as a "
    "whole";
constexpr const char* repack = "unpack it, or pack it again with gzip, zstd, bzip2 or xz";
constexpr const char* unpack = "unpack it and name the files in it";
constexpr const char* unpack_first = "unpack it first, once more where it was packed twice";
constexpr const char* to_text = "convert it to text";

constexpr Container containers[] = {
    {"PAR1"sv, "Parquet", to_arrow, 0, TableKind::parquet},
    {"PARE"sv, "encrypted Parquet", to_lines},
    {"ARROW1"sv, "Arrow or Feather", to_arrow, 0, TableKind::arrow_file},
    {"\xFF\xFF\xFF\xFF"sv, "an Arrow stream", to_arrow, 0, TableKind::arrow_stream},
    {"FEA1"sv, "Feather", to_lines},
    {"ORC"sv, "ORC", to_lines},
    {"Obj\x01"sv, "Avro", to_lines},
    {"SQLite format 3\0"sv, "an SQLite database", to_lines},
    {"\x89HDF\r\n\x1A\n"sv, "HDF5", "convert it to text, or, where it is a corpus, give it to trireme corpus merge"},
    {"\x93NUMPY"sv, "a NumPy array", to_text},
    {"%PDF-"sv, "PDF", to_text},
    {"BZh"sv, "bzip2", unpack_first},
    {"\xFD"
     "7zXZ\0"sv,
     "xz", unpack_first},
    {"LZIP"sv, "lzip", repack},
    {"\x04\x22\x4D\x18"sv, "lz4", repack},
    {"\xFF\x06\0\0sNaPpY"sv, "snappy", repack},
    {"\x1F\x9D"sv, "compress", repack},
    {"\x1F\x8B"sv, "gzip", unpack_first},
    {"\x28\xB5\x2F\xFD"sv, "Zstandard", unpack_first},
    {"PK\x03\x04"sv, "zip", unpack},
    {"PK\x05\x06"sv, "zip", unpack},
    {"PK\x07\x08"sv, "zip", unpack},
    {"7z\xBC\xAF\x27\x1C"sv, "7z", unpack},
    {"Rar!\x1A\x07"sv, "RAR", unpack},
    {"ustar"sv, "tar", unpack, 257},
};

/// Bytes that occur in no text, but near the beginning of every container. Without them a text may begin with any
/// signature.
bool is_control(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return value < 0x08 || (value > 0x0D && value < 0x20 && value != 0x1B);
}

constexpr std::size_t read_bytes = std::size_t{1} << 20;

/// Names the UTF-8 fault at the front of `text`.
const char* utf8_fault(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0xC0) return "a continuation byte without its first";
  if (lead == 0xC0 || lead == 0xC1 || (lead == 0xE0 && byte(1) >= 0x80 && byte(1) < 0xA0) ||
      (lead == 0xF0 && byte(1) >= 0x80 && byte(1) < 0x90)) {
    return "an overlong form";
  }
  if (lead == 0xED && byte(1) >= 0xA0 && byte(1) < 0xC0) return "half of a surrogate pair";
  if (lead > 0xF4 || (lead == 0xF4 && byte(1) >= 0x90 && byte(1) < 0xC0)) return "beyond the last character of Unicode";
  return "a character cut short";
}

/// Returns the remedy for bytes that are not UTF-8, after that of changing the file.
const char* keep_remedy(const TextReaderOptions& options) {
  return options.may_keep_bytes ? ", or keep such bytes as they are with <invalid_utf8> keep" : "";
}

void check_no_byte_order_mark(const std::string& path, std::string_view head, const TextReaderOptions& options) {
  TRIREME_CHECK(!head.starts_with("\xFF\xFE") && !head.starts_with("\xFE\xFF"), DataError,
                "{} begins with the byte-order mark of UTF-16; {}", path,
                "convert it to UTF-8 (iconv -f utf-16 -t utf-8)");
  TRIREME_CHECK(!head.starts_with("\xEF\xBB\xBF"), DataError,
                "{} begins with a UTF-8 byte-order mark, which would become part of the text; remove it (sed -i "
                "'1s/^\\xEF\\xBB\\xBF//' FILE){}",
                path, keep_remedy(options));
}

/// Returns whether the name, without a compression suffix, is that of JSON lines.
bool is_json_name(std::string_view path) {
  for (const auto& [extension, compression] : compression_extensions) {
    if (path.ends_with(extension)) path.remove_suffix(extension.size());
  }
  return path.ends_with(".json") || path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

std::vector<FileRange> whole_files(const std::vector<std::string>& paths) {
  std::vector<FileRange> ranges;
  for (const std::string& path : paths) ranges.push_back({path});
  return ranges;
}

}  // namespace

bool is_text(std::string_view head) { return std::ranges::none_of(head, is_control); }

const Container* find_container(std::string_view head) {
  if (is_text(head)) return nullptr;
  const auto found = std::ranges::find_if(containers, [&](const Container& container) {
    return head.size() >= container.at && head.substr(container.at).starts_with(container.magic);
  });
  return found == std::end(containers) ? nullptr : found;
}

std::string container_fault(std::string_view head) {
  const Container* const found = find_container(head);
  return found ? fmt::format("its first bytes are those of {}: {}", found->name, found->remedy) : "";
}

void check_is_text(const std::string& path, std::string_view head) {
  const std::string fault = container_fault(head);
  TRIREME_CHECK(fault.empty(), DataError, "{} is not text, {}", path, fault);
}

bool holds_json(const std::string& path, TextFormat format) {
  return format == TextFormat::json_lines || (format == TextFormat::by_name && is_json_name(path));
}

CutPoint first_cut(std::string_view text, const TextReaderOptions& options) {
  const auto wanted = static_cast<std::size_t>(options.piece_bytes);
  const std::size_t limit = std::max(wanted, static_cast<std::size_t>(options.max_uncut_bytes));
  if (text.size() <= wanted) return {text.size(), false};
  for (std::size_t at = wanted; at > 0; --at) {
    if (options.can_cut(text, at)) return {at, false};
  }
  for (std::size_t at = wanted + 1; at <= std::min(limit, text.size() - 1); ++at) {
    if (options.can_cut(text, at)) return {at, false};
  }
  if (text.size() <= limit) return {text.size(), false};
  return {character_begin(text, limit, 1), true};
}

std::int64_t LinesBefore::count() {
  std::call_once(once_, [&] {
    const auto file = inputs_->open(range_);
    std::string block(read_bytes, '\0');
    for (std::size_t got = block.size(); got == block.size();) {
      got = file->read(block.data(), block.size());
      count_ += std::count(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(got), '\n');
    }
  });
  return count_;
}

std::int64_t line_begin(const Files& files, const std::string& path, const InputFileInfo& file, std::int64_t at) {
  if (at <= 0 || at >= file.size_bytes) return std::clamp<std::int64_t>(at, 0, file.size_bytes);
  if (file.holds_rows) return files.inputs->row_group_begin(path, at);
  const auto source = files.inputs->open({path, at - 1, file.size_bytes});
  std::string bytes(std::size_t{1} << 16, '\0');
  for (std::int64_t offset = at - 1;;) {
    const std::size_t got = source->read(bytes.data(), bytes.size());
    const std::size_t end = std::string_view(bytes).substr(0, got).find('\n');
    if (end != std::string_view::npos) return offset + static_cast<std::int64_t>(end) + 1;
    offset += static_cast<std::int64_t>(got);
    if (got < bytes.size()) return offset;
  }
}

TextReader::TextReader(Files files, const std::vector<std::string>& paths, TextReaderOptions options)
    : TextReader(std::move(files), whole_files(paths), std::move(options)) {}

TextReader::TextReader(Files files, std::vector<FileRange> ranges, TextReaderOptions options)
    : files_(std::move(files)), ranges_(std::move(ranges)), options_(std::move(options)) {
  const std::vector<std::string_view> keys = split(options_.json_key, ',');
  TRIREME_CHECK(std::set(keys.begin(), keys.end()).size() == keys.size(), ConfigError,
                "<json_key> {} names a key twice: leave one out", options_.json_key);
  for (FileRange& range : ranges_) {
    const InputFileInfo file = files_.inputs->inspect(range.path);
    check_unchanged(range, file);
    range.end = std::min(range.end, file.size_bytes);
    ends_file_.push_back(range.end == file.size_bytes);
    holds_json_.push_back(is_read_as_json(file, range.path, options_.format));
    total_bytes_ += range.end - range.begin;
    if (range.begin > 0) continue;
    std::array<char, container_head_bytes> buffer{};
    const std::string_view head(buffer.data(), files_.inputs->open({range.path})->read(buffer.data(), buffer.size()));
    check_is_text(range.path, head);
    if (options_.check_utf8) check_no_byte_order_mark(range.path, head, options_);
  }
}

void TextReader::check_unchanged(const FileRange& range, const InputFileInfo& file) {
  TRIREME_CHECK(range.identity.empty() || file.identity == range.identity, DataError,
                "{} changed while it was read: run the command again once it is complete", range.path);
}

bool TextReader::next(TextPiece& piece) {
  for (;;) {
    if (!at_end_ || begin_ < buffer_.size()) {
      piece.path = range().path;
      piece.is_json = is_json_;
      piece.lines_before = lines_before_;
      if (!is_json_) {
        next_text(piece);
        return true;
      }
      if (next_line(piece)) return true;
    }
    if (range_number_ > 0) check_unchanged(range(), files_.inputs->inspect(range().path));
    if (range_number_ == ranges_.size()) return false;
    open_next();
  }
}

void TextReader::open_next() {
  earlier_bytes_ = bytes_read();
  is_json_ = holds_json_[range_number_];
  const FileRange& next = ranges_[range_number_++];
  file_ = files_.inputs->open(next, options_.whole_rows ? all_columns : options_.json_key);
  lines_before_ =
      is_json_ && next.begin > 0 ? std::make_shared<LinesBefore>(files_.inputs, next.path, next.begin) : nullptr;
  at_end_ = false;
  position_ = is_json_ ? 0 : next.begin;
}

/// Reads until `wanted` bytes are pending; returns false if the file ends first.
bool TextReader::fill(std::size_t wanted) {
  if (begin_ > 0 && !at_end_ && pending().size() < wanted) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  while (!at_end_ && pending().size() < wanted) {
    const std::size_t old_size = buffer_.size();
    buffer_.resize(old_size + read_bytes);
    const std::size_t got = file_->read(buffer_.data() + old_size, read_bytes);
    buffer_.resize(old_size + got);
    at_end_ = got < read_bytes;
  }
  return pending().size() >= wanted;
}

void TextReader::take(std::size_t size_bytes, TextPiece& piece) {
  piece.bytes.assign(buffer_, begin_, size_bytes);
  begin_ += size_bytes;
}

void TextReader::check_line(std::size_t size_bytes, std::int64_t line) {
  TRIREME_CHECK(size_bytes <= static_cast<std::size_t>(options_.max_bytes), DataError,
                "{}:{}: the line has more than {} bytes; <max_line> allows more", range().path,
                line + (lines_before_ ? lines_before_->count() : 0), options_.max_bytes);
}

bool TextReader::next_line(TextPiece& piece) {
  for (;;) {
    std::size_t end = pending().find('\n');
    for (std::size_t searched = pending().size(); end == std::string_view::npos && !at_end_;) {
      check_line(searched, position_ + 1);
      fill(searched + 1);
      end = pending().find('\n', searched);
      searched = pending().size();
    }
    const bool has_end = end != std::string_view::npos;
    if (!has_end && pending().empty()) return false;
    const std::size_t size_bytes = has_end ? end : pending().size();
    check_line(size_bytes, ++position_);
    take(size_bytes, piece);
    begin_ += has_end ? 1 : 0;
    piece.position = position_;
    piece.ends_document = true;
    if (!std::ranges::all_of(piece.bytes, data::is_ascii_space)) return true;
  }
}

void TextReader::next_text(TextPiece& piece) {
  fill(static_cast<std::size_t>(std::max(options_.piece_bytes, options_.max_uncut_bytes)) + 1);
  const CutPoint cut = first_cut(pending(), options_);
  forced_cuts_ += cut.forced ? 1 : 0;
  take(cut.position, piece);
  piece.position = position_;
  position_ += static_cast<std::int64_t>(cut.position);
  piece.ends_document = at_end_ && pending().empty() && ends_file_[range_number_ - 1];
}

void check_bytes(const TextPiece& piece, const TextReaderOptions& options) {
  if (!options.check_utf8) return;
  const std::string_view bytes = piece.bytes;
  const std::size_t at = find_invalid_utf8(bytes);
  if (at == bytes.size()) return;
  const std::string_view rest = bytes.substr(at);
  const auto offset = static_cast<std::int64_t>(at);
  const std::int64_t line = piece.position + (piece.lines_before ? piece.lines_before->count() : 0);
  throw DataError(
      "{}: the byte {:#04x} is not UTF-8: {}; convert it to UTF-8 (a file of text: iconv -f latin1 -t utf-8){}",
      piece.is_json ? fmt::format("{}:{}:{}", piece.path, line, offset + 1)
                    : fmt::format("{}, byte {}", piece.path, piece.position + offset),
      static_cast<unsigned char>(rest[0]), utf8_fault(rest), keep_remedy(options));
}

std::string text_in(std::string_view line, const Files& files, const TextReaderOptions& options,
                    const std::string& path, std::int64_t line_number) {
  if (options.text_in_line) return options.text_in_line(line, fmt::format("{}:{}", path, line_number));
  return files.json->text(line, options.json_key, path, line_number);
}

std::string text_of(const Files& files, TextPiece& piece, const TextReaderOptions& options) {
  check_bytes(piece, options);
  if (!piece.is_json) return std::move(piece.bytes);
  return read_line(piece, [&](std::int64_t line) { return text_in(piece.bytes, files, options, piece.path, line); });
}

}  // namespace trireme::prepare

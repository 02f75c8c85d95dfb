#include "io/text_reader.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "io/json_text.hpp"
#include "io/regular_file.hpp"
#include "src/base/check.hpp"
#include "src/data/utf8.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t read_bytes = std::size_t{1} << 20;

/// What is wrong with the UTF-8 that does not decode at the front of `text`.
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

constexpr const char* utf8_remedy =
    "convert the file to UTF-8 (iconv -f latin1 -t utf-8), or keep such bytes as they are with --invalid-utf8 keep";

void check_first_bytes(const std::string& path, std::string_view head) {
  TRIREME_CHECK(!head.starts_with("\xFF\xFE") && !head.starts_with("\xFE\xFF"), DataError,
                "{} begins with the byte-order mark of UTF-16; {}", path,
                "convert it to UTF-8 (iconv -f utf-16 -t utf-8)");
  TRIREME_CHECK(!head.starts_with("\x1F\x8B"), DataError, "{} is compressed by gzip; unpack it first", path);
  TRIREME_CHECK(!head.starts_with("\xEF\xBB\xBF"), DataError,
                "{} begins with a UTF-8 byte-order mark, which would become part of the text; remove it (sed -i "
                "'1s/^\\xEF\\xBB\\xBF//' FILE), or keep it with --invalid-utf8 keep",
                path);
}

Descriptor open_file(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  TRIREME_CHECK(file, IoError, "cannot open {}: {}", path, std::strerror(errno));
  return file;
}

/// Reads up to `size_bytes`; fewer only at the end of the file.
std::size_t read_some(int file, const std::string& path, char* data, std::size_t size_bytes) {
  std::size_t got = 0;
  while (got < size_bytes) {
    const ssize_t result = read(file, data + got, size_bytes - got);
    if (result < 0 && errno == EINTR) continue;
    TRIREME_CHECK(result >= 0, IoError, "cannot read {}: {}", path, std::strerror(errno));
    if (result == 0) break;
    got += static_cast<std::size_t>(result);
  }
  return got;
}

bool is_json_name(std::string_view path) {
  return path.ends_with(".json") || path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

}  // namespace

TextReader::TextReader(std::vector<std::string> paths, TextReaderOptions options)
    : paths_(std::move(paths)), options_(std::move(options)) {
  for (const std::string& path : paths_) {
    total_bytes_ += regular_file_size(path);
    std::array<char, 3> head{};
    const Descriptor file = open_file(path);
    const std::size_t got = read_some(file.get(), path, head.data(), head.size());
    if (options_.check_utf8) check_first_bytes(path, {head.data(), got});
  }
}

bool TextReader::next(TextPiece& piece) {
  for (;;) {
    if (!at_end_ || begin_ < buffer_.size()) {
      piece.path = paths_[file_number_ - 1];
      piece.is_json = is_json_;
      if (!is_json_) {
        next_text(piece);
        return true;
      }
      if (next_line(piece)) return true;
    }
    if (file_number_ == paths_.size()) return false;
    const std::string& path = paths_[file_number_++];
    file_ = open_file(path);
    is_json_ =
        options_.format == TextFormat::json_lines || (options_.format == TextFormat::by_name && is_json_name(path));
    at_end_ = false;
    position_ = 0;
  }
}

/// Reads on until `wanted` bytes are pending; false where the file ends before.
bool TextReader::fill(std::size_t wanted) {
  if (begin_ > 0 && pending().size() < wanted) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  while (!at_end_ && pending().size() < wanted) {
    const std::size_t old_size = buffer_.size();
    buffer_.resize(old_size + read_bytes);
    const std::size_t got = read_some(file_.get(), paths_[file_number_ - 1], buffer_.data() + old_size, read_bytes);
    buffer_.resize(old_size + got);
    bytes_read_ += static_cast<std::int64_t>(got);
    at_end_ = got < read_bytes;
  }
  return pending().size() >= wanted;
}

void TextReader::take(std::size_t size_bytes, TextPiece& piece) {
  piece.bytes.assign(buffer_, begin_, size_bytes);
  begin_ += size_bytes;
}

bool TextReader::next_line(TextPiece& piece) {
  const auto limit = static_cast<std::size_t>(options_.greatest_bytes);
  for (;;) {
    std::size_t end = pending().find('\n');
    for (std::size_t searched = pending().size(); end == std::string_view::npos && !at_end_;) {
      TRIREME_CHECK(searched <= limit, DataError,
                    "{}:{}: the line has more than {} bytes; --max-line-bytes allows more", piece.path, position_ + 1,
                    limit);
      fill(searched + 1);
      end = pending().find('\n', searched);
      searched = pending().size();
    }
    const bool has_end = end != std::string_view::npos;
    if (!has_end && pending().empty()) return false;
    take(has_end ? end : pending().size(), piece);
    begin_ += has_end ? 1 : 0;
    piece.position = ++position_;
    TRIREME_CHECK(piece.bytes.size() <= limit, DataError,
                  "{}:{}: the line has more than {} bytes; --max-line-bytes allows more", piece.path, position_, limit);
    piece.ends_document = true;
    if (!std::ranges::all_of(piece.bytes, data::is_ascii_space)) return true;
  }
}

void TextReader::next_text(TextPiece& piece) {
  const auto wanted = static_cast<std::size_t>(options_.piece_bytes);
  const auto limit = static_cast<std::size_t>(options_.greatest_bytes);
  const auto can_cut = [&](std::size_t at) { return options_.can_cut(pending(), at); };
  std::size_t size_bytes = wanted;
  if (fill(wanted + 1)) {
    while (size_bytes > 0 && !can_cut(size_bytes)) --size_bytes;
    if (size_bytes == 0) {  // nowhere in what was wanted: then the first place behind it
      for (size_bytes = wanted + 1; fill(size_bytes + 1) && !can_cut(size_bytes); ++size_bytes) {
        TRIREME_CHECK(size_bytes <= limit, DataError,
                      "{}: {} bytes from byte {} on have no white space to cut the text at; --max-line-bytes allows "
                      "more",
                      piece.path, limit, position_);
      }
    }
  }
  size_bytes = std::min(size_bytes, pending().size());
  take(size_bytes, piece);
  piece.position = position_;
  position_ += static_cast<std::int64_t>(size_bytes);
  piece.ends_document = at_end_ && pending().empty();
}

std::string text_of(TextPiece piece, const TextReaderOptions& options) {
  if (options.check_utf8) {
    const std::size_t at = data::find_invalid_utf8(piece.bytes);
    if (at < piece.bytes.size()) {
      const std::string_view rest = std::string_view(piece.bytes).substr(at);
      const auto offset = static_cast<std::int64_t>(at);
      throw DataError("{}: the byte {:#04x} is not UTF-8: {}; {}",
                      piece.is_json ? fmt::format("{}:{}:{}", piece.path, piece.position, offset + 1)
                                    : fmt::format("{}, byte {}", piece.path, piece.position + offset),
                      static_cast<unsigned char>(rest[0]), utf8_fault(rest), utf8_remedy);
    }
  }
  if (!piece.is_json) return std::move(piece.bytes);
  return json_text(piece.bytes, options.json_key, piece.path, piece.position);
}

}  // namespace trireme::io

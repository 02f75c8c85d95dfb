#include "src/app/commands/eval/task_file.hpp"

#include <algorithm>

#include "io/corpus/prepare_files.hpp"
#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::app {
namespace {

prepare::TextReader reader_of(const std::string& path, prepare::TextFormat format) {
  prepare::TextReaderOptions options;
  options.format = format;
  options.check_utf8 = false;  // checked by read_text_file, with its own message
  return {io::prepare_files(), std::vector<std::string>{path}, options};
}

}  // namespace

std::string read_text_file(const std::string& path) {
  prepare::TextReader reader = reader_of(path, prepare::TextFormat::text);
  std::string text;
  for (prepare::TextPiece piece; reader.next(piece);) text += piece.bytes;
  const std::size_t invalid = find_invalid_utf8(text);
  TRIREME_CHECK(invalid == text.size(), DataError,
                "{}:{}: byte {} of the file is not UTF-8: convert the file (iconv -f latin1 -t utf-8)", path,
                1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(invalid), '\n'), invalid);
  return text;
}

void for_each_json_line(const std::string& path, data::BadLines& bad_lines,
                        const std::function<void(const std::string&, std::int64_t, const std::string&)>& add) {
  prepare::TextReader reader = reader_of(path, prepare::TextFormat::json_lines);
  for (prepare::TextPiece piece; reader.next(piece);) {
    const std::string where = fmt::format("{}:{}", path, piece.position);
    bad_lines.attempt([&] { add(piece.bytes, piece.position, where); });
  }
}

}  // namespace trireme::app

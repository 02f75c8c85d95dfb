// JSON lines and plain text, read in pieces. The first byte selects the options, the rest is the file.
#include "src/prepare/text_reader.hpp"

#include "io/corpus/prepare_files.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  if (size == 0) return 0;
  const unsigned choice = data[0];
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  prepare::TextReaderOptions options;
  const bool json = (choice & 1) != 0;
  options.format = json ? prepare::TextFormat::json_lines : prepare::TextFormat::text;
  options.check_utf8 = (choice & 2) != 0;
  options.piece_bytes = (choice & 4) != 0 ? 16 : 1000;
  options.max_uncut_bytes = (choice & 8) != 0 ? 40 : 1000;
  const fuzz::InputFile file("text", bytes);
  std::string whole;
  try {
    const prepare::Files files = io::prepare_files();
    prepare::TextReader reader(files, {file.path()}, options);
    for (prepare::TextPiece piece; reader.next(piece); piece = {}) {
      std::string text;
      try {
        text = prepare::text_of(files, piece, options);
      } catch (const DataError&) {
        if (!json) throw;
        continue;  // a bad line: --on-bad-line skip
      }
      if (json || options.check_utf8) fuzz::require(is_utf8(text), "only UTF-8 comes out");
      whole += text;
    }
  } catch (const Error&) {
    return 0;
  }
  const bool packed = !bytes.empty() && (bytes[0] == '\x1f' || bytes[0] == '\x28');  // as gzip and Zstandard begin
  if (!json && !packed) fuzz::require(whole == bytes, "the pieces of a text make up the text");
  return 0;
}

// Arbitrary bytes through the UTF-8 decoder, and a round trip through a byte-level BPE.
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/fuzz/target.hpp"

namespace {

std::unique_ptr<trireme::data::Tokenizer> small_tokenizer() {
  trireme::data::BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.merges = {{"t", "h"}, {"th", "e"}, {" ", "the"},     {" ", " "},       {"\n", "\n"},
                       {"1", "2"}, {"'", "s"},  {"a", "a"},       {"aa", "aa"},     {"aaaa", "aaaa"},
                       {"a", "b"}, {"ab", "a"}, {"\xC2", "\xA0"}, {"\xE2", "\x80"}, {"\xE2\x80", "\x83"}};
  for (const auto& [left, right] : vocabulary.merges) vocabulary.tokens.push_back(left + right);
  vocabulary.tokens.emplace_back("<|endoftext|>");
  vocabulary.end_of_document = static_cast<std::int32_t>(vocabulary.tokens.size()) - 1;
  return trireme::data::make_gpt2_tokenizer(std::move(vocabulary));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  static const auto tokenizer = small_tokenizer();
  const std::string text(fuzz::text_of(data, size));
  const std::size_t invalid = find_invalid_utf8(text);
  fuzz::require(find_invalid_utf8(std::string_view(text).substr(0, invalid)) == invalid,
                "what stands before the first bad byte is UTF-8");
  const std::string mended = data::repaired(text);
  fuzz::require(invalid < size || is_utf8(mended), "repaired text is UTF-8");
  std::vector<std::int32_t> ids;
  tokenizer->encode(text, ids);
  std::string back;
  tokenizer->decode(ids, back);
  fuzz::require(back == text, "decode gives back what encode took");
  for (std::size_t at = 1; at < size; ++at) {
    if (!tokenizer->can_cut(text, at)) continue;
    std::vector<std::int32_t> joined;
    tokenizer->encode(std::string_view(text).substr(0, at), joined);
    tokenizer->encode(std::string_view(text).substr(at), joined);
    fuzz::require(joined == ids, "two parts have the tokens of the whole");
    break;  // one position suffices, and keeps long inputs fast
  }
  return 0;
}

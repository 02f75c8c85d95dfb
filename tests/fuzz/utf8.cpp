// Arbitrary bytes through the UTF-8 decoder, and a round trip through a byte-level BPE.
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/tokens.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  static const auto tokenizer = data::make_gpt2_tokenizer(test::vocabulary_of({{"t", "h"},
                                                                               {"th", "e"},
                                                                               {" ", "the"},
                                                                               {" ", " "},
                                                                               {"\n", "\n"},
                                                                               {"1", "2"},
                                                                               {"'", "s"},
                                                                               {"a", "a"},
                                                                               {"aa", "aa"},
                                                                               {"aaaa", "aaaa"},
                                                                               {"a", "b"},
                                                                               {"ab", "a"},
                                                                               {"\xC2", "\xA0"},
                                                                               {"\xE2", "\x80"},
                                                                               {"\xE2\x80", "\x83"}}));
  const std::string text(fuzz::text_of(data, size));
  const std::size_t invalid = find_invalid_utf8(text);
  fuzz::require(find_invalid_utf8(std::string_view(text).substr(0, invalid)) == invalid,
                "what stands before the first bad byte is UTF-8");
  const std::string mended = data::repaired(text);
  fuzz::require(invalid < size || is_utf8(mended), "repaired text is UTF-8");
  const auto ids = test::encode(*tokenizer, text);
  fuzz::require(test::decode(*tokenizer, ids) == text, "decode gives back what encode took");
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

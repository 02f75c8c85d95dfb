// A vocabulary, two zero bytes, merges: the files of a byte-level BPE, and the definition that corpora embed.
#include "io/tokenizer_files.hpp"

#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  std::string_view merges = fuzz::text_of(data, size);
  const std::string_view vocabulary = fuzz::take_until(merges, std::string_view("\0\0", 2));
  try {
    for (const char* name : {"gpt2", "bytes", "null"}) {
      try {
        data::tokenizer_from_payload(name, std::string(fuzz::text_of(data, size)));
      } catch (const DataError&) {
      }
    }
    const fuzz::InputFile vocabulary_file("vocab.json", vocabulary);
    const fuzz::InputFile merges_file("merges.txt", merges);
    const auto tokenizer = data::make_gpt2_tokenizer(io::read_bpe_files(vocabulary_file.path(), merges_file.path()));
    const auto again = data::tokenizer_from_payload(tokenizer->name(), tokenizer->payload());
    fuzz::require(again->payload() == tokenizer->payload(), "a tokenizer comes back from its payload");
    const std::string text = "the cat's  12\n" + std::string(merges.substr(0, 100));
    std::vector<std::int32_t> ids, ids_again;
    tokenizer->encode(text, ids);
    again->encode(text, ids_again);
    fuzz::require(ids == ids_again, "a tokenizer that came back gives the same tokens");
    std::string back;
    tokenizer->decode(ids, back);
    fuzz::require(back == text, "decode gives back what encode took");
  } catch (const DataError&) {
  }
  return 0;
}

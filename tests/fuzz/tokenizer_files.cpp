// Tokenizer files, and the definitions that corpora embed. Every input is tried as each of them. Two zero bytes
// separate the vocabulary of a byte-level BPE from its merges.
#include "io/tokenizer/tokenizer_files.hpp"

#include "io/tokenizer/huggingface_file.hpp"
#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/tokens.hpp"

namespace {

using namespace trireme;

/// Uses the tokenizer that `make` returns, unless it throws, and a copy made from its payload.
template <class Make>
void check(const Make& make, std::string_view sample) {
  std::unique_ptr<data::Tokenizer> tokenizer;
  try {
    tokenizer = make();
  } catch (const DataError&) {
    return;
  }
  const auto again = data::tokenizer_from_payload(tokenizer->name(), tokenizer->payload());
  fuzz::require(again->payload() == tokenizer->payload(), "a tokenizer comes back from its payload");
  const std::string text = "the cat's  12\n" + std::string(sample.substr(0, 100));
  std::vector<std::int32_t> ids;
  try {
    ids = test::encode(*tokenizer, text);
  } catch (const DataError&) {
    return;
  }
  fuzz::require(ids == test::encode(*again, text), "a tokenizer that came back gives the same tokens");
  for (const std::int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer->vocabulary_size(), "ids are in range");
  const std::string back = test::decode(*tokenizer, ids);
  const bool exact = tokenizer->name() == "gpt2" || tokenizer->name() == "bytes";
  fuzz::require(!exact || back == text, "decode gives back what encode took");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string whole(fuzz::text_of(data, size));
  std::string_view merges = whole;
  const std::string vocabulary(fuzz::take_until(merges, std::string_view("\0\0", 2)));
  for (const char* name : {"bytes", "gpt2", "huggingface", "null", "wordpiece"}) {
    check([&] { return data::tokenizer_from_payload(name, whole); }, whole);
  }
  check(
      [&] {
        return data::make_gpt2_tokenizer(io::parse_bpe_files(vocabulary, "vocabulary", std::string(merges), "merges"));
      },
      merges);
  check([&] { return data::make_huggingface_tokenizer(io::parse_huggingface_file(whole, "file", {})); }, whole);
  for (const bool lower_case : {false, true}) {
    check(
        [&] {
          data::WordPieceVocabulary words = io::parse_wordpiece_file(whole, "vocab.txt");
          words.lower_case = lower_case;
          return data::make_wordpiece_tokenizer(std::move(words));
        },
        whole);
  }
  return 0;
}

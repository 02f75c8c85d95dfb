// Tokenizer files, and the definitions that corpora embed. Every input is tried as each of them, as changes of a
// tokenizer.json of characters, and as the end of its definition. Two zero bytes separate the vocabulary of a
// byte-level BPE from its merges, and tokenizer_config.json from generation_config.json.
#include "io/tokenizer/tokenizer_files.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/huggingface/tokenizer_json.hpp"
#include "io/tokenizer/huggingface_file.hpp"
#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/temporary_directory.hpp"
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
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (tokenizer->name() == "null" || !tokenizer->can_cut(text, at)) continue;
    std::vector<std::int32_t> joined = test::encode(*tokenizer, std::string_view(text).substr(0, at));
    tokenizer->encode_continuation(std::string_view(text).substr(at), joined);
    fuzz::require(joined == ids, "two parts have the tokens of the whole");
  }
}

/// A tokenizer of characters with few merges, and its tokenizer.json.
struct Characters {
  std::unique_ptr<data::Tokenizer> tokenizer = data::make_huggingface_tokenizer(
      test::characters_of({{"t", "h"}, {"th", "e"}, {"\u2581", "the"}, {"\u2581", "\u2581"}}));
  std::string file = io::tokenizer_files(*tokenizer, tokenizer->vocabulary_size(), 64).at("tokenizer.json");
  std::string definition = tokenizer->payload();

  Characters() { definition.resize(definition.rfind("2 0 1\n")); }  // its last part is that of the form
};

/// Tries the input as changes and as parts of a tokenizer of characters, and as the files beside it.
void check_characters(const std::string& whole, const std::string& first, std::string_view second) {
  static const Characters characters;
  static const test::TemporaryDirectory folder;
  check([&] { return data::tokenizer_from_payload("huggingface", characters.definition + whole); }, whole);
  const nlohmann::json changes = nlohmann::json::parse(whole, nullptr, false);
  if (changes.is_object()) {
    nlohmann::json file = nlohmann::json::parse(characters.file);
    file.merge_patch(changes);
    check([&] { return data::make_huggingface_tokenizer(io::parse_huggingface_file(file.dump(), "file", {})); }, whole);
    std::ofstream(folder / "tokenizer.json") << file;
  } else {
    std::ofstream(folder / "tokenizer.json") << characters.file;
  }
  std::ofstream(folder / "tokenizer_config.json") << first;
  std::ofstream(folder / "generation_config.json") << second;
  check([&] { return io::read_tokenizer_of(folder.path(), ""); }, whole);
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
  check_characters(whole, vocabulary, merges);
  return 0;
}

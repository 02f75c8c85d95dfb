// Ids by Hugging Face's tokenizers 0.23 for the texts of fixtures/hugging_face_bpe.json.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/data/tokenizer/bpe_trainer.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/gpt2_files.hpp"

namespace trireme::data {
namespace {

nlohmann::json fixture() { return nlohmann::json::parse(test::read_file(TRIREME_FIXTURES "/hugging_face_bpe.json")); }

std::vector<std::string> words_of(const WordSplitter& splitter, const std::string& text) {
  std::vector<std::string> words;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const char* const word_end = splitter.word_end(at, end);
    words.emplace_back(at, word_end);
    at = word_end;
  }
  return words;
}

TEST(HuggingFace, EncodesAlikeWithAVocabularyTrainedHere) {
  WordCounts counts;
  const WordSplitter splitter(WordPattern::gpt2);
  for (int n = 0; n < 40; ++n) {
    counts.add_text(fmt::format("The ship's crew of {} rows past {} islands, and the captain's oars rise as one. We'll "
                                "rest, they said; we've rowed on\n",
                                n, 7 * n),
                    splitter);
  }
  const auto tokenizer =
      make_gpt2_tokenizer(train_bpe(counts.sorted(), {.vocabulary_size = 330}, [](std::int64_t, std::int64_t) {}));
  const auto expected = fixture();
  for (std::size_t i = 0; i < expected["texts"].size(); ++i) {
    std::vector<std::int32_t> ids;
    tokenizer->encode(expected["texts"][i].get<std::string>(), ids);
    EXPECT_EQ(ids, expected["ids"][i].get<std::vector<std::int32_t>>()) << expected["texts"][i];
  }
}

TEST(HuggingFace, CutsTheSameWordsByEveryPattern) {
  const auto expected = fixture();
  for (const auto& [name, pattern] :
       {std::pair("gpt2", WordPattern::gpt2), {"llama3", WordPattern::llama3}, {"qwen2", WordPattern::qwen2}}) {
    const WordSplitter splitter(pattern);
    for (std::size_t i = 0; i < expected["split_texts"].size(); ++i) {
      const auto text = expected["split_texts"][i].get<std::string>();
      const std::vector<std::string> words = words_of(splitter, text);
      EXPECT_EQ(words, expected["words"][name][i].get<std::vector<std::string>>()) << name << ": " << text;
      // Wherever a cut is allowed it changes nothing.
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        if (!splitter.can_cut(text, cut)) continue;
        std::vector<std::string> joined = words_of(splitter, text.substr(0, cut));
        std::ranges::move(words_of(splitter, text.substr(cut)), std::back_inserter(joined));
        EXPECT_EQ(joined, words) << name << " at " << cut << ": " << text;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::data

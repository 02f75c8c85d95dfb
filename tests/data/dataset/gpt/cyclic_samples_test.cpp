#include "src/data/dataset/gpt_samples.hpp"

#include <gmock/gmock.h>

#include <utility>

#include "src/data/dataset/gpt_data.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/sample_text.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;

// Figures of PyTorch: torch.manual_seed(SEED); torch.randperm(10).
TEST(TorchPermutation, IsThatOfPyTorch) {
  EXPECT_THAT(torch_permutation(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(torch_permutation(10, 42), ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
  EXPECT_THAT(torch_permutation(1, 3), ElementsAre(0));
  EXPECT_THROW(torch_permutation(std::int64_t{1} << 32, 0), ConfigError);
}

/// A corpus of one document, token i = i.
std::shared_ptr<const MemoryTokenStore> counting_corpus(std::int32_t tokens) {
  std::vector<std::int32_t> document(static_cast<std::size_t>(tokens));
  for (std::int32_t i = 0; i < tokens; ++i) document[static_cast<std::size_t>(i)] = i;
  CorpusInfo info;
  info.vocabulary_size = tokens;
  return std::make_shared<MemoryTokenStore>(info, std::vector<std::vector<std::int32_t>>{document});
}

/// Samples of two tokens and one more.
std::unique_ptr<SampleSource> samples(Sampling sampling, std::int32_t tokens, std::vector<SampleBudget> budgets) {
  GptDataOptions options;
  options.sequence_length = 2;
  options.split_fractions = parse_split("1");
  options.sampling = sampling;
  options.budgets = std::move(budgets);
  return std::move(make_gpt_data({{counting_corpus(tokens)}}, options).train);
}

TEST(CyclicSamples, ReadEachEpochInAnOrderOfItsOwn) {
  constexpr std::int64_t n = 10;  // samples of an epoch
  const auto epoch = samples(Sampling::shuffled, 2 * n + 1, {{n, 0, 0}});
  const auto source = samples(Sampling::cyclic, 2 * n + 1, {{3 * n, 0, 0}});
  ASSERT_EQ(epoch->size(), n);
  EXPECT_EQ(source->size(), 3 * n);
  for (std::int64_t i = 0; i < 3 * n; ++i) {
    const std::int64_t place = torch_permutation(n, i / n)[static_cast<std::size_t>(i % n)];
    EXPECT_EQ(test::text_of(*source, i), test::text_of(*epoch, place)) << i;
  }
}

TEST(CyclicSamples, DoNotDependOnTheLengthOfTheRun) {
  const auto one = samples(Sampling::cyclic, 21, {{25, 0, 0}});
  const auto continued = samples(Sampling::cyclic, 21, {{7, 0, 0}, {25, 0, 0}});
  // Backwards, so that orders are dropped and made again.
  for (std::int64_t i = 24; i >= 0; --i) EXPECT_EQ(test::text_of(*one, i), test::text_of(*continued, i)) << i;
}

}  // namespace
}  // namespace trireme::data

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/infer/generation.hpp"
#include "src/model/stage/decoding_stage.hpp"
#include "tests/support/generated.hpp"
#include "tests/train/one_rank.hpp"

namespace trireme::infer {
namespace {

using namespace train;

TEST(Generation, WithItsCacheEqualsWholeForwards) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    if (small_config(variant, 0).is_bert()) continue;
    Rig rig(layout_of(DType::fp64, 16, 1), small_config(variant, 0), 0.5);
    SamplingOptions greedy;
    greedy.temperature = 0;
    const std::vector<std::int32_t> prompt = {3, 14, 15};
    const std::vector<std::int32_t> text = test::generated(rig.gpt, rig.world, prompt, 10, greedy);
    ASSERT_EQ(text.size(), 10u);
    // Recomputed token by token: the continuation of a longer prompt begins with the next token.
    std::vector<std::int32_t> so_far = prompt;
    for (const std::int32_t token : text) {
      EXPECT_EQ(test::generated(rig.gpt, rig.world, so_far, 1, greedy).front(), token) << variant.name;
      so_far.push_back(token);
    }
  }
}

TEST(Generation, TakesAsManyTextsAsHaveRoom) {
  Rig rig(layout_of(DType::fp64, 16, 1), small_config(test::model_variants().front(), 0), 0.5);
  EXPECT_EQ(longest_text(rig.gpt, {{0, "", {1, 2, 3}, 4}, {1, "", {1}, 5}}), 7);
  EXPECT_EQ(longest_text(rig.gpt, {{0, "", {1, 2, 3}, 1000}}), rig.gpt.config().max_positions);
  EXPECT_EQ(texts_that_fit(rig.gpt, rig.world, 16, 4), 4);
  EXPECT_EQ(texts_that_fit(rig.gpt, rig.world, std::int64_t{1} << 40, 4), 0);
  const std::int64_t positions = 1 << 20, all = texts_that_fit(rig.gpt, rig.world, positions, 1 << 30);
  EXPECT_NEAR(static_cast<double>(texts_that_fit(rig.gpt, rig.world, 2 * positions, 1 << 30)), all / 2.0, all / 5.0);
}

TEST(Generation, MatchesTheProbabilitiesOfTraining) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    if (small_config(variant, 0).is_bert()) continue;
    Rig rig(layout_of(DType::fp64, 16, 1), small_config(variant, 0), 0.5);
    model::TransformerStage& stage = rig.gpt.stage();
    BatchLoader loader(*rig.backend, parallel::SequenceShard::of(16), 1, 1, DType::fp64);
    stage.begin(loader.load(FormulaSamples(), {{3, 0}}), {});
    stage.forward(0, 0, {}, {});
    const double expected = stage.take_loss_sums().tokens;

    std::vector<std::int32_t> tokens(17);
    FormulaSamples().read_text(3, tokens);
    model::DecodingStage decoding(stage, 1, 16, rig.gpt.config().window.left);
    double sum = 0;
    for (std::int64_t i = 0; i < 16; ++i) {
      const auto token_i = std::span(tokens).subspan(static_cast<std::size_t>(i), 1);
      i == 0 ? decoding.begin_text(0, token_i) : decoding.begin_step(token_i);
      decoding.forward(0, 0, {}, {});
      const ConstTensorView logits = decoding.logits();
      double total = 0;
      for (std::int64_t token = 0; token < 50; ++token) total += std::exp(logits.as<double>()[token]);
      sum += std::log(total) - logits.as<double>()[tokens[static_cast<std::size_t>(i) + 1]];
    }
    EXPECT_NEAR(sum / expected, 1, test::tolerance(DType::fp64, test::Comparison::other_order).loss) << variant.name;
  }
}

TEST(TextContinuer, ContinuesEachTextAsAlone) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    if (small_config(variant, 0).is_bert()) continue;
    Rig rig(layout_of(DType::fp64, 16, 1), small_config(variant, 0), 0.5);
    GenerationOptions options;
    TextContinuer continuer(rig.gpt, rig.world, options);
    std::vector<std::int32_t> text = {3, 14, 15};
    const auto expect_as_alone = [&](std::int64_t count) {
      const std::vector<std::int32_t> actual = continuer.run({0, "", text, count}).tokens;
      EXPECT_EQ(actual, test::generated(rig.gpt, rig.world, text, count)) << variant.name << ", " << text.size();
      return actual;
    };
    const std::vector<std::int32_t> first = expect_as_alone(3);
    text.insert(text.end(), first.begin(), first.end());
    text.insert(text.end(), {7, 8});
    expect_as_alone(4);  // a second turn
    text[5] = 21;
    expect_as_alone(2);  // another text after five tokens
    text.resize(4);
    expect_as_alone(20);  // beyond the model's positions: the context restarts
    text.push_back(9);
    expect_as_alone(2);
  }
}

std::int32_t token_of(const std::vector<double>& logits, const SamplingOptions& options, std::int64_t position,
                      std::int64_t text = 0) {
  return choose_token(std::span(logits), options, position, text);
}

TEST(ChooseToken, GreedyTakesTheMostProbableAndBreaksTiesByTheFirst) {
  SamplingOptions greedy;
  greedy.temperature = 0;
  EXPECT_EQ(token_of({0, 2, 1, 2}, greedy, 0), 1);
}

TEST(ChooseToken, SingleLogitsChooseAsDoubleOnesDo) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>(i * 7919 % 1000) / 100);
  const std::vector<double> wide(logits.begin(), logits.end());
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0}, {}, {.top_k = 20}, {.top_p = 0.9}, {.min_p = 0.1}}) {
    for (std::int64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(choose_token(std::span<const float>(logits), options, position), token_of(wide, options, position));
    }
  }
}

TEST(AllFinite, FindsOneNumberThatIsNot) {
  for (const float wrong : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> logits(37, std::numeric_limits<float>::max());
    EXPECT_TRUE(all_finite(std::span<const float>(logits)));
    logits[20] = wrong;
    EXPECT_FALSE(all_finite(std::span<const float>(logits)));
  }
}

TEST(ChooseToken, TopKAndTopPLeaveOutTheUnlikely) {
  SamplingOptions two;
  two.top_k = 2;
  SamplingOptions nucleus;
  nucleus.top_p = 0.6;  // exp(3) of about 28 is 0.72: only the first
  for (std::int64_t position = 0; position < 200; ++position) {
    EXPECT_THAT(token_of({0, 3, 1.5, 1}, two, position), testing::AnyOf(1, 2));
    EXPECT_EQ(token_of({0, 3, 1.5, 1}, nucleus, position), 1);
  }
}

TEST(ChooseToken, EachTextHasItsOwnRandomNumbers) {
  const std::vector<double> logits(1000);
  std::set<std::int32_t> tokens;
  for (std::int64_t text = 0; text < 20; ++text) tokens.insert(token_of(logits, {}, 5, text));
  EXPECT_GT(tokens.size(), 15u);
  EXPECT_EQ(token_of(logits, {}, 5, 3), token_of(logits, {}, 5, 3));
}

TEST(ChooseToken, ReachesTheUnlikelyTokensOfALargeVocabulary) {
  const std::vector<double> logits(1000);  // equal: the likeliest are the first
  SamplingOptions half;
  half.top_p = 0.5;
  int late = 0;
  for (std::int64_t position = 0; position < 1000; ++position) {
    late += token_of(logits, {}, position) >= 500 ? 1 : 0;
    EXPECT_LT(token_of(logits, half, position), 500);
  }
  EXPECT_NEAR(late, 500, 64);  // four standard deviations
}

TEST(LogProbabilities, AreThoseOfTheSoftmax) {
  // exp of the logits over their sum, 10: 0.4, 0.1, 0.4, 0.1
  const std::vector<double> logits = {std::log(4), 0, std::log(4), 0};
  const std::vector<TokenProbability> result = log_probabilities(std::span(logits), 3, 3);
  ASSERT_EQ(result.size(), 4u);
  const std::int32_t tokens[] = {3, 0, 2, 1};
  const double probabilities[] = {0.1, 0.4, 0.4, 0.1};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result[i].token, tokens[i]);
    EXPECT_NEAR(result[i].log_probability, std::log(probabilities[i]), 1e-14);
  }
  EXPECT_EQ(log_probabilities(std::span(logits), 0, 9).size(), 5u);
}

/// Expects draws of a token with these probabilities; those that are 0 never occur.
void expect_frequencies(const std::vector<double>& logits, const SamplingOptions& options,
                        const std::vector<double>& probabilities) {
  constexpr int draws = 20000;
  std::vector<int> counts(logits.size());
  for (int position = 0; position < draws; ++position) {
    ++counts[static_cast<std::size_t>(token_of(logits, options, position))];
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double p = probabilities[i], four_deviations = 4 * std::sqrt(p * (1 - p) / draws);
    EXPECT_NEAR(static_cast<double>(counts[i]) / draws, p, four_deviations) << "token " << i;
  }
}

TEST(ChooseToken, HasTheProbabilitiesOfTransformers) {
  // Made by the logits processors of transformers 5.24 in this order: repetition penalty, temperature, top-k, top-p,
  // min-p; fp64.
  const std::vector<double> logits = {-0.974, -1.208, -1.116, 1.335,  -0.395, 3.886,
                                      -2.803, -1.525, 1.262,  -1.798, -1.116, 1.381};
  const std::int32_t text[] = {3, 3, 7, 0, 11};
  struct Case {
    SamplingOptions options;
    std::vector<double> probabilities;
  };
  const Case cases[] = {
      {{1, 0, 0, 0, 1, 9},
       {0.00604, 0.00478, 0.00524, 0.06082, 0.01078, 0.77975, 0.00097, 0.00348, 0.05654, 0.00265, 0.00524, 0.06369}},
      {{0.7, 5, 0, 0, 1, 9}, {0, 0, 0, 0.02421, 0.00204, 0.92608, 0, 0, 0.02181, 0, 0, 0.02585}},
      {{1.3, 0, 0.8, 0, 1.3, 9}, {0, 0, 0, 0, 0, 0.80205, 0, 0, 0.10656, 0, 0, 0.09139}},
      {{0.9, 0, 0, 0.1, 1, 9}, {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}},
      {{1.5, 9, 0.9, 0.25, 1.7, 9}, {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}},
      {{1, 0, 0, 0.05, 0.6, 9}, {0, 0, 0, 0.12943, 0, 0.68141, 0, 0, 0.04941, 0, 0, 0.13975}}};
  for (const Case& one : cases) {
    std::vector<double> penalised = logits;
    penalise_repetitions(penalised, text, one.options.repetition_penalty);
    expect_frequencies(penalised, one.options, one.probabilities);
  }
}

TEST(ChooseToken, APenaltyAppliesOncePerTokenTowardsTheUnlikely) {
  std::vector<double> logits = {3, -3, 3, -3};
  penalise_repetitions(logits, std::vector<std::int32_t>{0, 1, 0, 1}, 1.5);
  EXPECT_EQ(logits, (std::vector<double>{2, -4.5, 3, -3}));
}

TEST(ChooseToken, FollowsTheProbabilities) {
  SamplingOptions plain;
  int ones = 0;
  for (std::int64_t position = 0; position < 20000; ++position) {
    ones += token_of({0, std::log(3.0)}, plain, position) == 1 ? 1 : 0;
  }
  EXPECT_NEAR(ones / 20000.0, 0.75, 0.015);  // four standard deviations
}

}  // namespace
}  // namespace trireme::infer

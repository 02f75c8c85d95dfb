// Scores of texts: independent of the grid and the order of reading.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "src/comm/self_communicator.hpp"
#include "src/infer/logits.hpp"
#include "src/infer/scoring.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using data::ScoredTexts;
using data::TextScore;

constexpr std::int64_t sequence = 24;

TrainingRunConfig small_run() {
  TrainingRunConfig config;
  config.model = {.layers = 4, .hidden = 32, .heads = 4, .ffn_hidden = 64, .max_positions = sequence, .vocabulary = 11};
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.s = sequence;
  config.batch = 12;
  config.init_method = model::InitMethod::hashed_uniform;
  config.init_scale = 16;  // so that losses differ
  config.steps = 1;
  return config;
}

/// Seven texts of 0 to 24 positions; the third and the sixth score nothing.
ScoredTexts texts() {
  ScoredTexts result(10);
  for (const auto& [ids, scored] : {std::pair{8, 1}, {25, 24}, {13, 0}, {2, 1}, {25, 3}, {1, 0}, {18, 17}}) {
    std::vector<std::int32_t> text;
    for (int i = 0; i < ids; ++i) text.push_back((i * i + 3 * ids + scored) % 11);
    result.add(text, scored);
  }
  return result;
}

infer::TextScores scores_of(train::ParallelModel& model) {
  std::int64_t done = 0, all = 0;
  infer::TextScores scores = infer::score_texts(model, texts(), [&](std::int64_t now, std::int64_t total) {
    EXPECT_GT(now, done);
    done = now;
    all = total;
  });
  EXPECT_EQ(done, all);
  EXPECT_EQ(scores.tokens, 7 + 24 + 1 + 24 + 17);
  return scores;
}

/// Grids of two ranks. Two data ranks divide five scored texts.
std::vector<Layout> layouts() { return {"", "b 2", "tp 2", "pp 2", "tp 2 sp", "pp 2 vpp 2", "cp 2 b 2"}; }

void expect_same(const infer::TextScores& actual, const infer::TextScores& expected) {
  ASSERT_EQ(actual.scores.size(), expected.scores.size());
  for (std::size_t i = 0; i < actual.scores.size(); ++i) {
    const TextScore &a = actual.scores[i], &b = expected.scores[i];
    EXPECT_NEAR(a.loss, b.loss, 1e-10) << i;
    EXPECT_NEAR(a.squared_loss, b.squared_loss, 1e-10) << i;
    EXPECT_EQ(a.wrong, b.wrong) << i;
  }
}

// The ranks exchange tokens of texts of different lengths. A capacity is of training alone.
TEST(ScoreTexts, EachTextCountsOnceWithDividedExperts) {
  TrainingRunConfig config = small_run();
  config.model.linear_bias = false;
  config.model.experts.count = 4;
  SelfCommunicator alone;
  TrainingRun one(alone, config, {});
  config.model.experts.capacity_factor = 0.75;
  TrainingRun run(world(), config, "ep 2");
  expect_same(scores_of(run.gpt), scores_of(one.gpt));
}

TEST(ScoreTexts, EachTextCountsOnceOnEveryGrid) {
  SelfCommunicator alone;
  TrainingRun one(alone, small_run(), {});
  const infer::TextScores expected = scores_of(one.gpt);
  EXPECT_EQ(expected.positions, 8 + 24 + 8 + 24 + 24);
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRun run(world(), small_run(), layout);
    for (int time = 0; time < 2; ++time) {
      expect_same(scores_of(run.gpt), expected);
    }
    EXPECT_EQ(run.gpt.take_global_loss_sums().tokens, 0);
    EXPECT_EQ(run.gpt.sequence_shard().sequence, sequence);
  }
}

TEST(ScoreTexts, LossesMatchTheModelAndWrongTokensAreLessProbable) {
  SelfCommunicator alone;
  TrainingRun run(alone, small_run(), {});
  const infer::TextScores scores = scores_of(run.gpt);
  train::BatchLoader loader(*run.backend, run.gpt.sequence_shard(), 1, 1, DType::fp64);
  const auto loss_of = [&](const ScoredTexts& texts, std::int64_t index) {
    run.gpt.run(loader.load(texts, {{index, 0}}), {});
    return run.gpt.take_global_loss_sums().tokens;
  };
  for (std::int64_t i = 0; i < texts().size(); ++i) {
    EXPECT_NEAR(scores.scores[static_cast<std::size_t>(i)].loss, loss_of(texts(), i), 1e-10) << i;
  }
  // The text's last token is wrong if another one instead of it has a smaller loss.
  for (const std::size_t index : {0, 3}) {
    ScoredTexts changed(10);
    const ScoredTexts all = texts();
    const auto original = all.ids(static_cast<std::int64_t>(index));
    std::vector<std::int32_t> ids(original.begin(), original.end());
    bool is_wrong = false;
    for (std::int32_t other = 0; other < 11; ++other) {
      ids.back() = other;
      changed.add(ids, 1);
      is_wrong = is_wrong || loss_of(changed, other) < scores.scores[index].loss - 1e-12;
    }
    EXPECT_EQ(scores.scores[index].wrong, is_wrong ? 1 : 0) << index;
  }
}

TEST(ScoreTexts, RefusesWhatTheModelCannotRead) {
  SelfCommunicator alone;
  TrainingRun run(alone, small_run(), {});
  const auto score = [&](const std::vector<std::int32_t>& ids) {
    ScoredTexts bad(10);
    bad.add(ids, 1);
    infer::score_texts(run.gpt, bad, [](std::int64_t, std::int64_t) {});
  };
  EXPECT_EQ(message_of<DataError>([&] {
              score({1, 11});
            }),
            "token 11 is not in the model's vocabulary of 11: the tokenizer is not the model's");
  EXPECT_THROW(score(std::vector<std::int32_t>(26, 1)), ShapeError);
}

/// Logits [sample, position, token] of samples 0 to 11, gathered in another order.
std::map<std::int64_t, std::vector<double>> logits_of(TrainingRun& run) {
  std::map<std::int64_t, std::vector<double>> logits;
  infer::collect_logits(run.gpt, *run.data.train, {7, 0, 1, 2, 3, 4, 5, 6, 11, 9, 10, 8},
                        [&](std::int64_t sample, std::int64_t first, std::span<const double> part) {
                          std::vector<double>& whole = logits[sample];
                          EXPECT_EQ(std::ssize(whole), first * 11);
                          whole.insert(whole.end(), part.begin(), part.end());
                        });
  return logits;
}

TEST(CollectLogits, DoesNotDependOnTheGridAndMatchesTheEvaluationLoss) {
  SelfCommunicator alone;
  TrainingRun one(alone, small_run(), {});
  const auto expected = logits_of(one);
  ASSERT_EQ(expected.size(), 12u);
  double loss = 0;
  const data::SampleBuffer buffer(sequence, {});
  for (const auto& [sample, logits] : expected) {
    ASSERT_EQ(std::ssize(logits), sequence * 11);
    one.data.train->read(sample, buffer.view());
    for (std::int64_t position = 0; position < sequence; ++position) {
      const auto row = std::span(logits).subspan(static_cast<std::size_t>(position * 11), 11);
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit);
      loss += std::log(sum) - row[static_cast<std::size_t>(buffer.view().labels[static_cast<std::size_t>(position)])];
    }
  }
  EXPECT_NEAR(one.trainer.evaluate(*one.data.train, 0, 1)->loss, loss / (12 * sequence), 1e-12);

  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRun run(world(), small_run(), layout);
    const auto actual = logits_of(run);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [sample, logits] : expected) {
      ASSERT_EQ(actual.at(sample).size(), logits.size());
      for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(actual.at(sample)[i], logits[i], 1e-10) << sample;
    }
    EXPECT_NEAR(run.trainer.evaluate(*run.data.train, 0, 1)->loss, loss / (12 * sequence), 1e-10);
  }
}

}  // namespace
}  // namespace trireme::test

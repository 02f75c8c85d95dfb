// Global batches that grow or shrink, and averages of their loss: the grid does not affect these runs either.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

/// Batches of 4, 8, 12 and 16 samples: 4, 3, 2 and so on.
TrainingRunConfig ramp() {
  return {.model = {.layers = 2, .hidden = 32, .heads = 8, .ffn_hidden = 256, .max_positions = 32, .vocabulary = 300},
          .s = 16,
          .batch = 16,
          .ramp_up = train::BatchRampUp{4, 4, 48},
          .steps = 12};
}

std::vector<train::TrainRecord> records(Communicator& ranks, const TrainingRunConfig& config, const Layout& layout) {
  TrainingRun run(ranks, config, layout);
  std::vector<train::TrainRecord> list;
  for (std::int64_t i = 0; i < config.steps; ++i) list.push_back(run.step());
  return list;
}

std::vector<Layout> batch_layouts(int ranks) {
  std::vector<Layout> list;
  for (const auto& [tensor, pipeline] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    if (ranks % (tensor * pipeline) == 0 && 4 % (ranks / tensor / pipeline) == 0)
      list.push_back(fmt::format("tp {} pp {}", tensor, pipeline));
  }
  return list;
}

void expect_same_run(const std::vector<train::TrainRecord>& actual, const std::vector<train::TrainRecord>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  const RunTolerance close = tolerance(DType::fp64, Comparison::other_order);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].consumed_samples, expected[i].consumed_samples);
    EXPECT_EQ(actual[i].learning_rate, expected[i].learning_rate);
    EXPECT_NEAR(actual[i].lm_loss / expected[i].lm_loss, 1, close.loss) << i;
    EXPECT_NEAR(actual[i].grad_norm / expected[i].grad_norm, 1, close.grad_norm) << i;
  }
}

/// Batches of 4, 16 and 8 samples.
TrainingRunConfig steps() {
  TrainingRunConfig config = ramp();
  config.ramp_up = train::BatchSteps{{{0, 4}, {10, 16}, {40, 8}}};
  config.steps = 6;
  return config;
}

TEST(BatchGrowth, EveryGridConsumesAndComputesTheSame) {
  const std::vector<std::int64_t> of_ramp = {4, 8, 12, 16, 24, 32, 44, 56, 72, 88, 104, 120};
  SelfCommunicator alone;
  for (const auto& [config, samples] :
       {std::pair{ramp(), of_ramp}, {steps(), std::vector<std::int64_t>{4, 8, 12, 28, 44, 52}}}) {
    const std::vector<train::TrainRecord> expected = records(alone, config, {});
    std::vector<std::int64_t> consumed;
    for (const train::TrainRecord& record : expected) consumed.push_back(record.consumed_samples);
    EXPECT_EQ(consumed, samples);
    for (const Layout& layout : batch_layouts(world().size())) {
      SCOPED_TRACE(testing::Message() << layout);
      expect_same_run(records(world(), config, layout), expected);
    }
  }
}

TEST(WeightDecay, FollowsItsRamp) {
  SelfCommunicator alone;
  TrainingRunConfig config = ramp();
  config.ramp_up = {};
  config.steps = 3;
  const auto run = [&](double constant, const std::optional<optim::WeightDecayRamp>& ramp) {
    config.train.reset();
    config.train = train_options(config);
    config.train->optimizer.weight_decay = constant;
    config.train->weight_decay_ramp = ramp;
    return records(alone, config, {});
  };
  using optim::WeightDecayRamp;
  using optim::WeightDecayStyle;
  const std::vector<train::TrainRecord> expected = run(30, {});
  const std::vector<train::TrainRecord> level = run(0, WeightDecayRamp{WeightDecayStyle::linear, 30, 30, 3});
  const std::vector<train::TrainRecord> growing = run(0, WeightDecayRamp{WeightDecayStyle::linear, 0, 90, 3});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(expected[i].weight_decay);
    EXPECT_EQ(level[i].lm_loss, expected[i].lm_loss);
    EXPECT_DOUBLE_EQ(*growing[i].weight_decay, 30.0 * static_cast<double>(i + 1));
  }
  EXPECT_EQ(growing[1].lm_loss, expected[1].lm_loss);  // both first updates decay by 30
  EXPECT_NE(growing[2].lm_loss, expected[2].lm_loss);
}

/// Samples of the corpus that end early: in sample i the first 3 + 5 i mod 14 tokens are predicted.
class CutSamples final : public data::SampleSource {
 public:
  explicit CutSamples(const data::SampleSource& whole) : whole_(whole) {}
  std::int64_t size() const override { return whole_.size(); }
  std::int64_t sequence_length() const override { return whole_.sequence_length(); }
  void read(std::int64_t index, const data::SampleView& sample) const override {
    whole_.read(index, sample);
    std::ranges::fill(sample.labels.subspan(static_cast<std::size_t>(counted(index))), -1);
  }
  static std::int64_t counted(std::int64_t index) { return 3 + 5 * index % 14; }

 private:
  const data::SampleSource& whole_;
};

/// Samples of the corpus, of which those from `first_late` on are there once `release` was called.
class LateSamples final : public data::SampleSource {
 public:
  LateSamples(const data::SampleSource& whole, std::int64_t first_late) : whole_(whole), first_late_(first_late) {}
  std::int64_t size() const override { return whole_.size(); }
  std::int64_t sequence_length() const override { return whole_.sequence_length(); }
  void read(std::int64_t index, const data::SampleView& sample) const override {
    if (index >= first_late_ && released_.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      waited_in_vain_ = true;
    }
    whole_.read(index, sample);
  }
  void release() { promise_.set_value(); }
  bool waited_in_vain() const { return waited_in_vain_; }

 private:
  const data::SampleSource& whole_;
  std::int64_t first_late_;
  std::promise<void> promise_;
  std::shared_future<void> released_ = promise_.get_future();
  mutable std::atomic<bool> waited_in_vain_ = false;
};

TEST(ReadingAhead, IsAwaitedByTheNextStepWhoseTimeItIs) {
  SelfCommunicator self;
  TrainingRunConfig config = ramp();
  config.ramp_up = {};
  config.batch = 4;
  TrainingRun reference(self, config, Layout{}), run(self, config, Layout{});
  std::vector<double> expected;
  for (int i = 0; i < 2; ++i) expected.push_back(reference.step().lm_loss);
  LateSamples late(*run.data.train, 4);
  EXPECT_EQ(run.trainer.step(late, /*followed=*/true).lm_loss, expected[0]);
  EXPECT_FALSE(late.waited_in_vain());
  late.release();
  EXPECT_EQ(run.trainer.step(late).lm_loss, expected[1]);
}

TrainingRunConfig two_steps(train::LossAverage average) {
  TrainingRunConfig config = ramp();
  config.ramp_up = {};
  config.batch = 12;
  config.steps = 2;
  config.loss_average = average;
  return config;
}

TEST(LossAverage, IsOverTokensOrOverMicroBatches) {
  SelfCommunicator alone;
  TrainingRunConfig config = two_steps(train::LossAverage::tokens);
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  // Mean of each sample.
  TrainingRunConfig single = config;
  single.batch = 1;
  single.steps = config.batch;
  TrainingRun one(alone, single, {});
  std::vector<double> sums;
  double sum = 0;
  double tokens = 0;
  for (std::int64_t i = 0; i < config.batch; ++i) {
    const auto n = static_cast<double>(CutSamples::counted(i));
    sums.push_back(n * one.trainer.evaluate(CutSamples(*one.data.train), i, 1)->loss);
    sum += sums.back();
    tokens += n;
  }
  const double close = tolerance(DType::fp64, Comparison::other_average).loss;
  for (const std::int64_t b : {1, 2, 3}) {
    double of_micro_batches = 0;
    for (std::int64_t first = 0; first < config.batch; first += b) {
      double part = 0;
      double count = 0;
      for (std::int64_t i = first; i < first + b; ++i) {
        part += sums[static_cast<std::size_t>(i)];
        count += static_cast<double>(CutSamples::counted(i));
      }
      of_micro_batches += part / count * static_cast<double>(b) / static_cast<double>(config.batch);
    }
    const Layout layout = fmt::format("b {}", b);
    TrainingRun by_tokens(world(), config, layout);
    EXPECT_NEAR(by_tokens.trainer.evaluate(CutSamples(*one.data.train), 0, 1)->loss / (sum / tokens), 1, close);
    EXPECT_NEAR(by_tokens.trainer.step(CutSamples(*by_tokens.data.train)).lm_loss / (sum / tokens), 1, close);
    config.loss_average = train::LossAverage::micro_batch;
    TrainingRun by_batches(world(), config, layout);
    EXPECT_NEAR(by_batches.trainer.step(CutSamples(*by_batches.data.train)).lm_loss / of_micro_batches, 1, close);
    config.loss_average = train::LossAverage::tokens;
  }
}

TEST(LossAverage, DoesNotDependOnTheGrid) {
  SelfCommunicator alone;
  for (const auto average : {train::LossAverage::tokens, train::LossAverage::micro_batch}) {
    const TrainingRunConfig config = two_steps(average);
    std::vector<train::TrainRecord> expected;
    TrainingRun reference(alone, config, {});
    for (int i = 0; i < 2; ++i) expected.push_back(reference.trainer.step(CutSamples(*reference.data.train)));
    for (const Layout& layout : batch_layouts(world().size())) {
      SCOPED_TRACE(testing::Message() << layout);
      TrainingRun run(world(), config, layout);
      std::vector<train::TrainRecord> actual;
      for (int i = 0; i < 2; ++i) actual.push_back(run.trainer.step(CutSamples(*run.data.train)));
      expect_same_run(actual, expected);
    }
  }
}

}  // namespace
}  // namespace trireme::test

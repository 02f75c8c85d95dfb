// Micro-batches of different lengths have the losses, gradients and scores of padded ones, on every grid.
#include <gtest/gtest.h>

#include <utility>

#include "src/comm/self_communicator.hpp"
#include "src/train/finetune/task_scoring.hpp"
#include "tests/support/first_samples.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using model::ModelOutput;

/// Grids of `ranks` ranks, with every pipeline schedule.
std::vector<Layout> length_layouts(int ranks) {
  if (ranks == 1) return {"zero1 b 2 offload 4"};
  if (ranks == 2) {
    return {"zero1 b 2",
            "tp 2 sp b 2",
            "cp 2 b 2",
            "pp 2 gpipe b 2",
            "pp 2 1f1b b 2",
            "pp 2 interleaved vpp 2 b 2",
            "pp 2 zero-bubble b 2 offload 2"};
  }
  return {"tp 2 pp 2 interleaved vpp 2 sp b 2", "cp 2 pp 2 zero-bubble b 2", "pp 4 1f1b b 2",
          "tp 2 pp 2 zero-bubble b 2"};
}

/// A small BERT or GPT, with dropout; 13 samples of 13 to 32 of 32 positions.
TrainingRunConfig small_run(bool is_bert, ModelOutput output, std::int64_t classes = 3) {
  TrainingRunConfig config;
  config.model.family = is_bert ? model::ModelFamily::bert : model::ModelFamily::gpt;
  config.model.hidden = 32;
  config.model.ffn_hidden = 64;
  config.model.output = output;
  config.model.classes = classes;
  config.steps = 2;
  config.bert_rows = 13;
  return config;
}

/// Calls `test(config)` for BERT's pretraining and every task.
template <class Test>
void for_each_model(const Test& test) {
  for (const bool is_bert : {true, false}) {
    for (const auto& [output, classes] : {std::pair{ModelOutput::pretraining, 2},
                                          {ModelOutput::classes, 3},
                                          {ModelOutput::classes, 1},
                                          {ModelOutput::choices, 2},
                                          {ModelOutput::spans, 2}}) {
      if (!is_bert && (output == ModelOutput::spans || output == ModelOutput::pretraining)) continue;
      SCOPED_TRACE(testing::Message() << (is_bert ? "BERT" : "GPT") << ", output " << static_cast<int>(output) << " of "
                                      << classes);
      test(small_run(is_bert, output, classes));
    }
  }
}

TEST(VariableLengths, EveryGridAndScheduleComputesTheRunOfPaddedMicroBatches) {
  for_each_model([&](const TrainingRunConfig& config) {
    SelfCommunicator self;
    const Curve expected = training_curve(self, config, "b 8");
    for (const Layout& layout : length_layouts(world().size())) {
      SCOPED_TRACE(testing::Message() << layout);
      expect_close(training_curve(world(), config, layout.with("variable-lengths predictions 11")), expected,
                   tolerance(DType::fp64, Comparison::other_average));
    }
  });
}

TEST(VariableLengths, KeepTheTrainingOfExpertsThatDoNotCountPadding) {
  TrainingRunConfig config = small_run(true, ModelOutput::pretraining);
  config.model.linear_bias = false;
  config.model.experts = {.count = 4, .jitter_eps = 0.1};
  SelfCommunicator self;
  const Curve expected = training_curve(self, config, "b 8");
  for (const Layout& layout : length_layouts(world().size())) {
    SCOPED_TRACE(testing::Message() << layout);
    expect_close(training_curve(world(), config, layout.with("variable-lengths")), expected,
                 tolerance(DType::fp64, Comparison::other_average));
  }
}

TEST(VariableLengths, CountTheTokensOfTheSamples) {
  for (const bool variable : {false, true}) {
    for (Layout layout : length_layouts(world().size())) {
      layout.options.variable_lengths = variable;
      const TrainingRunConfig config = small_run(true, ModelOutput::classes);
      TrainingRun run(world(), config, layout);
      for (std::int64_t step = 0; step < 2; ++step) {
        const train::TrainRecord record = run.step();
        std::int64_t tokens = 0;
        for (std::int64_t i = 0; i < config.batch; ++i) {
          tokens += variable ? run.data.train->length(step * config.batch + i) : config.s;
        }
        EXPECT_EQ(std::llround(record.tokens_per_second * record.elapsed_ms / 1000), tokens);
      }
    }
  }
}

TEST(VariableLengths, ResumeBitForBit) {
  const TrainingRunConfig config = small_run(true, ModelOutput::pretraining);
  const Layout layout = length_layouts(world().size()).back().with("variable-lengths");
  for (const bool evaluates_first : {false, true}) {
    TrainingRun straight(world(), config, layout), resumed(world(), config, layout);
    straight.step();
    straight.step();
    copy_state(straight, resumed);
    resumed.trainer.restore(straight.trainer.state_attributes());
    for (const bool evaluates : {evaluates_first, !evaluates_first}) {
      const auto result_of = [&](TrainingRun& run) {
        if (evaluates) return std::pair(run.trainer.evaluate(*run.data.train, 0, 1)->loss, 0.0);
        const train::TrainRecord record = run.step();
        return std::pair(record.loss(), record.grad_norm);
      };
      EXPECT_EQ(result_of(resumed), result_of(straight));
    }
  }
}

TEST(VariableLengths, TakeNoMoreMemoryThanPredicted) {
  for (const Layout& padded : length_layouts(world().size())) {
    const Layout layout = padded.with("variable-lengths");
    TrainingRunConfig config = small_run(true, ModelOutput::pretraining);
    // Averages of micro-batches keep the samples' order, in which later micro-batches are longer. Logits of this size
    // have blocks of memory of their own.
    config.loss_average = train::LossAverage::micro_batch;
    config.model.vocabulary = 8192;
    TrainingRun run(world(), config, layout);
    for (int step = 0; step < 2; ++step) run.step();
    run.trainer.evaluate(*run.data.train, 0, 1);
    const train::MemoryEstimate predicted = predicted_memory(run, config, world().rank());
    const train::ParallelModel::RunningMemory memory = run.gpt.running_memory();
    EXPECT_LE(memory.activations, predicted.activations) << layout;
    EXPECT_LE(memory.work, predicted.work) << layout;
    EXPECT_LE(memory.messages, predicted.messages) << layout;
    EXPECT_LE(run.backend->peak_allocated_bytes(), predicted.total() + predicted.host()) << layout;
  }
}

/// Returns the scores of the samples, in order, from padded micro-batches on one rank.
std::vector<double> padded_scores(const TrainingRunConfig& config, std::int64_t samples) {
  SelfCommunicator self;
  TrainingRun run(self, config, fmt::format("b {}", samples));
  train::BatchLoader loader(run.gpt.backend(), run.gpt.sequence_shard(), samples, 1, DType::fp64,
                            train::sample_fields(config.model));
  std::vector<train::BatchLoader::Sample> list;
  for (std::int64_t i = 0; i < samples; ++i) list.push_back({i, i});
  run.gpt.run(loader.load(*run.data.train, list), {});
  return run.gpt.take_sample_scores();
}

TEST(ScoreSamples, FindsTheScoresOfPaddedSamplesOnEveryGrid) {
  constexpr std::int64_t samples = 10;
  for_each_model([&](TrainingRunConfig config) {
    if (config.model.predicts_tokens()) return;
    config.batch = samples;
    const std::vector<double> expected = padded_scores(config, samples);
    for (const Layout& layout : length_layouts(world().size())) {
      SCOPED_TRACE(testing::Message() << layout);
      config.batch = 8;
      TrainingRun run(world(), config, layout);
      const FirstSamples few(*run.data.train, samples);
      const train::TaskScores scores = train::score_samples(run.gpt, few);
      ASSERT_EQ(scores.scores.size(), expected.size());
      const std::int64_t row = config.model.output == ModelOutput::spans ? config.s : scores.columns;
      for (std::int64_t i = 0; i < std::ssize(expected); ++i) {
        const bool is_padding = config.model.output == ModelOutput::spans && i % row >= few.length(i / row / 2);
        const auto at = static_cast<std::size_t>(i);
        if (is_padding) {
          EXPECT_LT(scores.scores[at], -29000) << i;
        } else {
          EXPECT_NEAR(scores.scores[at], expected[at], tolerance(DType::fp64, Comparison::other_average).loss) << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace trireme::test

// Context parallelism: splitting sequences over ranks does not affect the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "src/infer/perplexity.hpp"
#include "tests/support/model_variants.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

/// Grids of `ranks` ranks whose context groups have two or more.
std::vector<Layout> context_layouts(int ranks) {
  if (ranks == 2) return {"cp 2 b 2"};
  return {"cp 4 b 2",
          "cp 2 b 2",
          "cp 2 tp 2 sp b 2",
          "cp 2 pp 2 zero-bubble b 2",
          "cp 2 pp 2 vpp 2 b 2",
          "cp 2 pp 2 selective b 2",
          "cp 2 tp 2 uniform 1 b 2",
          "cp 2 zero2 overlap bucket 3000 b 2"};
}

TEST(ContextParallel, MatchesTheRunOfOneRank) {
  TrainingRunConfig config;
  config.steps = 3;
  expect_run_of_one_rank(world(), config, context_layouts(world().size()));
}

TEST(ContextParallel, WorksWithEveryModel) {
  std::vector<TrainingRunConfig> configs;
  std::vector<std::string> names;
  for (const ModelVariant& variant : model_variants()) {
    if (world().size() > 2 && variant.name != "Llama") continue;
    names.push_back(variant.name);
    configs.push_back({.steps = 2});
    variant.apply(configs.back().model);
  }
  const std::vector<Curve> references = curves_of_one_rank(world(), configs);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    SCOPED_TRACE(names[i]);
    expect_close(training_curve(world(), configs[i], context_layouts(world().size()).front()), references[i],
                 tolerance(configs[i].dtype, Comparison::other_order));
  }
}

TEST(ContextParallel, NarrowTypesStayWithinTheirTolerance) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    expect_run_of_one_rank(world(), {.dtype = dtype, .steps = 2}, {context_layouts(world().size()).front()});
  }
}

TEST(ContextParallel, MemoryIsAsPredicted) {
  Communicator& ranks = world();
  for (const Layout& layout : context_layouts(ranks.size())) {
    TrainingRunConfig config;
    config.dtype = DType::bf16;
    config.steps = 1;
    if (layout.options.parallel.schedule == parallel::ScheduleKind::zero_bubble) config.dtype = DType::fp32;
    activation_bytes(ranks, config, layout);
  }
}

TEST(ContextParallel, PerplexityMatchesOneRank) {
  Communicator& ranks = world();
  SelfCommunicator alone;
  const TrainingRunConfig config;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 5 * 32 + 11; ++i) ids.push_back(static_cast<std::int32_t>(splitmix64(3, i) % 1003));
  data::CorpusInfo info;
  info.tokenizer = "formula";
  info.vocabulary_size = 1003;
  const data::MemoryTokenStore store(info, std::vector<std::vector<std::int32_t>>{ids});  // the last window is short
  TrainingRun one(alone, config, {}), run(ranks, config, context_layouts(ranks.size()).front());
  const infer::PerplexityResult expected = infer::measure_perplexity(one.gpt, store);
  const infer::PerplexityResult actual = infer::measure_perplexity(run.gpt, store);
  EXPECT_EQ(actual.tokens, expected.tokens);
  EXPECT_NEAR(actual.loss / expected.loss, 1, tolerance(DType::fp64, Comparison::other_average).loss);
}

}  // namespace
}  // namespace trireme::test

// Options that make a Llama, alone and combined: compared with PyTorch, and the same on every grid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/stage/model_parameters.hpp"
#include "tests/support/model_variants.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/synthetic_runs.hpp"

namespace trireme::test {
namespace {

std::vector<Layout> llama_layouts(int ranks) {
  if (ranks == 1) return {Layout()};
  if (ranks == 2) return {"tp 2", "pp 2", "tp 2 sp"};
  return {"tp 2 pp 2", "tp 2 sp", "pp 2"};
}

TEST(Llama, EveryGridReproducesPyTorchInFp64) {
  Communicator& ranks = world();
  for (const char* name : {"llama", "llama_hot", "mixed", "nemotron", "qwen2", "qwen3", "llama3.1", "qk_layer_norm",
                           "mistral", "window_pattern", "interpolated", "modules_ahead", "module_ahead_tied"}) {
    SyntheticRun run = synthetic_run(name);
    if (ranks.size() > 1) {
      if (std::string(name) != "llama_hot" && std::string(name) != "mixed" &&
          !std::string(name).starts_with("module")) {
        continue;
      }
      run.shorten(8);
    }
    EXPECT_EQ(model::parameter_count(run.config.model), run.parameters) << name;
    for (const Layout& layout : llama_layouts(ranks.size())) {
      SCOPED_TRACE(testing::Message() << name << ": " << layout);
      expect_close(training_curve(ranks, run.config, layout), run.curve, tolerance(DType::fp64, comparison_of(name)));
    }
  }
}

TrainingRunConfig small_config(const ModelVariant& variant) {
  TrainingRunConfig config;
  config.model = {.layers = 2, .hidden = 32, .heads = 4, .ffn_hidden = 48, .max_positions = 16, .vocabulary = 131};
  config.s = 16;
  config.init_scale = 8;
  config.steps = 3;
  variant.apply(config.model);
  return config;
}

TEST(Llama, EachOptionWithDropoutComputesTheRunOfOneRank) {
  Communicator& ranks = world();
  std::vector<TrainingRunConfig> configs;
  for (const ModelVariant& variant : model_variants()) {
    configs.push_back(small_config(variant));
    configs.back().steps = 2;  // the second loss follows from the gradients of all parameters
  }
  const std::vector<Curve> references = curves_of_one_rank(ranks, configs);
  std::vector<double> first_norms;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const ModelVariant& variant = model_variants()[i];
    const TrainingRunConfig& config = configs[i];
    const Curve& reference = references[i];
    EXPECT_THAT(first_norms, testing::Not(testing::Contains(reference.grad_norm[0]))) << variant.name;
    first_norms.push_back(reference.grad_norm[0]);
    for (const Layout& layout : llama_layouts(ranks.size())) {
      if (config.model.kv_heads() % layout.tensor != 0) continue;
      SCOPED_TRACE(testing::Message() << variant.name << ": " << layout);
      expect_close(training_curve(ranks, config, layout), reference, tolerance(config.dtype, Comparison::other_order));
    }
  }
}

/// Layouts that together cover every form of parallelism, for a model of four layers.
std::vector<Layout> parallel_forms(int ranks) {
  if (ranks == 1) return {};
  if (ranks == 2) return {"zero2 bucket 1000", "pp 2 interleaved vpp 2", "pp 2 zero-bubble"};
  return {"tp 2 sp zero2 bucket 1000", "tp 2 pp 2 interleaved vpp 2", "tp 2 pp 2 sp zero-bubble",
          "pp 2 zero-bubble zero1"};
}

TEST(Llama, EveryParallelFormComputesTheRunOfOneRank) {
  TrainingRunConfig config = small_config(model_variant("Llama"));
  config.model.layers = 4;
  expect_run_of_one_rank(world(), config, parallel_forms(world().size()));
}

}  // namespace
}  // namespace trireme::test

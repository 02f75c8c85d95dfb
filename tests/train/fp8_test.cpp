// Training with products in FP8: every grid computes the run of one rank, for every recipe. In fp64 no operand is close
// enough to a tie that the order of sums would round it to another number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "src/comm/self_communicator.hpp"
#include "src/train/state_tensors.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using parallel::Fp8Options;
using parallel::Fp8Recipe;

constexpr Fp8Options delayed{.used = true, .history = 3, .largest_of_history = true};
constexpr Fp8Options tensorwise{.used = true, .recipe = Fp8Recipe::tensorwise};
constexpr Fp8Options blockwise{.used = true, .recipe = Fp8Recipe::blockwise};

/// Extents of a tensor rank, of two, are multiples of a block's.
TrainingRunConfig config_of(const Fp8Options& fp8) {
  TrainingRunConfig config;
  config.model.layers = 2;
  config.model.heads = 4;
  config.model.hidden = config.model.ffn_hidden = fp8.recipe == Fp8Recipe::blockwise ? 256 : 64;
  config.model.max_positions = config.s = fp8.recipe == Fp8Recipe::blockwise ? 128 : 32;
  config.batch = 4;
  config.steps = fp8.recipe == Fp8Recipe::delayed ? 3 : 2;
  config.fp8 = fp8;
  return config;
}

std::vector<Layout> layouts_of(const Fp8Options& fp8) {
  std::vector<Layout> list;
  switch (world().size()) {
    case 1:
      return {"", "b 4"};
    case 2:
      list = {"tp 2", "tp 2 sp", "pp 2 zero-bubble", "dp 2 zero1", "pp 2 gpipe uniform 1"};
      break;
    case 4:
      list = {"tp 2 pp 2", "tp 2 dp 2 sp zero1", "pp 2 dp 2 1f1b"};
      break;
    default:
      return {};
  }
  // A context rank has half of the rows of a sequence, less than a block.
  if (fp8.recipe != Fp8Recipe::blockwise) list.push_back(world().size() == 2 ? "cp 2" : "cp 2 tp 2");
  if (fp8.recipe == Fp8Recipe::delayed) list.push_back(world().size() == 2 ? "tp 2 sp row-chunks 2 b 2" : "dp 4");
  return list;
}

TEST(Fp8, EveryGridComputesTheLossesOfOneRank) {
  for (const Fp8Options& fp8 : {delayed, tensorwise, blockwise}) {
    SCOPED_TRACE(static_cast<int>(fp8.recipe));
    std::vector<Layout> layouts = layouts_of(fp8);
    // The largest magnitude of a tensor or a block depends on the samples of its micro-batch.
    if (fp8.recipe != Fp8Recipe::delayed) {
      std::erase_if(layouts, [](const Layout& layout) { return layout.options.micro_batch_size > 1; });
    }
    const Curve rounded = expect_run_of_one_rank(world(), config_of(fp8), layouts);
    SelfCommunicator alone;
    const Curve exact = training_curve(alone, config_of({}), {});
    EXPECT_NE(rounded.loss.back(), exact.loss.back());
  }
}

TEST(Fp8, WeightGradientsMayStayExact) {
  TrainingRunConfig config = config_of(tensorwise);
  config.steps = 1;
  SelfCommunicator alone;
  const Curve rounded = training_curve(alone, config, {});
  config.fp8.weight_gradients = false;
  const Curve exact = training_curve(alone, config, {});
  EXPECT_EQ(exact.loss, rounded.loss);
  EXPECT_NE(exact.grad_norm, rounded.grad_norm);
}

/// The magnitudes that a checkpoint of the run keeps.
Attributes::Texts magnitudes_of(const TrainingRun& run) {
  Attributes::Texts texts = run.trainer.state_attributes().texts();
  std::erase_if(texts, [](const auto& text) { return !text.first.starts_with("state.fp8_amax."); });
  return texts;
}

TEST(Fp8, KeepsTheSameMagnitudesOnEveryGrid) {
  TrainingRunConfig config = config_of(delayed);
  config.fp8.first_layers = 1;
  SelfCommunicator alone;
  TrainingRun expected(alone, config, {});
  for (int i = 0; i < 2; ++i) expected.step();
  ASSERT_EQ(magnitudes_of(expected).size(), 1u);  // the layer that is rounded
  for (const Layout& layout : layouts_of(delayed)) {
    TrainingRun run(world(), config, layout);
    for (int i = 0; i < 2; ++i) run.step();
    EXPECT_EQ(magnitudes_of(run), magnitudes_of(expected)) << layout;
  }
}

TEST(Fp8, ResumesWithTheSameBits) {
  if (world().size() != 1) return;  // the state is the same on every grid
  TrainingRunConfig config = config_of(delayed);
  config.dtype = DType::bf16;
  TrainingRun first(world(), config, {});
  for (int i = 0; i < 2; ++i) first.step();
  const auto restore = [&](TrainingRun& next, const Attributes& attributes) {
    const auto from = first.trainer.state_tensors(), to = next.trainer.state_tensors();
    for (std::size_t i = 0; i < from.size(); ++i) {
      std::memcpy(to[i].data.data(), from[i].data.data(), from[i].data.size_bytes());
    }
    next.trainer.restore(attributes);
  };
  const auto resume = [&](const Attributes& attributes) {
    TrainingRun next(world(), config, {});
    restore(next, attributes);
    return next.step().loss();
  };
  const auto attributes_without = [&](const std::string& start) {
    Attributes::Texts texts = first.trainer.state_attributes().texts();
    std::erase_if(texts, [&](const auto& text) { return text.first.starts_with(start); });
    return Attributes(texts);
  };
  const Attributes none = attributes_without("state.fp8_amax.");
  const double resumed = resume(first.trainer.state_attributes()), measured = resume(none);
  // The first layer was not rounded when this was saved, as with first_layers 1.
  const double resumed_without_a_layer = resume(attributes_without("state.fp8_amax.0"));
  // The run goes back to a step before products in FP8.
  TrainingRun rewound(world(), config, {});
  for (int i = 0; i < 2; ++i) rewound.step();
  restore(rewound, none);
  const double expected = first.step().loss();
  EXPECT_EQ(resumed, expected);
  EXPECT_NE(measured, expected);  // an update that only measures
  EXPECT_NEAR(measured, expected, 0.01 * expected);
  EXPECT_EQ(resumed_without_a_layer, measured);
  EXPECT_EQ(rewound.step().loss(), measured);
}

TEST(Fp8, DoesNotHideInfiniteNumbers) {
  if (world().size() != 1) return;
  TrainingRun run(world(), config_of(delayed), {});
  for (int i = 0; i < 2; ++i) run.step();
  run.gpt.parameters().at("h.0.mlp.fc.weight").value.as<double>()[5] = std::numeric_limits<double>::infinity();
  EXPECT_THROW(run.step(), NumericalError);
}

}  // namespace
}  // namespace trireme::test

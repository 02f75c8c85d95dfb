// Models with experts that begin with the weights of a dense model.
#include "src/train/upcycling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/checkpoint/load.hpp"
#include "src/checkpoint/save.hpp"
#include "tests/fakes/memory_store.hpp"
#include "tests/support/message_of.hpp"
#include "tests/train/expert_runs.hpp"

namespace trireme::train {
namespace {

using model::ExpertConfig;
using model::ModelConfig;
using test::Layout;
using test::TrainingRun;
using test::TrainingRunConfig;

/// A checkpoint of a dense model after a step.
struct DenseModel {
  explicit DenseModel(const ModelConfig& model) {
    config.steps = 2;
    config.init_scale = 8;
    config.model = model;
    config.model.max_positions = config.s;
    TrainingRun before(alone, config, {}), dense(alone, config, {});
    before.step();
    checkpoint::save(store, alone, {1, {}, {}}, before.trainer.state_tensors(OptimizerState::left_out));
    load(dense, dense.trainer.state_tensors(OptimizerState::left_out));
    loss = dense.step().lm_loss;
  }
  void load(TrainingRun& run, const std::vector<checkpoint::StateTensor>& tensors) {
    Communicator& world = run.gpt.world();
    checkpoint::load(*checkpoint::open_checkpoint(store, world), world, tensors, checkpoint::ExtraTensors::leave);
  }
  /// A run on all ranks that begins with these weights, with experts of the form `experts`.
  std::unique_ptr<TrainingRun> upcycled(const ExpertConfig& experts, std::int64_t granularity, const Layout& layout) {
    TrainingRunConfig changed = config;
    changed.model.experts = experts;
    Upcycling upcycling(changed.model, granularity);
    EXPECT_EQ(attributes_of(upcycling.dense_form()).texts(), attributes_of(config.model).texts());
    auto run = std::make_unique<TrainingRun>(test::world(), changed, layout);
    model::Initialisation initial{.layers = 2, .scale = 8};
    initial.router_repeats = granularity;
    model::initialise(*run->backend, run->gpt.parameters().parameters(), initial);
    run->trainer.start();
    const auto tensors = upcycling.tensors(run->trainer.state_tensors(OptimizerState::left_out));
    load(*run, tensors);
    upcycling.scale(tensors);
    run->trainer.restore(run->trainer.state_attributes());
    return run;
  }

  SelfCommunicator alone;
  TrainingRunConfig config;
  checkpoint::MemoryStore store;
  double loss = 0;  ///< loss of its next step
};

// The weights of the chosen experts, all copies of one block, sum to 1.
TEST(Experts, UpcycledFromADenseModelBeginWithItsForward) {
  DenseModel dense(config_with({}, true));
  for (const ExpertConfig& form :
       {ExpertConfig{.count = 4, .layers = "01", .z_coefficient = 0.1},
        ExpertConfig{.count = 4, .per_token = 3, .score = RouterScore::sigmoid, .router_bias = true}}) {
    std::vector<Layout> half = half_of(layouts(test::world().size()), form.router_bias);
    half.push_back({});
    for (const Layout& layout : half) {
      SCOPED_TRACE(testing::Message() << layout);
      EXPECT_NEAR(dense.upcycled(form, 1, layout)->step().lm_loss, dense.loss, 1e-12 * dense.loss);
    }
  }
}

// Squared ReLU is homogeneous of degree 2: factors of both matrices multiply the block.
TEST(Experts, UpcycledInPartsBeginWithTheDenseForward) {
  ModelConfig config = config_with({}, false);
  config.activation = Activation::squared_relu;
  DenseModel dense(config);
  std::vector<Layout> few = layouts(test::world().size());
  few.resize(std::min<std::size_t>(few.size(), 6));
  few.push_back({});
  for (const Layout& layout : few) {
    SCOPED_TRACE(testing::Message() << layout);
    EXPECT_NEAR(dense.upcycled({.count = 8, .per_token = 4, .ffn_hidden = 12}, 2, layout)->step().lm_loss, dense.loss,
                1e-12 * dense.loss);
  }
}

// Megatron Core's weights, element by element: of a gate and its products, with a softmax over all experts.
TEST(Experts, UpcycledPartsHaveMegatronsWeights) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  DenseModel dense(config_with({}, true));
  TrainingRun before(dense.alone, dense.config, {});
  dense.load(before, before.trainer.state_tensors(OptimizerState::left_out));
  before.trainer.restore(before.trainer.state_attributes());
  const auto run = dense.upcycled({.count = 6, .per_token = 3, .ffn_hidden = 8, .pre_softmax = true}, 3, {});
  const auto value_of = [](TrainingRun& of, const std::string& name) {
    return of.gpt.parameters().at(name).value.as<double>();
  };
  const std::int64_t f = 8, h = 32, full = 24;
  const double factor = std::cbrt(6 * 3 / 3.0);
  const double* const fc = value_of(before, "h.1.mlp.fc.weight");
  const double* const proj = value_of(before, "h.1.mlp.proj.weight");
  const double* const router = value_of(*run, "h.1.mlp.router.weight");
  for (std::int64_t e = 0; e < 6; ++e) {
    const std::string name = fmt::format("h.1.mlp.experts.{}.", e);
    const double* const own_fc = value_of(*run, name + "fc.weight");
    const double* const own_proj = value_of(*run, name + "proj.weight");
    for (std::int64_t i = 0; i < f * h; ++i) {
      const std::int64_t row = e % 3 * f + i / h, column = i % h;
      EXPECT_DOUBLE_EQ(own_fc[i], factor * fc[row * h + column]);
      EXPECT_DOUBLE_EQ(own_fc[f * h + i], factor * fc[(full + row) * h + column]);
      EXPECT_DOUBLE_EQ(own_proj[column * f + i / h], factor * proj[column * full + row]);
    }
    for (std::int64_t c = 0; c < h; ++c) EXPECT_EQ(router[e * h + c], router[e / 3 * 3 * h + c]);
  }
  EXPECT_NE(router[0], router[3 * h]);
}

TEST(Experts, AreUpcycledOnlyFromBlocksLikeThem) {
  const auto refusal = [](const ExpertConfig& experts, std::int64_t granularity = 1) {
    return test::message_of<ConfigError>([&] { Upcycling(config_with(experts, true), granularity); });
  };
  EXPECT_THAT(refusal({}), testing::HasSubstr("give <num_experts>"));
  EXPECT_THAT(refusal({.count = 4, .ffn_hidden = 12}),
              testing::HasSubstr("of width <ffn_hidden_size> 24: give <moe_ffn_hidden_size> 24, not 12"));
  EXPECT_THAT(refusal({.count = 4, .layers = "01"}, 2), testing::HasSubstr("give <moe_ffn_hidden_size> 12, not 24"));
  EXPECT_THAT(refusal({.count = 4, .per_token = 3}, 2), testing::HasSubstr("must divide <num_experts> 4 and"));
  EXPECT_THAT(refusal({.count = 4, .shared_hidden = 8}), testing::HasSubstr("no weights for a shared expert"));
  EXPECT_EQ(Upcycling(config_with({.count = 4}, true), 2).dense_form().ffn_hidden, 48);
}

}  // namespace
}  // namespace trireme::train

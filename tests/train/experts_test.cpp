// Layers with experts: gradients, capacity, loads, and the same run on every grid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/fakes/slow_communicator.hpp"
#include "tests/support/finite_difference.hpp"
#include "tests/support/message_of.hpp"
#include "tests/train/expert_runs.hpp"

namespace trireme::train {
namespace {

using model::BalanceLoss;
using model::ExpertConfig;
using model::ModelConfig;
using test::Layout;
using test::TrainingRun;
using test::TrainingRunConfig;

/// The loss of a micro-batch and the balance losses, whose gradients `rig` then holds.
double objective(Rig& rig, const std::vector<model::MicroBatch>& batches) {
  const ExpertConfig& experts = rig.gpt.config().experts;
  rig.gpt.run(batches, {.backward = true,
                        .limits_experts = true,
                        .router_jitter = experts.jitter_eps,
                        .loss_gradient = 1.0 / 32,
                        .mean_gradient = 0.5});
  double sum = 1.0 / 32 * rig.gpt.take_global_loss_sums().tokens;
  for (const model::ExpertLoad& load : rig.gpt.take_expert_loads()) {
    double coefficient = 0;
    for (const model::BalanceTerm& term : experts.balance) coefficient += term.coefficient;
    sum += 0.5 * (coefficient * load.balance + experts.z_coefficient * load.z);
  }
  return sum;
}

TEST(Experts, GradientsAreTheDerivativesOfTheLosses) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  const ExpertConfig forms[] = {
      {.count = 4, .balance = {{.coefficient = 0.5}}, .z_coefficient = 0.1},
      {.count = 4, .balance = {{.coefficient = 0.5}}, .jitter_eps = 0.5},
      {.count = 4, .per_token = 1, .layers = "01", .pre_softmax = true, .balance = {{BalanceLoss::sequence, 0.5}}},
      {.count = 8,
       .per_token = 4,
       .ffn_hidden = 16,
       .shared_hidden = 8,
       .score = RouterScore::sigmoid,
       .scaling = 2,
       .groups = 4,
       .groups_per_token = 2,
       .balance = {{.coefficient = 0.5}},
       .z_coefficient = 0.1},
      {.count = 4, .balance = {{BalanceLoss::global, 0.5}}},
      {.count = 4,
       .balance = {{BalanceLoss::sequence, 0.5}, {BalanceLoss::global, 0.3}, {BalanceLoss::micro_batch, 0.2}}},
      {.count = 4, .balance = {{BalanceLoss::none}}, .capacity_factor = 0.6},
      {.count = 4, .balance = {{BalanceLoss::none}}, .capacity_factor = 0.6, .drop_by_position = true}};
  for (const ExpertConfig& form : forms) {
    for (const bool gated : {true, false}) {
      const ModelConfig config = config_with(form, gated);
      Rig rig(layout_of(DType::fp64, 16, 2), config, 0.3);
      if (form.balances_by(BalanceLoss::global)) rig.gpt.stage().layers().set_balance_loads({{1, {7, 1, 0, 24}}});
      BatchLoader loader = loader_of(rig, 2);
      const std::vector<model::MicroBatch> batches = loader.load(*formula_samples(config), {{0, 0}, {1, 1}});
      for (const char* place : {"h.1.mlp.router.weight", "h.1.mlp.experts.0.fc.weight", "h.1.mlp.experts.3.proj.weight",
                                "h.0.attn.qkv.weight", "h.1.mlp.shared.fc.weight"}) {
        const std::string name = place;
        const parallel::Parameter* const parameter = rig.gpt.parameters().find(name);
        if (parameter == nullptr) continue;
        objective(rig, batches);
        auto* values = parameter->value.as<double>();
        std::vector<double> x, gradient;
        std::vector<std::int64_t> places;
        for (std::int64_t i = 0; i < parameter->value.numel(); i += parameter->value.numel() / 5) {
          places.push_back(i);
          x.push_back(values[i]);
          gradient.push_back(parameter->gradient.as<double>()[i]);
        }
        test::expect_derivative(
            x, gradient,
            [&] {
              for (std::size_t i = 0; i < x.size(); ++i) values[places[i]] = x[i];
              return objective(rig, batches);
            },
            name);
        for (std::size_t i = 0; i < x.size(); ++i) values[places[i]] = x[i];
      }
    }
  }
}

// As in Megatron Core, where each loss adds its gradient by itself.
TEST(Experts, BalanceLossesAddUp) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  using enum BalanceLoss;
  struct Result {
    double loss = 0;
    std::vector<double> gradient;
  };
  const auto result_of = [](const std::vector<model::BalanceTerm>& balance) {
    Rig rig(layout_of(DType::fp64, 16, 3), config_with({.count = 4, .layers = "01", .balance = balance}, true), 0.3);
    if (rig.gpt.config().experts.balances_by(global)) {
      rig.gpt.stage().layers().set_balance_loads({{1, {7, 1, 0, 24}}});
    }
    BatchLoader loader = loader_of(rig, 3);
    rig.gpt.run(loader.load(*formula_samples(rig.gpt.config()), {{0, 0}, {1, 1}, {2, 2}}),
                {.backward = true, .limits_experts = true, .loss_gradient = 0, .mean_gradient = 1});
    const TensorView gradient = rig.gpt.parameters().at("h.1.mlp.router.weight").gradient;
    const auto* values = gradient.as<double>();
    return Result{rig.gpt.take_expert_loads().front().balance, {values, values + gradient.numel()}};
  };
  const Result all = result_of({{micro_batch, 0.2}, {sequence, 0.5}, {global, 0.3}});
  const Result apart[] = {result_of({{micro_batch, 0.2}}), result_of({{sequence, 0.5}}), result_of({{global, 0.3}})};
  EXPECT_NEAR(all.loss, 0.2 * apart[0].loss + 0.5 * apart[1].loss + 0.3 * apart[2].loss, 1e-12);
  for (std::size_t i = 0; i < all.gradient.size(); ++i) {
    EXPECT_NEAR(all.gradient[i], apart[0].gradient[i] + apart[1].gradient[i] + apart[2].gradient[i], 1e-12);
  }
}

TEST(Experts, LoadsCountEveryChoice) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  for (const double factor : {0.0, 0.5}) {
    Rig rig(
        layout_of(DType::fp64, 16, 4),
        config_with({.count = 4, .layers = "01", .balance = {{.coefficient = 1}}, .capacity_factor = factor}, true));
    BatchLoader loader = loader_of(rig, 4);
    objective(rig, loader.load(*formula_samples(rig.gpt.config()), {{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
    const std::vector<model::ExpertLoad> loads = rig.gpt.take_expert_loads();
    EXPECT_TRUE(loads.empty() || loads.front().tokens.empty() || loads.front().tokens[0] == 0) << "taken twice";
    const model::ExpertLoad load = [&] {
      rig.gpt.run(loader.load(*formula_samples(rig.gpt.config()), {{0, 0}, {1, 1}, {2, 2}, {3, 3}}),
                  {.backward = true, .limits_experts = true});
      return rig.gpt.take_expert_loads().front();
    }();
    EXPECT_EQ(load.layer, 1);
    double kept = 0;
    for (const double tokens : load.tokens) {
      kept += tokens;
      EXPECT_LE(tokens, factor > 0 ? 16 * 4 * 2 / 4 * factor : 16 * 4);
    }
    EXPECT_EQ(std::accumulate(load.chosen.begin(), load.chosen.end(), 0.0), 16 * 4 * 2);
    EXPECT_EQ(kept + load.dropped, 16 * 4 * 2);
    EXPECT_EQ(load.dropped > 0, factor > 0);
    EXPECT_NEAR(load.balance, 1, 0.2);  // small weights: nearly even scores
    EXPECT_NEAR(load.entropy, std::log(4), 0.2);
    EXPECT_LT(load.entropy, std::log(4));
  }
}

/// Loss of a first step in bf16, with logits of the given type.
double loss_in_bf16(bool fp32_router, double std) {
  const ModelConfig config =
      config_with({.count = 8, .per_token = 4, .pre_softmax = true, .fp32_router = fp32_router}, true);
  Rig rig(layout_of(DType::bf16, 16, 4), config, std);
  BatchLoader loader(*rig.backend, parallel::SequenceShard::of(16), 4, 1, DType::bf16, sample_fields(config));
  rig.gpt.run(loader.load(*formula_samples(config), {{0, 0}, {1, 1}, {2, 2}, {3, 3}}),
              {.backward = true, .limits_experts = true});
  return rig.gpt.take_global_loss_sums().tokens;
}

TEST(Experts, RoutersInFp32DoNotRoundLogitsTo16Bits) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  EXPECT_NE(loss_in_bf16(true, 0.3), loss_in_bf16(false, 0.3));
  EXPECT_NEAR(loss_in_bf16(true, 0.02), loss_in_bf16(false, 0.02), 0.5);
}

TEST(Experts, EveryGridComputesTheRunOfOneRank) {
  const ExpertConfig forms[] = {
      {.count = 4, .balance = {{.coefficient = 0.1}}, .z_coefficient = 0.01, .jitter_eps = 0.3},
      {.count = 4,
       .per_token = 1,
       .ffn_hidden = 40,
       .shared_hidden = 16,
       .layers = "01",
       .pre_softmax = true,
       .balance = {{BalanceLoss::sequence, 0.1}, {BalanceLoss::global, 0.2}, {BalanceLoss::micro_batch, 0.3}}},
      {.count = 4, .balance = {{BalanceLoss::global, 0.3}}},
      {.count = 4,
       .score = RouterScore::sigmoid,
       .groups = 2,
       .groups_per_token = 1,
       .router_bias = true,
       .balance = {{BalanceLoss::none}},
       .bias_update_rate = 0.05}};
  for (const ExpertConfig& form : forms) {
    TrainingRunConfig config;
    config.steps = 3;
    config.init_scale = 8;
    config.model = config_with(form, true);
    config.model.max_positions = config.s;
    config.model.hidden_dropout = 0.1;
    const test::Curve expected = test::curves_of_one_rank(test::world(), {config}, "b 2").front();
    for (const Layout& grid : layouts(test::world().size())) {
      const Layout layout = form.shared_hidden > 0 ? grid.with("overlap-shared") : grid;
      SCOPED_TRACE(testing::Message() << layout);
      const test::Curve actual = test::training_curve(test::world(), config, layout);
      const test::RunTolerance tolerance = test::tolerance(DType::fp64, test::Comparison::other_order);
      test::expect_close(actual, expected, tolerance);
      test::expect_close(actual.router_entropy, expected.router_entropy, tolerance.grad_norm);
    }
  }
}

// With loads n of the last global batch the loss is the sum over experts of E n_e / sum(n) times their mean score. Here
// all scores are 1/4, and all tokens choose experts 0 and 1.
TEST(Experts, BalanceByTheLoadsOfTheLastGlobalBatch) {
  if (test::world().size() > 1) GTEST_SKIP() << "runs on one rank";
  TrainingRunConfig config = test::tiny_run();
  config.model.linear_bias = false;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.model.experts = {.count = 4, .balance = {{BalanceLoss::global, 0.3}}};
  config.batch = 4;
  config.steps = 4;
  TrainingRun run(test::world(), config, {}), resumed(test::world(), config, {}), forgetful(test::world(), config, {});
  run.backend->elementwise().fill(run.backend->compute_stream(), 0,
                                  run.gpt.parameters().at("h.0.mlp.router.weight").value);
  const LayerLoad first = run.step().experts.front();
  EXPECT_NEAR(first.balance_loss, 1, 1e-12) << "even loads at first";
  EXPECT_NEAR(first.router_entropy, std::log(4), 1e-12);
  Attributes state = run.trainer.state_attributes();
  EXPECT_EQ(state.texts().at("state.expert_loads.0"), "32 32 0 0");
  for (TrainingRun* other : {&resumed, &forgetful}) {
    test::copy_state(run, *other);
    other->trainer.restore(state);
    Attributes::Texts texts = state.texts();
    texts.erase("state.expert_loads.0");
    state = Attributes(texts);
  }
  const TrainRecord second = run.step(), again = resumed.step(), differs = forgetful.step();
  EXPECT_EQ(again.experts.front().balance_loss, second.experts.front().balance_loss);
  EXPECT_EQ(again.grad_norm, second.grad_norm);
  EXPECT_NE(differs.grad_norm, second.grad_norm);
  EXPECT_NEAR(differs.experts.front().balance_loss, 1, 1e-12) << "even loads";
}

/// A run in bf16 whose experts have a shared block.
TrainingRunConfig with_shared_expert(bool gated) {
  TrainingRunConfig config;
  config.dtype = DType::bf16;
  config.steps = 2;
  config.model =
      config_with({.count = 4, .ffn_hidden = 40, .shared_hidden = 16, .balance = {{.coefficient = 0.1}}}, gated);
  config.model.max_positions = config.s;
  return config;
}

/// Grids for models with a shared expert, with both routes.
std::vector<Layout> few_layouts() {
  const int ranks = test::world().size();
  if (ranks == 1) return {Layout()};
  return with_both_routes({fmt::format("ep {}", ranks), fmt::format("tp 2 ep {} sp", ranks / 2),
                           fmt::format("pp 2 ep {} zero-bubble", ranks / 2)});
}

TEST(Experts, RecomputedAloneHaveTheSameBitsInLessMemory) {
  for (const bool gated : {true, false}) {
    const TrainingRunConfig config = with_shared_expert(gated);
    for (const Layout& layout : half_of(few_layouts(), gated)) {
      SCOPED_TRACE(testing::Message() << layout);
      const test::Curve expected = test::training_curve(test::world(), config, layout);
      const std::size_t bytes = test::activation_bytes(test::world(), config, layout);
      const Layout recomputed = layout.with("experts");
      test::expect_same_bits(test::training_curve(test::world(), config, recomputed.with("offload 2")), expected);
      EXPECT_LT(test::activation_bytes(test::world(), config, recomputed), bytes);
    }
  }
}

// Collectives of the group begin only at their waits: tokens that are read earlier are not there.
TEST(Experts, SharedBlockThatOverlapsTheTokensHasTheSameBits) {
  const TrainingRunConfig config = with_shared_expert(true);
  const auto delay = [](parallel::GridCommunicators& groups) {
    if (groups.expert == nullptr) return;
    groups.expert =
        std::make_unique<test::SlowCommunicator>(std::move(groups.expert), test::Link{}, test::OperationStart::at_wait);
  };
  for (const Layout& layout : few_layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRun expected(test::world(), config, layout);
    TrainingRun overlapped(test::world(), config, layout.with("overlap-shared"), delay);
    for (std::int64_t i = 0; i < config.steps; ++i) {
      const TrainRecord a = overlapped.step(), b = expected.step();
      EXPECT_EQ(a.lm_loss, b.lm_loss);
      EXPECT_EQ(a.grad_norm, b.grad_norm);
    }
  }
}

TEST(Experts, CapacityIsThatOfAMicroBatchOnEveryGrid) {
  for (const bool by_position : {false, true}) {
    TrainingRunConfig config;
    config.steps = 2;
    config.init_scale = 8;
    config.model = config_with(
        {.count = 4, .balance = {{BalanceLoss::none}}, .capacity_factor = 0.75, .drop_by_position = by_position}, true);
    config.model.max_positions = config.s;
    const test::Curve expected = test::curves_of_one_rank(test::world(), {config}, "b 2").front();
    for (const Layout& layout : half_of(layouts(test::world().size()), by_position)) {
      SCOPED_TRACE(testing::Message() << layout);
      // Rows without a token change nothing.
      test::expect_close(test::training_curve(test::world(), config, layout.with(by_position ? "pad" : "")), expected,
                         test::tolerance(DType::fp64, test::Comparison::other_order));
    }
  }
}

TEST(Experts, PaddedHaveTheRowsOfTheirCapacityOnEveryGrid) {
  TrainingRunConfig config;
  config.steps = 1;
  config.model = config_with({.count = 4, .capacity_factor = 1.25}, true);
  config.model.max_positions = config.s;
  const int ranks = test::world().size();
  std::vector<Layout> all = ranks == 1 ? std::vector<Layout>{Layout("b 2")} : layouts(ranks);
  for (const Layout& layout : all) test::activation_bytes(test::world(), config, layout.with("pad"));
}

// Rows of the ranks' experts are others in every micro-batch, in tensors with blocks of memory of their own.
TEST(Experts, NumbersOfTokensThatVaryTakeLittleMoreMemory) {
  if (test::world().size() != 2) GTEST_SKIP() << "runs on two ranks";
  TrainingRunConfig config;
  config.model.hidden = 128;
  config.model.ffn_hidden = 512;
  config.model.linear_bias = false;
  config.model.max_positions = config.s = 256;
  config.model.experts = {.count = 4};
  config.batch = 2;
  config.steps = 8;
  for (const char* layout : {"ep 2", "ep 2 exchange"}) {
    TrainingRun run(test::world(), config, layout);
    run.step();
    const train::ParallelModel::RunningMemory first = run.gpt.running_memory();
    for (int step = 1; step < config.steps; ++step) run.step();
    const train::ParallelModel::RunningMemory last = run.gpt.running_memory();
    EXPECT_LE(static_cast<double>(last.activations), 1.25 * static_cast<double>(first.activations)) << layout;
    EXPECT_LE(static_cast<double>(last.work), 1.5 * static_cast<double>(first.work)) << layout;
  }
}

TEST(Experts, GraphsNeedPaddedRows) {
  ExecutionConfig execution = layout_of(DType::fp32, 16, 1);
  const auto refusal = [&](double capacity_factor) {
    return test::message_of<ConfigError>(
        [&] { validate(execution, config_with({.count = 4, .capacity_factor = capacity_factor}, true), 1, false); });
  };
  execution.cuda_graphs = true;
  EXPECT_THAT(refusal(1),
              testing::HasSubstr("Give <moe_expert_capacity_factor> and <moe_pad_expert_input_to_capacity>"));
  execution.parallel.pad_experts = true;
  EXPECT_THAT(refusal(0), testing::HasSubstr("<moe_pad_expert_input_to_capacity> needs <moe_expert_capacity_factor>"));
  EXPECT_EQ(refusal(1), "nothing was thrown");
  execution.cuda_graphs = false;
  execution.variable_lengths = true;
  EXPECT_THAT(refusal(1), testing::HasSubstr("<variable_seq_lengths> would change the training"));
}

}  // namespace
}  // namespace trireme::train

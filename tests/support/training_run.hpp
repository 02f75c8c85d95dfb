#pragma once

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "src/model/initialisation.hpp"
#include "src/train/memory_estimate.hpp"
#include "src/train/trainer.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/bert_samples.hpp"
#include "tests/support/layout.hpp"
#include "tests/support/tolerance.hpp"

// Full training runs of a small model on tokens given by a formula, on any layout. They test that the layout does not
// change the run.

namespace trireme::test {

/// Configuration of a run. By default the small model of these tests, with dropout: 4 layers, 8 heads.
struct TrainingRunConfig {
  model::ModelConfig model = {
      .layers = 4, .hidden = 64, .heads = 8, .ffn_hidden = 256, .max_positions = 32, .vocabulary = 1003};
  std::int64_t s = 32;
  std::int64_t batch = 8;
  std::optional<train::BatchGrowth> ramp_up{};
  bool by_samples = false;  ///< the learning rate depends on samples; always so with a ramp
  bool decrease_batch = false;
  train::LossAverage loss_average = train::LossAverage::tokens;
  train::DocumentOptions documents{};
  model::InitMethod init_method = model::InitMethod::normal;
  double init_scale = 1;
  double init_std = 0.02;
  DType dtype = DType::fp64;
  std::shared_ptr<data::TokenStore> corpus{};  ///< in place of `synthetic_tokens`, shuffled by `seed`
  std::int64_t seed = 1234;
  std::int64_t bert_rows = 64;  ///< samples of a BERT before they repeat
  std::int64_t steps = 5;
  double clip_grad = 1;
  optim::OptimizerOptions optimizer{};
  optim::LossScalerOptions loss_scale{};
  train::GuardOptions guards{};
  parallel::Fp8Options fp8{};
  std::optional<train::TrainOptions> train{};  ///< in place of those that the other members make
};

/// A run of one tiny layer, for tests of the code around a model.
inline TrainingRunConfig tiny_run() {
  return {.model = {.layers = 1, .hidden = 16, .heads = 2, .ffn_hidden = 32, .max_positions = 32, .vocabulary = 64},
          .s = 8,
          .batch = 2};
}

/// Losses, gradient norms and entropies of routers, if any, step by step.
struct Curve {
  std::vector<double> loss;
  std::vector<double> grad_norm;
  std::vector<double> router_entropy{};
};

/// Ids given by a formula: id i = splitmix64(fnv1a("tokens"), i) mod V. A document ends after each id that 7 divides.
inline std::shared_ptr<data::TokenStore> synthetic_tokens(const TrainingRunConfig& config) {
  std::vector<std::vector<std::int32_t>> documents(1);
  for (std::int64_t i = 0; i < config.steps * config.batch * config.s + 1; ++i) {
    const auto id = static_cast<std::int32_t>(splitmix64(fnv1a("tokens"), static_cast<std::uint64_t>(i)) %
                                              static_cast<std::uint64_t>(config.model.vocabulary));
    documents.back().push_back(id);
    if (id % 7 == 0) documents.emplace_back();
  }
  data::CorpusInfo info;
  info.tokenizer = "formula";
  info.vocabulary_size = config.model.vocabulary;
  return std::make_shared<data::MemoryTokenStore>(info, documents);
}

inline train::TrainOptions train_options(const TrainingRunConfig& config) {
  if (config.train) return *config.train;
  train::TrainOptions options;
  options.global_batch_size = config.batch;
  options.lr_schedule.style = optim::LrDecayStyle::cosine;
  options.lr_schedule.maximum = 1e-3;
  options.lr_schedule.minimum = 1e-4;
  options.lr_schedule.warmup = 5;
  options.lr_schedule.decay = 20;
  if (config.by_samples || config.ramp_up) {
    options.lr_schedule.by_samples = true;
    options.lr_schedule.warmup *= config.batch;
    options.lr_schedule.decay *= config.batch;
  }
  options.ramp_up = config.ramp_up;
  options.decrease_batch_size = config.decrease_batch;
  options.loss_average = config.loss_average;
  options.documents = config.documents;
  options.optimizer = config.optimizer;
  options.clip_grad = config.clip_grad;
  options.loss_scale = config.loss_scale;
  options.guards = config.guards;
  return options;
}

/// Device of a run: a backend and, if its memory is not the host's, communicators for it.
struct DeviceChoice {
  std::function<std::unique_ptr<Backend>()> make = [] { return make_backend(BackendChoice::cpu, 1); };
  DeviceTransport transport = DeviceTransport::nccl;
};

/// A run on the ranks of `world`, with initial weights, before its first step. Collective.
struct TrainingRun {
  /// `change` may replace communicators of the grid.
  TrainingRun(Communicator& world, const TrainingRunConfig& config, const Layout& layout,
              const std::function<void(parallel::GridCommunicators&)>& change = {}, const DeviceChoice& device = {})
      : data(make_data(config)),
        backend(device.make()),
        grid(world.size(), layout.tensor, layout.pipeline, layout.context, layout.data, layout.expert,
             layout.expert_tensor),
        device_world(make_device_world(*backend, world, device.transport)),
        communicators(make_communicators(grid, device_world ? *device_world : world, change)),
        gpt(*backend, world, grid, communicators, config.model, layout_options(config, layout)),
        trainer(gpt, train_options(config)) {
    model::initialise(*backend, gpt.parameters().parameters(),
                      {config.init_method, 1234, config.model.layers, config.init_scale, config.init_std});
    trainer.start();
  }
  train::TrainRecord step(bool followed = false) { return trainer.step(*data.train, followed); }

  static std::unique_ptr<Communicator> make_device_world(Backend& backend, Communicator& world,
                                                         DeviceTransport transport) {
    auto* devices = dynamic_cast<DeviceCommunicators*>(&backend);
    return devices == nullptr ? nullptr : devices->make_world(world.split(0, world.rank(), "world"), transport);
  }
  static parallel::GridCommunicators make_communicators(
      const parallel::ProcessGrid& grid, Communicator& world,
      const std::function<void(parallel::GridCommunicators&)>& change) {
    parallel::GridCommunicators communicators = parallel::make_grid_communicators(grid, world);
    if (change) change(communicators);
    return communicators;
  }

  static data::SampleSplits make_data(const TrainingRunConfig& config) {
    if (!config.model.is_bert() && config.model.predicts_tokens())
      return data::make_gpt_data({{config.corpus ? config.corpus : synthetic_tokens(config), 1.0}},
                                 data_options(config));
    data::SampleSplits splits;
    splits.train = std::make_unique<FormulaBertSamples>(config.model, config.s, config.bert_rows);
    return splits;
  }
  static data::GptDataOptions data_options(const TrainingRunConfig& config) {
    data::GptDataOptions options;
    options.sequence_length = config.s;
    options.sampling = config.corpus ? data::Sampling::shuffled : data::Sampling::sequential;
    options.seed = config.seed;
    if (config.corpus) options.split_fractions = {1, 0, 0};
    if (config.documents.eod_mask_loss) options.document_ends = data::DocumentEnds::unlabelled;
    options.budgets = {{config.steps * config.batch, 0, 0}};
    return options;
  }
  static train::ExecutionConfig layout_options(const TrainingRunConfig& config, const Layout& layout) {
    train::ExecutionConfig options = layout.options;
    options.dtype = config.dtype;
    options.sequence_length = config.s;
    options.fp8 = config.fp8;
    return options;
  }

  data::SampleSplits data;
  std::unique_ptr<Backend> backend;
  parallel::ProcessGrid grid;
  std::unique_ptr<Communicator> device_world;
  parallel::GridCommunicators communicators;
  train::ParallelModel gpt;
  train::Trainer trainer;
};

/// Copies the tensors of a run's checkpoint to another run in the same layout, in host memory.
inline void copy_state(TrainingRun& from, TrainingRun& to) {
  const std::vector<checkpoint::StateTensor> source = from.trainer.state_tensors();
  const std::vector<checkpoint::StateTensor> target = to.trainer.state_tensors();
  ASSERT_EQ(source.size(), target.size());
  for (std::size_t i = 0; i < target.size(); ++i) {
    ASSERT_EQ(source[i].data.size_bytes(), target[i].data.size_bytes());
    std::memcpy(target[i].data.data(), source[i].data.data(), source[i].data.size_bytes());
  }
}

/// Trains on the ranks of `world`. Collective.
inline Curve training_curve(Communicator& world, const TrainingRunConfig& config, const Layout& layout,
                            const DeviceChoice& device = {}) {
  TrainingRun run(world, config, layout, {}, device);
  Curve curve;
  for (std::int64_t i = 0; i < config.steps; ++i) {
    const train::TrainRecord record = run.step();
    curve.loss.push_back(record.loss());
    curve.grad_norm.push_back(record.grad_norm);
    if (!record.experts.empty()) curve.router_entropy.push_back(train::summary_of(record.experts).router_entropy);
  }
  return curve;
}

/// Expects every step's figure within `tolerance` of `expected`, relatively.
inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i] / expected[i], 1, tolerance) << "step " << i + 1;
  }
}
inline void expect_close(const Curve& actual, const Curve& expected, RunTolerance tolerance) {
  expect_close(actual.loss, expected.loss, tolerance.loss);
  expect_close(actual.grad_norm, expected.grad_norm, tolerance.grad_norm);
}

/// Runs of one rank in `layout`. The ranks divide them, and share the results. Collective.
inline std::vector<Curve> curves_of_one_rank(Communicator& world, const std::vector<TrainingRunConfig>& configs,
                                             const Layout& layout = {}) {
  const auto root_of = [&](std::size_t i) { return static_cast<int>(i) % world.size(); };
  std::vector<Curve> curves(configs.size());
  collectively(world, [&] {
    SelfCommunicator alone;
    for (std::size_t i = 0; i < configs.size(); ++i) {
      if (root_of(i) == world.rank()) curves[i] = training_curve(alone, configs[i], layout);
    }
  });
  for (std::size_t i = 0; i < configs.size(); ++i) {
    for (std::vector<double> Curve::*figures : {&Curve::loss, &Curve::grad_norm, &Curve::router_entropy}) {
      std::vector<double>& own = curves[i].*figures;
      std::istringstream text(broadcast_text(world, fmt::format("{:.17g}", fmt::join(own, " ")), root_of(i)));
      own.clear();
      for (std::string number; text >> number;) own.push_back(std::stod(number));
    }
  }
  return curves;
}

/// Expects every layout to compute the run of one rank, except for the order of sums, and returns that run. Collective.
inline Curve expect_run_of_one_rank(Communicator& world, const TrainingRunConfig& config,
                                    const std::vector<Layout>& layouts) {
  const Curve expected = curves_of_one_rank(world, {config}).front();
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(testing::Message() << name_of(config.dtype) << ", " << layout);
    expect_close(training_curve(world, config, layout), expected, tolerance(config.dtype, Comparison::other_order));
  }
  return expected;
}

inline void expect_same_bits(const Curve& actual, const Curve& expected) {
  EXPECT_EQ(actual.loss, expected.loss);
  EXPECT_EQ(actual.grad_norm, expected.grad_norm);
}

/// Expects two runs to have the same bits, in each of these types. Collective.
inline void expect_same_bits_twice(Communicator& world, TrainingRunConfig config, const Layout& layout,
                                   const std::vector<DType>& dtypes) {
  for (const DType dtype : dtypes) {
    config.dtype = dtype;
    SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << layout);
    expect_same_bits(training_curve(world, config, layout), training_curve(world, config, layout));
  }
}

/// Predicted memory of this rank.
inline train::MemoryEstimate predicted_memory(const TrainingRun& run, const TrainingRunConfig& config, int rank) {
  return train::estimate_memory(*run.backend, config.model, run.gpt.execution(), train_options(config), run.grid, rank);
}

/// Returns the bytes of this rank's activations in a step. Expects its memory in a step and an evaluation to be as
/// predicted. Collective.
inline std::size_t activation_bytes(Communicator& world, const TrainingRunConfig& config, const Layout& layout) {
  TrainingRun run(world, config, layout);
  run.step();
  run.trainer.evaluate(*run.data.train, 0, 1);
  const train::MemoryEstimate predicted = predicted_memory(run, config, world.rank());
  const train::ParallelModel::RunningMemory memory = run.gpt.running_memory();
  EXPECT_EQ(memory.activations, predicted.activations) << layout;
  EXPECT_EQ(memory.work, predicted.work) << layout;
  EXPECT_EQ(memory.messages, predicted.messages) << layout;
  EXPECT_EQ(memory.host, predicted.host_activations) << layout;
  EXPECT_EQ(run.backend->peak_allocated_bytes(), predicted.total() + predicted.host()) << layout;
  return run.gpt.stage().activations().peak_bytes();
}

}  // namespace trireme::test

// Whole training runs on every grid that the ranks of this test allow, against figures from PyTorch and against one
// another: the grid does not change the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/comm/self_communicator.hpp"
#include "src/data/gpt_data.hpp"
#include "src/data/memory_token_store.hpp"
#include "src/model/initialisation.hpp"
#include "src/train/trainer.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::train {
namespace {

using nlohmann::json;

struct Layout {
  int tensor = 1;
  int pipeline = 1;
  std::int64_t micro_batch = 1;
  parallel::ScheduleKind schedule = parallel::ScheduleKind::one_forward_one_backward;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << "TP " << layout.tensor << " x PP " << layout.pipeline << ", micro-batch " << layout.micro_batch
             << (layout.schedule == parallel::ScheduleKind::gpipe ? ", GPipe" : "");
}

struct RunConfig {
  model::GptConfig model;
  std::int64_t s = 32;
  std::int64_t batch = 4;
  double init_scale = 1;
  model::InitMethod init_method = model::InitMethod::hashed_uniform;
  DType dtype = DType::fp64;
  std::int64_t steps = 20;
};

struct Curve {
  std::vector<double> loss;
  std::vector<double> grad_norm;
};

json read_fixture() {
  std::ifstream file(std::string(TRIREME_FIXTURES) + "/synthetic_runs.json");
  return json::parse(file);
}

RunConfig config_of(const json& run) {
  const json& shape = run["config"];
  RunConfig config;
  config.model.layers = shape["L"];
  config.model.hidden = shape["H"];
  config.model.heads = shape["heads"];
  config.model.ffn_hidden = 4 * config.model.hidden;
  config.model.vocabulary = shape["V"];
  config.model.max_positions = shape["T"];
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  config.s = shape["T"];
  config.batch = shape["B"];
  config.init_scale = shape.value("scale", 1.0);
  return config;
}

/// Ids given by a formula: id i = splitmix64(fnv1a("tokens"), i) mod V.
std::shared_ptr<data::TokenStore> synthetic_tokens(const RunConfig& config) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < config.steps * config.batch * config.s + 1; ++i) {
    ids.push_back(static_cast<std::int32_t>(splitmix64(fnv1a("tokens"), static_cast<std::uint64_t>(i)) %
                                            static_cast<std::uint64_t>(config.model.vocabulary)));
  }
  data::CorpusInfo info;
  info.tokenizer = "formula";
  info.vocabulary_size = config.model.vocabulary;
  return std::make_shared<data::MemoryTokenStore>(info, std::vector<std::vector<std::int32_t>>{ids});
}

TrainOptions oracle_options(const RunConfig& config) {
  TrainOptions options;
  options.global_batch_size = config.batch;
  options.train_iterations = config.steps;
  options.lr_schedule.style = optim::LrDecayStyle::cosine;
  options.lr_schedule.maximum = 1e-3;
  options.lr_schedule.minimum = 1e-4;
  options.lr_schedule.warmup_updates = 5;
  options.lr_schedule.decay_updates = 20;
  options.adamw.weight_decay = 0.01;
  return options;
}

Curve train(Communicator& world, const RunConfig& config, const Layout& layout) {
  data::GptDataOptions data_options;
  data_options.sequence_length = config.s;
  data_options.sampling = data::Sampling::sequential;
  data_options.budgets = {{config.steps * config.batch, 0, 0}};
  const data::GptData data = data::make_gpt_data({{synthetic_tokens(config), 1.0}}, data_options);

  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const parallel::ProcessGrid grid(world.size(), layout.tensor, layout.pipeline);
  parallel::GridCommunicators communicators = parallel::make_grid_communicators(grid, world);
  LayoutOptions layout_options;
  layout_options.dtype = config.dtype;
  layout_options.sequence_length = config.s;
  layout_options.micro_batch_size = layout.micro_batch;
  layout_options.schedule = layout.schedule;
  ParallelGpt gpt(*backend, world, grid, communicators, config.model, layout_options);
  model::initialise(*backend, gpt.parameters().parameters(),
                    {config.init_method, 1234, config.model.layers, config.init_scale, 0.02});
  Trainer trainer(gpt, oracle_options(config));
  Curve curve;
  for (std::int64_t i = 0; i < config.steps; ++i) {
    const TrainRecord record = trainer.step(*data.train);
    curve.loss.push_back(record.lm_loss);
    curve.grad_norm.push_back(record.grad_norm);
  }
  return curve;
}

/// Every grid of `ranks` ranks that the model's heads and layers and the global batch allow: with the largest
/// micro-batch in 1F1B and, in pipelines, the smallest one in GPipe; on up to two ranks every micro-batch size with
/// every schedule.
std::vector<Layout> layouts(int ranks, const RunConfig& config) {
  using parallel::ScheduleKind;
  std::vector<Layout> list;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    for (int pipeline = 1; tensor * pipeline <= ranks; ++pipeline) {
      if (ranks % (tensor * pipeline) != 0 || config.model.heads % tensor != 0 || config.model.layers % pipeline != 0) {
        continue;
      }
      const int data = ranks / (tensor * pipeline);
      std::vector<std::int64_t> micro_batches;
      for (std::int64_t b = 1; b * data <= config.batch; b *= 2) micro_batches.push_back(b);
      for (const std::int64_t b : micro_batches) {
        if (ranks <= 2 || b == micro_batches.back()) list.push_back({tensor, pipeline, b});
        if (pipeline > 1 && (ranks <= 2 || b == 1)) list.push_back({tensor, pipeline, b, ScheduleKind::gpipe});
      }
    }
  }
  return list;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i] / expected[i], 1, tolerance) << "step " << i + 1;
  }
}

TEST(SyntheticRuns, EveryGridReproducesPyTorchInFp64) {
  Communicator& world = test::world();
  const json fixture = read_fixture();
  for (const char* name : {"synthetic", "synthetic_hot"}) {
    const json& run = fixture["runs"][std::string(name) + "_fp64"];
    const RunConfig config = config_of(run);
    EXPECT_EQ(model::parameter_count(config.model), run["parameters"]);
    for (const Layout& layout : layouts(world.size(), config)) {
      SCOPED_TRACE(testing::Message() << name << ": " << layout);
      const Curve curve = train(world, config, layout);
      expect_close(curve.loss, run["loss"], 1e-9);
      expect_close(curve.grad_norm, run["grad_norm"], 1e-9);
    }
  }
}

TEST(SyntheticRuns, Fp32StaysWithinItsTolerance) {
  Communicator& world = test::world();
  const json fixture = read_fixture();
  for (const char* name : {"synthetic", "synthetic_hot"}) {
    const bool hot = std::string(name) == "synthetic_hot";
    const json& run = fixture["runs"][std::string(name) + "_fp64"];
    RunConfig config = config_of(run);
    config.dtype = DType::fp32;
    const Layout layout = layouts(world.size(), config).back();
    SCOPED_TRACE(testing::Message() << name << ": " << layout);
    const Curve curve = train(world, config, layout);
    expect_close(curve.loss, run["loss"], hot ? 2e-5 : 1e-5);
    expect_close(curve.grad_norm, run["grad_norm"], hot ? 2e-4 : 1e-5);
  }
}

/// With dropout and the counter-based initial weights: no outside figures, so one rank alone is the reference.
RunConfig dropout_config() {
  RunConfig config = config_of(read_fixture()["runs"]["synthetic_hot_fp64"]);
  config.model.hidden_dropout = 0.1;
  config.model.attention_dropout = 0.1;
  config.init_method = model::InitMethod::normal;
  config.init_scale = 1;
  config.steps = 5;
  return config;
}

TEST(Dropout, EveryGridComputesTheLossesOfOneRank) {
  Communicator& world = test::world();
  const RunConfig config = dropout_config();
  SelfCommunicator alone;
  const Curve reference = train(alone, config, {});
  for (const Layout& layout : layouts(world.size(), config)) {
    SCOPED_TRACE(testing::Message() << layout);
    const Curve curve = train(world, config, layout);
    expect_close(curve.loss, reference.loss, 1e-10);
    expect_close(curve.grad_norm, reference.grad_norm, 1e-10);
  }
}

TEST(Dropout, TheSameGridTwiceGivesTheSameBits) {
  Communicator& world = test::world();
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    RunConfig config = dropout_config();
    config.dtype = dtype;
    config.steps = 4;
    const Layout layout = layouts(world.size(), config).back();
    const Curve first = train(world, config, layout);
    const Curve second = train(world, config, layout);
    EXPECT_EQ(first.loss, second.loss) << layout;
    EXPECT_EQ(first.grad_norm, second.grad_norm) << layout;
  }
}

TEST(Dropout, ChangesTheRun) {
  Communicator& world = test::world();
  RunConfig config = dropout_config();
  config.steps = 1;
  const Curve with = train(world, config, layouts(world.size(), config).front());
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  const Curve without = train(world, config, layouts(world.size(), config).front());
  EXPECT_GT(std::abs(with.loss[0] - without.loss[0]), 1e-4);
}

}  // namespace
}  // namespace trireme::train

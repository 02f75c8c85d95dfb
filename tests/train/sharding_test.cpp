// The distributed optimizer, gradient shards and overlapped communication of data ranks: none of them changes the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/load.hpp"
#include "src/checkpoint/save.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/train/memory_estimate.hpp"
#include "tests/fakes/slow_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

constexpr const char* all_shardings[] = {"", "zero1", "zero2"};

/// A sharding with many buckets that divide layers, and its communication overlapped.
std::string overlapped(const std::string& sharding) {
  return sharding + " bucket 3000 overlap" + (sharding.empty() ? "" : " gather");
}

/// Grids of `ranks` ranks with two data ranks or more.
std::vector<Layout> grids(int ranks) {
  if (ranks == 2) return {Layout()};
  return {Layout(), "tp 2 sp", "pp 2"};
}

TEST(Sharding, MatchesTheRunOfOneRank) {
  TrainingRunConfig config;
  config.clip_grad = 0.5;
  config.steps = 3;
  std::vector<Layout> layouts;
  for (const std::string sharding : all_shardings) {
    for (const Layout& grid : grids(world().size())) {
      layouts.push_back(grid.with(sharding));
      layouts.push_back(grid.with(overlapped(sharding)));
    }
  }
  const Curve reference = expect_run_of_one_rank(world(), config, layouts);
  EXPECT_THAT(reference.grad_norm, testing::Each(testing::Gt(config.clip_grad)));
}

TEST(Sharding, MatchesTheRunOfOneRankWithSgd) {
  TrainingRunConfig config;
  config.optimizer.kind = optim::OptimizerKind::sgd;
  config.steps = 3;
  expect_run_of_one_rank(world(), config, {overlapped("zero1")});
}

TEST(Sharding, WorksWithEverySchedule) {
  if (world().size() < 4) GTEST_SKIP() << "needs two stages of two data ranks";
  TrainingRunConfig config;
  config.steps = 2;
  std::vector<Layout> layouts;
  for (const char* sharding : all_shardings) {
    for (const char* schedule : {"gpipe", "interleaved vpp 2", "zero-bubble"}) {
      layouts.push_back(Layout("pp 2").with(overlapped(sharding)).with(schedule));
    }
  }
  expect_run_of_one_rank(world(), config, layouts);
}

TEST(Sharding, OverlapDoesNotChangeTheBits) {
  Communicator& ranks = world();
  const TrainingRunConfig config{.dtype = DType::bf16, .steps = 2};
  for (const char* sharding : all_shardings) {
    for (const Layout& grid : grids(ranks.size())) {
      const Layout layout = grid.with("b 2").with(sharding);
      SCOPED_TRACE(testing::Message() << layout);
      expect_same_bits(training_curve(ranks, config, layout.with("bucket 3000")),
                       training_curve(ranks, config, grid.with("b 2").with(overlapped(sharding))));
    }
  }
}

TEST(Sharding, NothingIsUsedBeforeItIsWaitedFor) {
  Communicator& ranks = world();
  for (const char* sharding : all_shardings) {
    for (const Layout& grid : grids(ranks.size())) {
      const Layout layout = grid.with(overlapped(sharding));
      SCOPED_TRACE(testing::Message() << layout);
      TrainingRun prompt(ranks, {}, layout);
      TrainingRun lazy(ranks, {}, layout, [](parallel::GridCommunicators& communicators) {
        communicators.gradient =
            std::make_unique<SlowCommunicator>(std::move(communicators.gradient), Link{}, OperationStart::at_wait);
      });
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(lazy.step().grad_norm, prompt.step().grad_norm);
        // An evaluation also needs the parameters in flight.
        EXPECT_EQ(lazy.trainer.evaluate(*lazy.data.train, 8 * i, 1)->loss,
                  prompt.trainer.evaluate(*prompt.data.train, 8 * i, 1)->loss);
      }
    }
  }
}

TEST(Sharding, GradientsOfSixteenBitsStayWithinTheirTolerance) {
  Communicator& ranks = world();
  const TrainingRunConfig config{.dtype = DType::bf16, .steps = 3};
  for (const char* sharding : {"", "zero1"}) {
    const Layout exact = grids(ranks.size()).back().with(overlapped(sharding)), layout = exact.with("rounded");
    const Curve reference = training_curve(ranks, config, exact);
    SCOPED_TRACE(testing::Message() << layout);
    const Curve curve = training_curve(ranks, config, layout);
    EXPECT_NE(curve.grad_norm, reference.grad_norm);
    expect_close(curve, reference, tolerance(config.dtype, Comparison::low_precision_gradients));
    expect_same_bits(curve, training_curve(ranks, config, layout));
  }
}

TEST(Sharding, AnOverflowOfFp16SkipsTheUpdateOnEveryRank) {
  Communicator& ranks = world();
  SelfCommunicator alone;
  TrainingRunConfig config;
  config.dtype = DType::fp16;
  config.loss_scale.dynamic = true;
  config.loss_scale.initial_scale = 67108864.0;
  config.loss_scale.hysteresis = 1;
  config.steps = 14;
  std::vector<train::TrainRecord> expected;
  TrainingRun reference(alone, config, {});
  for (std::int64_t i = 0; i < config.steps; ++i) expected.push_back(reference.step());
  EXPECT_TRUE(expected.front().skipped);
  EXPECT_FALSE(expected.back().skipped);

  for (const std::string sharding : all_shardings) {
    TrainingRun run(ranks, config, sharding + " b 2 bucket 3000 overlap");
    const TensorView values = run.gpt.parameters().values();
    for (const train::TrainRecord& one : expected) {
      const std::vector<std::byte> before(values.data(), values.data() + values.size_bytes());
      const train::TrainRecord record = run.step();
      EXPECT_EQ(record.skipped, one.skipped) << "step " << one.iteration;
      EXPECT_NEAR(record.lm_loss / one.lm_loss, 1, tolerance(config.dtype, Comparison::other_order).loss);
      const bool changed = !std::equal(before.begin(), before.end(), values.data());
      EXPECT_EQ(changed, !record.skipped);
    }
  }
}

/// Elements of all parameters of a rank, without padding between them.
std::int64_t parameter_elements(const train::ParallelModel& gpt) {
  std::int64_t sum = 0;
  for (const parallel::Parameter& parameter : const_cast<train::ParallelModel&>(gpt).parameters().parameters()) {
    sum += parameter.stored_numel();
  }
  return sum;
}

/// Expects that a run allocates the predicted bytes before its first step, except those of the first micro-batch.
void expect_allocated(const TrainingRun& run, const train::MemoryEstimate& estimate) {
  EXPECT_EQ(run.backend->allocated_bytes(),
            estimate.total() - estimate.activations - estimate.work - estimate.messages);
}

TEST(Sharding, MemoryIsAsPredictedOnEveryGrid) {
  Communicator& ranks = world();
  for (const char* sharding : all_shardings) {
    for (const Layout& grid : grids(ranks.size())) {
      TrainingRunConfig config;
      config.dtype = DType::bf16;
      const Layout layout = grid.with(overlapped(sharding));
      SCOPED_TRACE(testing::Message() << layout);
      TrainingRun run(ranks, config, layout);
      expect_allocated(run, predicted_memory(run, config, ranks.rank()));
    }
  }
}

TEST(Sharding, BytesAParameterAreThoseOfTheFormulas) {
  Communicator& ranks = world();
  const double d = ranks.size();
  struct Case {
    DType dtype;
    Layout layout;
    double bytes;
    optim::OptimizerOptions optimizer = {};
  };
  const Case cases[] = {{DType::bf16, "", 18},
                        {DType::bf16, "zero1", 6 + 12 / d},
                        {DType::bf16, "zero2", 2 + 16 / d},
                        {DType::bf16, "rounded", 20},
                        {DType::fp16, "zero1 rounded", 4 + 16 / d},
                        {DType::fp32, "", 16},
                        {DType::fp32, "zero1", 8 + 8 / d},
                        {DType::fp32, "zero2", 4 + 12 / d},
                        {DType::fp64, "zero1", 16 + 16 / d},
                        {DType::bf16, "zero1", 6 + 8 / d, {.kind = optim::OptimizerKind::sgd}},
                        {DType::bf16, "zero1", 6 + 8 / d, {.adamw = {0.9, 0.95, 1e-8, DType::bf16, DType::bf16}}},
                        {DType::fp32, "", 14, {.adamw = {0.9, 0.95, 1e-8, DType::bf16, DType::fp32}}}};
  for (const Case& one : cases) {
    TrainingRunConfig config;
    config.dtype = one.dtype;
    config.optimizer = one.optimizer;
    SCOPED_TRACE(testing::Message() << name_of(one.dtype) << ", " << one.layout);
    TrainingRun run(ranks, config, one.layout);
    const train::MemoryEstimate estimate = predicted_memory(run, config, ranks.rank());
    const double elements = static_cast<double>(parameter_elements(run.gpt));
    const double held = static_cast<double>(estimate.parameters + estimate.gradients + estimate.optimizer);
    EXPECT_NEAR(held / elements, one.bytes, 0.01 * one.bytes);
    expect_allocated(run, estimate);
    const parallel::DataParallelOptions& options = one.layout.options.parallel.data_parallel;
    if (options.sharding != parallel::DataSharding::optimizer_and_gradients && !options.low_precision_gradients) {
      EXPECT_EQ(estimate.gradient_work, 0u);
    }
  }
}

/// Folder of rank 0, shared with all ranks, with a run's checkpoint in it.
class ShardedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    if (world().rank() == 0) directory_ = std::make_unique<TemporaryDirectory>();
    root_ = broadcast_text(world(), directory_ ? *directory_ / "run" : "", 0);
  }
  void TearDown() override { world().barrier(); }

  void save(Communicator& ranks, TrainingRun& run) {
    io::CheckpointStore store(root_);
    checkpoint::save(store, ranks, {run.trainer.progress().iteration, run.trainer.state_attributes(), {}},
                     run.trainer.state_tensors());
    ranks.barrier();
  }
  void load(Communicator& ranks, TrainingRun& run) {
    io::CheckpointStore store(root_);
    const auto step = checkpoint::open_checkpoint(store, ranks);
    checkpoint::load(*step, ranks, run.trainer.state_tensors());
    run.trainer.restore(checkpoint::read_description(*step).attributes);
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  std::string root_;
};

TEST_F(ShardedCheckpoint, TheSameGridResumesBitForBit) {
  Communicator& ranks = world();
  struct Case {
    DType dtype;
    const char* sharding;
    optim::OptimizerOptions optimizer = {};
  };
  const optim::AdamWOptions sixteen_bits{0.9, 0.95, 1e-8, DType::bf16, DType::bf16};
  for (const Case& one : {Case{DType::fp32, "zero1"},
                          {DType::bf16, "zero2"},
                          {DType::bf16, "zero1", {.adamw = sixteen_bits}},
                          {DType::bf16, "zero1", {.kind = optim::OptimizerKind::sgd}}}) {
    TrainingRunConfig config;
    config.dtype = one.dtype;
    config.optimizer = one.optimizer;
    const Layout layout = Layout(ranks.size() > 2 ? "tp 2 sp" : "").with(overlapped(one.sharding));
    SCOPED_TRACE(testing::Message() << name_of(one.dtype) << ", " << name_of(one.optimizer.kind) << ", moments in "
                                    << name_of(one.optimizer.adamw.exp_avg_dtype) << ", " << layout);
    TrainingRun run(ranks, config, layout);
    for (int i = 0; i < 2; ++i) run.step();
    save(ranks, run);
    TrainingRun resumed(ranks, config, layout);
    load(ranks, resumed);
    for (int i = 0; i < 2; ++i) {
      const train::TrainRecord expected = run.step();
      const train::TrainRecord actual = resumed.step();
      EXPECT_EQ(actual.iteration, expected.iteration);
      EXPECT_EQ(actual.lm_loss, expected.lm_loss);
      EXPECT_EQ(actual.grad_norm, expected.grad_norm);
    }
  }
}

TEST_F(ShardedCheckpoint, AnyOtherLayoutResumes) {
  Communicator& ranks = world();
  TrainingRunConfig config;
  config.batch = 12;
  config.steps = 4;
  SelfCommunicator alone;
  const Curve reference = training_curve(alone, config, {});
  // Two data ranks begin.
  if (const auto two = ranks.split(ranks.rank() < 2 ? 0 : -1, ranks.rank(), "two")) {
    TrainingRun run(*two, config, "zero1");
    for (int i = 0; i < 2; ++i) run.step();
    save(*two, run);
  }
  ranks.barrier();
  const RunTolerance close = tolerance(config.dtype, Comparison::other_order);
  const auto expect_resumed = [&](Communicator& some, const Layout& layout) {
    SCOPED_TRACE(testing::Message() << some.size() << " ranks, " << layout);
    TrainingRun run(some, config, layout);
    load(some, run);
    for (std::size_t i = 2; i < 4; ++i) {
      const train::TrainRecord record = run.step();
      EXPECT_NEAR(record.lm_loss / reference.loss[i], 1, close.loss);
      EXPECT_NEAR(record.grad_norm / reference.grad_norm[i], 1, close.grad_norm);
    }
  };
  expect_resumed(ranks, "b 3 " + overlapped("zero2"));
  expect_resumed(ranks, "tp 2 sp " + overlapped("zero1"));
  expect_resumed(ranks, "pp 2 " + overlapped("zero1"));
  expect_resumed(alone, {});
  if (ranks.size() < 4) return;
  // Three data ranks, whose shards begin at other offsets.
  if (const auto three = ranks.split(ranks.rank() < 3 ? 0 : -1, ranks.rank(), "three")) {
    expect_resumed(*three, "b 2 " + overlapped("zero1"));
  }
}

}  // namespace
}  // namespace trireme::test

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

using parallel::DataParallelOptions;
using parallel::DataSharding;
using parallel::ScheduleKind;

constexpr DataSharding all_shardings[] = {DataSharding::none, DataSharding::optimizer,
                                          DataSharding::optimizer_and_gradients};

Layout sharded_layout(int tensor, int pipeline, std::int64_t micro_batch, const DataParallelOptions& data_parallel) {
  Layout layout{tensor, pipeline, {}};
  layout.options.micro_batch_size = micro_batch;
  layout.options.parallel.data_parallel = data_parallel;
  layout.options.parallel.sequence_parallel = tensor > 1;
  return layout;
}

DataParallelOptions overlapped(DataSharding sharding) {
  DataParallelOptions options{sharding};
  options.bucket_elements = 3000;
  options.overlap_reduce = true;
  options.overlap_gather = sharding != DataSharding::none;
  return options;
}

/// Grids of `ranks` ranks with two data ranks or more.
std::vector<std::pair<int, int>> grids(int ranks) {
  if (ranks == 2) return {{1, 1}};
  return {{1, 1}, {2, 1}, {1, 2}};
}

TEST(Sharding, MatchesTheRunOfOneRank) {
  TrainingRunConfig config;
  config.clip_grad = 0.5;
  config.steps = 3;
  std::vector<Layout> layouts;
  for (const DataSharding sharding : all_shardings) {
    // One bucket without overlap, and many that divide layers with it.
    for (const DataParallelOptions& form : {DataParallelOptions{sharding}, overlapped(sharding)}) {
      for (const auto& [tensor, pipeline] : grids(world().size())) {
        layouts.push_back(sharded_layout(tensor, pipeline, 1, form));
      }
    }
  }
  const Curve reference = expect_run_of_one_rank(world(), config, layouts);
  EXPECT_THAT(reference.grad_norm, testing::Each(testing::Gt(config.clip_grad)));
}

TEST(Sharding, MatchesTheRunOfOneRankWithSgd) {
  TrainingRunConfig config;
  config.optimizer.kind = optim::OptimizerKind::sgd;
  config.steps = 3;
  expect_run_of_one_rank(world(), config, {sharded_layout(1, 1, 1, overlapped(DataSharding::optimizer))});
}

TEST(Sharding, WorksWithEverySchedule) {
  if (world().size() < 4) GTEST_SKIP() << "needs two stages of two data ranks";
  TrainingRunConfig config;
  config.steps = 2;
  std::vector<Layout> layouts;
  for (const DataSharding sharding : all_shardings) {
    for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::interleaved, ScheduleKind::zero_bubble}) {
      Layout& layout = layouts.emplace_back(sharded_layout(1, 2, 1, overlapped(sharding)));
      layout.options.parallel.schedule = schedule;
      if (schedule == ScheduleKind::interleaved) layout.options.parallel.pipeline.chunks = 2;
    }
  }
  expect_run_of_one_rank(world(), config, layouts);
}

TEST(Sharding, OverlapDoesNotChangeTheBits) {
  Communicator& ranks = world();
  const TrainingRunConfig config{.dtype = DType::bf16, .steps = 2};
  for (const DataSharding sharding : all_shardings) {
    for (const auto& [tensor, pipeline] : grids(ranks.size())) {
      DataParallelOptions options{sharding};
      options.bucket_elements = 3000;
      const Layout with_overlap = sharded_layout(tensor, pipeline, 2, overlapped(sharding));
      SCOPED_TRACE(testing::Message() << with_overlap);
      const Curve first = training_curve(ranks, config, sharded_layout(tensor, pipeline, 2, options));
      const Curve second = training_curve(ranks, config, with_overlap);
      expect_same_bits(first, second);
    }
  }
}

TEST(Sharding, NothingIsUsedBeforeItIsWaitedFor) {
  Communicator& ranks = world();
  for (const DataSharding sharding : all_shardings) {
    for (const auto& [tensor, pipeline] : grids(ranks.size())) {
      const Layout layout = sharded_layout(tensor, pipeline, 1, overlapped(sharding));
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
  const auto [tensor, pipeline] = grids(ranks.size()).back();
  for (const DataSharding sharding : {DataSharding::none, DataSharding::optimizer}) {
    DataParallelOptions options = overlapped(sharding);
    const Curve reference = training_curve(ranks, config, sharded_layout(tensor, pipeline, 1, options));
    options.low_precision_gradients = true;
    const Layout layout = sharded_layout(tensor, pipeline, 1, options);
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

  for (const DataSharding sharding : all_shardings) {
    DataParallelOptions options{sharding};
    options.bucket_elements = 3000;
    options.overlap_reduce = true;
    TrainingRun run(ranks, config, sharded_layout(1, 1, 2, options));
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
  for (const DataSharding sharding : all_shardings) {
    for (const auto& [tensor, pipeline] : grids(ranks.size())) {
      TrainingRunConfig config;
      config.dtype = DType::bf16;
      const Layout layout = sharded_layout(tensor, pipeline, 1, overlapped(sharding));
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
    DataParallelOptions options;
    double bytes;
    optim::OptimizerOptions optimizer = {};
  };
  const DataParallelOptions plain;
  const DataParallelOptions zero_1{DataSharding::optimizer};
  const DataParallelOptions zero_2{DataSharding::optimizer_and_gradients};
  DataParallelOptions rounded = plain;
  rounded.low_precision_gradients = true;
  DataParallelOptions rounded_1 = zero_1;
  rounded_1.low_precision_gradients = true;
  const Case cases[] = {{DType::bf16, plain, 18},
                        {DType::bf16, zero_1, 6 + 12 / d},
                        {DType::bf16, zero_2, 2 + 16 / d},
                        {DType::bf16, rounded, 20},
                        {DType::fp16, rounded_1, 4 + 16 / d},
                        {DType::fp32, plain, 16},
                        {DType::fp32, zero_1, 8 + 8 / d},
                        {DType::fp32, zero_2, 4 + 12 / d},
                        {DType::fp64, zero_1, 16 + 16 / d},
                        {DType::bf16, zero_1, 6 + 8 / d, {.kind = optim::OptimizerKind::sgd}},
                        {DType::bf16, zero_1, 6 + 8 / d, {.adamw = {0.9, 0.95, 1e-8, DType::bf16, DType::bf16}}},
                        {DType::fp32, plain, 14, {.adamw = {0.9, 0.95, 1e-8, DType::bf16, DType::fp32}}}};
  for (const Case& one : cases) {
    TrainingRunConfig config;
    config.dtype = one.dtype;
    config.optimizer = one.optimizer;
    const Layout layout = sharded_layout(1, 1, 1, one.options);
    SCOPED_TRACE(testing::Message() << name_of(one.dtype) << ", " << layout);
    TrainingRun run(ranks, config, layout);
    const train::MemoryEstimate estimate = predicted_memory(run, config, ranks.rank());
    const double elements = static_cast<double>(parameter_elements(run.gpt));
    const double held = static_cast<double>(estimate.parameters + estimate.gradients + estimate.optimizer);
    EXPECT_NEAR(held / elements, one.bytes, 0.01 * one.bytes);
    expect_allocated(run, estimate);
    if (one.options.sharding != DataSharding::optimizer_and_gradients && !one.options.low_precision_gradients) {
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
    DataSharding sharding;
    optim::OptimizerOptions optimizer = {};
  };
  const optim::AdamWOptions sixteen_bits{0.9, 0.95, 1e-8, DType::bf16, DType::bf16};
  for (const Case& one : {Case{DType::fp32, DataSharding::optimizer},
                          {DType::bf16, DataSharding::optimizer_and_gradients},
                          {DType::bf16, DataSharding::optimizer, {.adamw = sixteen_bits}},
                          {DType::bf16, DataSharding::optimizer, {.kind = optim::OptimizerKind::sgd}}}) {
    TrainingRunConfig config;
    config.dtype = one.dtype;
    config.optimizer = one.optimizer;
    const Layout layout = sharded_layout(ranks.size() > 2 ? 2 : 1, 1, 1, overlapped(one.sharding));
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
    TrainingRun run(*two, config, sharded_layout(1, 1, 1, {DataSharding::optimizer}));
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
  expect_resumed(ranks, sharded_layout(1, 1, 3, overlapped(DataSharding::optimizer_and_gradients)));
  expect_resumed(ranks, sharded_layout(2, 1, 1, overlapped(DataSharding::optimizer)));
  expect_resumed(ranks, sharded_layout(1, 2, 1, overlapped(DataSharding::optimizer)));
  expect_resumed(alone, {});
  if (ranks.size() < 4) return;
  // Three data ranks, whose shards begin at other offsets.
  if (const auto three = ranks.split(ranks.rank() < 3 ? 0 : -1, ranks.rank(), "three")) {
    expect_resumed(*three, sharded_layout(1, 1, 2, overlapped(DataSharding::optimizer)));
  }
}

}  // namespace
}  // namespace trireme::test

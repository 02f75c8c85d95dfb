// Grids of ranks against one rank: the grid does not change the run. The ranks share one GPU and communicate through
// the host, or have one each and NCCL.
#include <array>

#include "src/comm/self_communicator.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::test {
namespace {

using GpuSharedByRanks = GpuBackendTest;

/// Needs a GPU for each rank.
class GpuGrid : public GpuBackendTest {
 protected:
  void SetUp() override {
    GpuBackendTest::SetUp();
    const int ranks = world().size();
    if (!IsSkipped() && !have_gpus(ranks)) GTEST_SKIP() << "needs a GPU for each of " << ranks << " ranks";
  }
};
// Grids whose shape on two ranks and on four is the same are tested on one of the two, to save time.
#define TRIREME_ONLY_ON_RANKS(count) \
  if (world().size() != (count)) GTEST_SKIP() << "on " << (count) << " ranks"

/// Data parallelism with the optimizer's state in shards, and all its communication overlapped with computation.
const std::string sharded_data = "zero1 overlap gather bucket 5000";

/// All tested grids of this many ranks, with options that change their communication.
std::vector<Layout> layouts(int ranks) {
  if (ranks == 2) {
    return {"tp 2 row-chunks 2 nccl-ub", "tp 2 sp b 2", "pp 2 overlap-p2p", sharded_data + " nccl-ub", "cp 2"};
  }
  return {"tp 4 sp b 2 row-chunks 2", "tp 2 pp 2", sharded_data};
}

/// Computes the run of one rank on rank 0, and gives it to all: on fakes the ranks share few cores. Collective.
Curve curve_of_one_rank(const TrainingRunConfig& config, const BackendOptions& options) {
  const std::vector<double> zeros(static_cast<std::size_t>(config.steps));
  Curve curve{zeros, zeros, {}};
  if (world().rank() == 0) {
    SelfCommunicator alone("world");
    curve = training_curve(alone, config, {}, gpu_device(DeviceTransport::nccl, options));
  }
  ImmediateStream stream;
  for (std::vector<double>* figures : {&curve.loss, &curve.grad_norm}) {
    world().broadcast(stream, TensorView(figures->data(), {config.steps}), 0).wait(stream);
  }
  return curve;
}

void expect_the_losses_of_one_rank(TrainingRunConfig config, const std::vector<Layout>& layouts,
                                   DeviceTransport transport, const BackendOptions& options) {
  if (is_real_gpu() && !ranks_share_gpus()) config.steps = 10;
  const Curve expected = curve_of_one_rank(config, options);
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout);
    expect_close(training_curve(world(), config, layout, slow_communication(transport, options)), expected,
                 tolerance(config.dtype, Comparison::other_backend));
  }
  slow_new_streams(false);
}

/// Schedules on a pipeline of all ranks, for a model of four layers: interleaved ones have a layer for each chunk.
std::vector<Layout> schedules(int ranks) {
  if (ranks == 2) {
    return {"pp 2 1f1b overlap-p2p", "pp 2 gpipe overlap-p2p", "pp 2 zero-bubble overlap-p2p",
            "pp 2 interleaved vpp 2 overlap-p2p"};
  }
  return {"pp 4 1f1b overlap-p2p", "pp 4 gpipe overlap-p2p", "pp 4 zero-bubble overlap-p2p"};
}

/// A GPU for each rank.
BackendOptions own_gpu() { return {.world_rank = world().rank(), .local_rank = world().rank()}; }

TEST_F(GpuSharedByRanks, ComputesTheLossesOfOneRank) {
  expect_the_losses_of_one_rank(small_run(), layouts(world().size()), DeviceTransport::staged,
                                {.world_rank = world().rank()});
}

TEST_F(GpuGrid, ComputesTheLossesOfOneRank) {
  expect_the_losses_of_one_rank(small_run(), layouts(world().size()), DeviceTransport::nccl, own_gpu());
}

TEST_F(GpuGrid, ProductsInFp8ComputeTheLossesOfOneRank) {
  TrainingRunConfig config = small_run();
  config.fp8 = {.used = true};
  config.steps = 3;  // the first only measures
  const std::vector<Layout> list = world().size() == 2
                                       ? std::vector<Layout>{"tp 2 row-chunks 2 b 2", "tp 2 sp b 2", "pp 2 zero-bubble"}
                                       : std::vector<Layout>{"tp 2 pp 2", "tp 2 " + sharded_data};
  expect_the_losses_of_one_rank(config, list, DeviceTransport::nccl, own_gpu());
}

TEST_F(GpuGrid, MessagesOfEveryScheduleArriveThroughNccl) {
  TrainingRunConfig config = small_run();
  config.model.layers = 4;
  config.s = 8;
  config.steps = 4;  // receives are posted ahead in the fourth
  std::vector<Layout> list = schedules(world().size());
  list.push_back(fmt::format("cp {}", world().size()));  // keys and values round a ring
  if (world().size() == 4) list.push_back("pp 2 cp 2");
  expect_the_losses_of_one_rank(config, list, DeviceTransport::nccl, own_gpu());
  if (world().size() == 2) return;
  // From the last stage to the first, past the others.
  config.model.layers = 2 * world().size();
  expect_the_losses_of_one_rank(config, {"pp 4 interleaved vpp 2 overlap-p2p"}, DeviceTransport::nccl, own_gpu());
}

TEST_F(GpuGrid, MuonSeesWholeMatricesThroughNccl) {
  TRIREME_ONLY_ON_RANKS(4);
  TrainingRunConfig config = small_run();
  config.optimizer.kind = optim::OptimizerKind::muon;
  config.optimizer.muon.newton_schulz.products = optim::NewtonSchulzProducts::full;  // bf16 hides other orders of sums
  expect_the_losses_of_one_rank(
      config, {"tp 4", sharded_data, "tp 2 " + sharded_data, "pp 2 " + sharded_data, "cp 2 " + sharded_data},
      DeviceTransport::nccl, own_gpu());
}

// The first updates overflow: then the ranks discard the iterations that they have begun.
TEST_F(GpuGrid, IterationsBegunAheadComputeTheSameBits) {
  TrainingRunConfig config = small_run();
  config.dtype = DType::fp16;
  config.loss_scale = {.dynamic = true, .initial_scale = 0x1p25, .hysteresis = 1};
  config.steps = 6;
  const auto records = [&](const Layout& layout, bool ahead) {
    BackendOptions options = own_gpu();
    options.deterministic = true;
    TrainingRun run(world(), config, layout, {}, slow_communication(DeviceTransport::nccl, options));
    std::vector<std::array<double, 4>> list;
    for (std::int64_t i = 1; i <= config.steps; ++i) {
      const train::TrainRecord record = run.step(ahead && i < config.steps);
      EXPECT_EQ(run.trainer.is_ahead(), ahead && i < config.steps && !record.skipped);
      list.push_back({record.skipped ? -1 : record.lm_loss, record.skipped ? -1 : record.grad_norm, record.loss_scale,
                      record.learning_rate});
    }
    slow_new_streams(false);
    return list;
  };
  std::vector<Layout> list = {"tp 2 pp 2"};
  if (world().size() == 2) list = {"tp 2 sp b 2", "pp 2 overlap-p2p", sharded_data};
  for (const Layout& layout : list) {
    SCOPED_TRACE(testing::Message() << layout);
    const auto expected = records(layout, false);
    EXPECT_EQ(expected.front()[0], -1);
    EXPECT_NE(expected.back()[0], -1);
    EXPECT_EQ(records(layout, true), expected);
  }
}

// The first step of a length loads kernels, for which CUDA may wait until nothing runs.
TEST_F(GpuGrid, NewLengthsDoNotWaitForTheGpuDuringPrepostedReceives) {
  TRIREME_ONLY_ON_RANKS(2);
  TrainingRunConfig config = small_run();
  config.model.family = model::ModelFamily::bert;
  config.model.layers = 4;
  config.s = config.model.max_positions = 24;
  const FormulaBertSamples full(config.model, config.s, 1), shorter(config.model, config.s, 4);
  const auto losses = [&](Communicator& ranks, const Layout& layout) {
    TrainingRun run(ranks, config, layout, {}, slow_communication(DeviceTransport::nccl, own_gpu()));
    std::vector<double> all;
    for (int step = 0; step < 6; ++step) {
      all.push_back(run.trainer.step(step < 4 ? full : shorter).lm_loss);
    }
    slow_new_streams(false);
    return all;
  };
  SelfCommunicator self("world");
  expect_close(losses(world(), "pp 2 variable-lengths overlap-p2p"), losses(self, "variable-lengths"),
               tolerance(config.dtype, Comparison::other_backend).loss);
}

// Numbers of tokens of an expert are new in many micro-batches, and their products load kernels.
TEST_F(GpuGrid, NewNumbersOfTokensOfExpertsDoNotWaitForTheGpuDuringPrepostedReceives) {
  TRIREME_ONLY_ON_RANKS(2);
  TrainingRunConfig config = small_run();
  config.model.linear_bias = false;
  config.model.experts = {.count = 4};
  config.s = config.model.max_positions = 240;
  config.steps = 6;  // receives would be posted ahead from the fourth on
  expect_the_losses_of_one_rank(config, {"pp 2 overlap-p2p"}, DeviceTransport::nccl, own_gpu());
}

TEST_F(GpuGrid, MemoryIsAsPredicted) {
  TRIREME_ONLY_ON_RANKS(2);
  TrainingRunConfig config = small_run();
  config.model.layers = 4;
  config.dtype = DType::bf16;
  config.steps = 1;
  std::vector<Layout> list = layouts(world().size());
  list.back() = "cp 2 zero2";
  for (const Layout& layout : list) {
    expect_predicted_memory(world(), config, layout, gpu_device(DeviceTransport::nccl, own_gpu()));
  }
  config.steps = 5;  // receives are posted ahead from the fourth on
  expect_predicted_memory(world(), config, "pp 2 overlap-p2p", gpu_device(DeviceTransport::nccl, own_gpu()));
}

/// Expects the same bits, with a GPU for each rank, of steps that run as graphs.
void expect_the_same_from_graphs(const TrainingRunConfig& config, const std::vector<Layout>& layouts) {
  BackendOptions options = own_gpu();
  options.deterministic = true;
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout);
    const Curve expected = training_curve(world(), config, layout, gpu_device(DeviceTransport::nccl, options));
    const Curve curve =
        training_curve(world(), config, layout.with("graphs"), slow_communication(DeviceTransport::nccl, options));
    slow_new_streams(false);
    expect_same_bits(curve, expected);
  }
}

TEST_F(GpuGrid, GraphsWithNcclInThemComputeTheSameBits) {
  TRIREME_ONLY_ON_RANKS(2);
  TrainingRunConfig config = small_run();
  config.model.layers = 1;
  config.batch = 6;  // each data rank has three micro-batches: plain, recorded, replayed
  expect_the_same_from_graphs(config, {"tp 2", "tp 2 sp row-chunks 2", "zero2", "cp 2"});
}

TEST_F(GpuGrid, GraphsOfPaddedExpertsComputeTheSameBits) {
  TRIREME_ONLY_ON_RANKS(2);
  TrainingRunConfig config = small_run();
  config.model.layers = 1;
  config.model.linear_bias = false;
  config.model.experts = {.count = 4,
                          .balance = {{model::BalanceLoss::global, 0.1}, {model::BalanceLoss::sequence, 0.1}},
                          .capacity_factor = 1.1};
  config.s = 8;
  config.batch = 6;  // at least three micro-batches: plain, recorded, replayed
  config.steps = 1;
  expect_the_same_from_graphs(config, {"ep 2 pad", "cp 2 ep 2 pad exchange", "tp 2 ep 2 etp 1 sp pad exchange"});
}

// Rows of the summarised tokens, and of all positions, come from the ranks that have them.
TEST_F(GpuGrid, GraphsOfTaskHeadsComputeTheSameBits) {
  TRIREME_ONLY_ON_RANKS(2);
  const std::vector<Layout> list = {"tp 2 sp", "cp 2"};
  for (const bool is_bert : {true, false}) {
    TrainingRunConfig config = small_run();
    config.model.family = is_bert ? model::ModelFamily::bert : model::ModelFamily::gpt;
    config.model.output = is_bert ? model::ModelOutput::spans : model::ModelOutput::classes;
    config.model.classes = 3;
    config.model.layers = 1;
    config.batch = 3;  // plain, recorded, replayed
    expect_the_losses_of_one_rank(config, list, DeviceTransport::nccl, own_gpu());
    expect_the_same_from_graphs(config, list);
  }
}

TEST_F(GpuGrid, GraphsBetweenOverlapsOfGradientsAndParametersComputeTheSameBits) {
  TRIREME_ONLY_ON_RANKS(4);
  TrainingRunConfig config = small_run();
  config.dtype = DType::bf16;
  config.model.layers = 2;
  // Five micro-batches for each data rank: the first, the last, and one each run directly, recorded, replayed.
  config.batch = 10;
  config.steps = 3;
  const std::string pipeline = "pp 2 " + sharded_data;
  expect_the_same_from_graphs(config, {pipeline, pipeline + " rounded", pipeline + " zero-bubble"});
}

TEST_F(GpuGrid, GraphsOfPipelineStagesComputeTheSameBits) {
  TRIREME_ONLY_ON_RANKS(2);
  TrainingRunConfig config = small_run();
  config.model.layers = 4;
  config.s = 8;
  config.steps = 3;  // GPipe has all micro-batches in flight: run directly, recorded, replayed
  std::vector<Layout> list = schedules(2);
  list.front() = list.front().with("uniform 1");
  expect_the_same_from_graphs(config, list);
}

}  // namespace
}  // namespace trireme::test

// When work has a GPU's multiprocessors, by the model of tests/fakes/timeline.hpp: its rules, and the overlap of
// products and collectives.
#include <gmock/gmock.h>

#include <algorithm>

#include "cuda/runtime/stream.hpp"
#include "src/backend/graphs.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/parallel/grid/grid_communicators.hpp"
#include "src/parallel/tensor/linear.hpp"
#include "src/tensor/trace_recorder.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/host_of_two.hpp"

namespace trireme::cuda {
namespace {

using fake_cuda::Demand;
using fake_cuda::Span;
using fake_cuda::Timeline;
using testing::HasSubstr;

constexpr int all = fake_cuda::multiprocessors;

const Span& find(const Timeline& timeline, const std::string& name) {
  const auto found = std::ranges::find_if(timeline, [&](const Span& span) { return span.name.starts_with(name); });
  if (found == timeline.end()) throw ShapeError("no work is called " + name);
  return *found;
}

class TimelineModel : public testing::Test {
 protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override { fake_cuda::run_all(); }
  void enqueue(CudaStream& stream, const std::string& name, const Demand& demand) {
    fake_cuda::enqueue(
        stream.handle(), name, [] {}, demand);
  }
  /// A collective concurrent with a product of 100 us. Both follow the same work.
  Timeline overlap(int blocks_of_product) {
    fake_cuda::start_trace();
    enqueue(compute_, "before", {all, 10});
    urgent_.wait(*compute_.record());
    enqueue(urgent_, "collective", {16, 50, true});
    enqueue(compute_, "product", {blocks_of_product, 100});
    return fake_cuda::simulate(fake_cuda::take_trace());
  }

  std::shared_ptr<Device> device_ = std::make_shared<Device>(DeviceLocation{0, "node7", 0, ""}, LaunchChecks::deferred);
  CudaStream compute_{device_}, urgent_{device_, CudaStream::Priority::high};
};

TEST_F(TimelineModel, ACollectiveWaitsForAProductThatOccupiesAllMultiprocessors) {
  const Timeline full = overlap(all);
  EXPECT_EQ(find(full, "collective").waited_us(), 99);
  EXPECT_EQ(find(full, "collective").overlap_us(find(full, "product")), 0);
  const Timeline budget = overlap(all - 16);
  EXPECT_EQ(find(budget, "collective").waited_us(), 0);
  EXPECT_EQ(find(budget, "collective").overlap_us(find(budget, "product")), 50);
}

TEST_F(TimelineModel, PriorityDecidesAmongWorkThatWaits) {
  fake_cuda::start_trace();
  CudaStream other(device_);
  enqueue(compute_, "first", {all, 10});
  enqueue(other, "second", {all, 10});
  enqueue(urgent_, "urgent", {all, 10});
  const Timeline timeline = fake_cuda::simulate(fake_cuda::take_trace());
  EXPECT_EQ(find(timeline, "urgent").begin_us, 0);
  EXPECT_EQ(find(timeline, "first").begin_us, 10);
  EXPECT_EQ(find(timeline, "second").begin_us, 20);
}

TEST_F(TimelineModel, ASpanIsTheTimeInWhichItsWorkRuns) {
  fake_cuda::start_trace();
  TraceRecorder recorder(compute_);
  // Everything is enqueued at once, and runs late.
  enqueue(urgent_, "message", {all, 100});
  const std::unique_ptr<Event> arrival = urgent_.record();
  {
    const TraceScope both(&recorder, "both", "test");
    {
      const TraceScope wait(&recorder, "wait for activation", "communication");
      compute_.wait(*arrival);
    }
    const TraceScope forward(&recorder, "forward", "pipeline");
    enqueue(compute_, "kernel", {all, 10});
  }
  EXPECT_GT(fake_cuda::pending(), 0u) << "the host has not waited";
  recorder.resolve();
  fake_cuda::take_trace();
  const std::vector<TraceSpan>& spans = recorder.spans();
  ASSERT_EQ(spans.size(), 3u);
  const auto length = [&](std::size_t i) { return spans[i].end_us - spans[i].start_us; };
  EXPECT_NEAR(length(0), 101, 0.01) << "the message, and the event between two streams";
  EXPECT_NEAR(spans[1].start_us, spans[0].end_us, 0.01);
  EXPECT_NEAR(length(1), 10, 0.01) << "the kernel runs when the message has come";
  EXPECT_NEAR(length(2), 111, 0.01);
}

/// Backward of a column-parallel layer on the CUDA backend: products of 264 tiles, and a sum of 128 rows and 132
/// channels over a tensor group of two.
class TensorOverlap : public testing::Test {
 protected:
  static constexpr std::int64_t rows = 128, channels = 132, outputs_local = 128;

  TensorOverlap() : backend_(test::make_gpu_backend({.deterministic = true})) {
    fake_cuda::reset();
    auto& devices = dynamic_cast<DeviceCommunicators&>(*backend_);
    world_ = devices.make_world(std::make_unique<test::HostOfTwo>("world"), DeviceTransport::nccl);
    groups_ = parallel::make_grid_communicators(parallel::ProcessGrid(2, 2, 1), *world_);
  }
  ~TensorOverlap() override { backend_->compute_stream().synchronize(); }

  /// Times of the backward, after one before that chooses algorithms.
  Timeline backward(bool sequence_parallel, bool overlap = true, bool graph = false, int row_chunks = 1) {
    Arena arena(*backend_), workspace(*backend_);
    const parallel::TensorContext context{.backend = *backend_,
                                          .tensor_group = *groups_.tensor,
                                          .workspace = workspace,
                                          .sequence_parallel = sequence_parallel,
                                          .overlap = overlap,
                                          .row_chunks = row_chunks};
    const auto zeros = [&](DType dtype, const Shape& shape) {
      const TensorView tensor = arena.allocate(dtype, shape);
      backend_->elementwise().fill(backend_->compute_stream(), 0, tensor);
      return tensor;
    };
    parallel::Parameter weight;
    weight.value = zeros(DType::bf16, {outputs_local, channels});
    weight.gradient = zeros(DType::fp32, {outputs_local, channels});
    const parallel::ColumnParallelLinear layer(context, weight, nullptr);
    const std::int64_t own_rows = sequence_parallel ? rows / 2 : rows;
    const TensorView x = zeros(DType::bf16, {own_rows, channels}), dx = zeros(DType::bf16, {own_rows, channels});
    const TensorView dy = zeros(DType::bf16, {rows, outputs_local});
    std::unique_ptr<Graph> recorded;
    for (const bool traced : {false, true}) {
      backend_->compute_stream().synchronize();
      const auto enqueue = [&] { layer.backward_input(dy, x, dx, parallel::WeightGradient::now); };
      if (traced && graph) recorded = dynamic_cast<GraphRecorder&>(*backend_).record(enqueue);
      if (traced) fake_cuda::start_trace();
      if (recorded != nullptr) {
        recorded->launch(backend_->compute_stream());
      } else {
        enqueue();
      }
    }
    Timeline timeline = fake_cuda::simulate(fake_cuda::take_trace());
    backend_->compute_stream().synchronize();
    return timeline;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> world_;
  parallel::GridCommunicators groups_;
};

TEST_F(TensorOverlap, TheSumRunsBesideTheWeightsGradient) {
  const Timeline timeline = backward(false);
  ASSERT_EQ(timeline.size(), 3u);
  const Span& input_gradient = timeline[0];
  const Span& sum = timeline[1];
  const Span& weight_gradient = timeline[2];
  EXPECT_THAT(sum.name, HasSubstr("ncclAllReduce"));
  EXPECT_EQ(input_gradient.blocks, all) << "nothing runs beside it";
  EXPECT_EQ(weight_gradient.blocks + sum.blocks, all);
  EXPECT_EQ(sum.waited_us(), 0);
  EXPECT_NEAR(sum.overlap_us(weight_gradient), sum.end_us - sum.begin_us, 1);
  const Timeline replayed = backward(false, true, true);
  ASSERT_EQ(replayed.size(), 3u);
  for (const std::size_t i : {0, 1, 2}) EXPECT_NEAR(replayed[i].begin_us, timeline[i].begin_us, 1);
}

TEST_F(TensorOverlap, WithSequenceParallelismTheGatherAndTheSumRunBesideProducts) {
  const Timeline timeline = backward(true);
  ASSERT_EQ(timeline.size(), 4u);
  const Span& gather = find(timeline, "ncclAllGather");
  const Span& sum = find(timeline, "ncclReduceScatter");
  EXPECT_EQ(gather.waited_us(), 0);
  EXPECT_EQ(sum.waited_us(), 0);
  EXPECT_GT(gather.overlap_us(timeline[1]), 0);
  EXPECT_GT(sum.overlap_us(timeline[3]), 0);
}

TEST_F(TensorOverlap, TheSumOfAChunkRunsBesideTheProductOfTheNext) {
  const Timeline timeline = backward(false, true, false, 2);
  ASSERT_EQ(timeline.size(), 5u);
  for (const std::size_t sum : {1, 3}) {
    EXPECT_THAT(timeline[sum].name, HasSubstr("ncclAllReduce"));
    EXPECT_EQ(timeline[sum].waited_us(), 0);
    EXPECT_GT(timeline[sum].overlap_us(timeline[sum + 1]), 0);
  }
}

TEST_F(TensorOverlap, ProductsWithoutCommunicationBesideThemTakeAllMultiprocessors) {
  const Timeline timeline = backward(false, false);
  ASSERT_EQ(timeline.size(), 3u);
  EXPECT_EQ(timeline[0].blocks, all);
  EXPECT_EQ(timeline[2].blocks, all);
}

}  // namespace
}  // namespace trireme::cuda

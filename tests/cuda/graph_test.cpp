// Recording and replaying of graphs, against the fake of tests/fakes/fake_cuda.hpp.
#include "cuda/runtime/graph.hpp"

#include <gmock/gmock.h>

#include "cuda/runtime/memory.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaGraphs : public testing::Test {
 protected:
  void SetUp() override { fake_cuda::reset(); }
  /// Records `enqueue` and returns the message of the refusal.
  std::string refusal(const std::function<void()>& enqueue) {
    return test::message_of<CudaError>([&] { CudaGraph::record(device_, stream_, enqueue); });
  }
  std::shared_ptr<Device> device_ = std::make_shared<Device>(DeviceLocation{3, "node7", 0, ""}, LaunchChecks::deferred);
  CudaStream stream_{device_};
};

TEST_F(CudaGraphs, HaveTheirOwnScratchMemory) {
  const int before = fake_cuda::live_allocations();
  {
    DeviceMemory memory(device_);
    float result = 0;
    const auto graph = CudaGraph::record(device_, stream_, [&] {
      const Buffer scratch = memory.allocate_on(stream_, 4);
      auto* value = reinterpret_cast<float*>(scratch.data());
      fake_cuda::enqueue(stream_.handle(), "write", [value] { *value = 3; });
      fake_cuda::enqueue(stream_.handle(), "read", [value, &result] { result += *value; });
    });
    EXPECT_EQ(memory.allocated_bytes(), 0U);
    for (int i = 0; i < 2; ++i) graph->launch(stream_);
    stream_.synchronize();
    EXPECT_EQ(result, 6);
  }
  EXPECT_EQ(fake_cuda::live_allocations(), before);
}

TEST_F(CudaGraphs, WaitForAnEventAsItIsAtTheirLaunch) {
  CudaStream compute(device_);
  fake_cuda::make_slow_streams(true);
  CudaStream other(device_);
  int value = 0;
  std::vector<int> seen;
  const std::unique_ptr<Event> event = other.record();
  const auto graph = CudaGraph::record(device_, compute, [&] {
    compute.wait_at_launch(*event);
    fake_cuda::enqueue(compute.handle(), "read", [&] { seen.push_back(value); });
  });
  for (int i = 1; i <= 3; ++i) {
    fake_cuda::enqueue(other.handle(), "write", [&value, i] { value = i; });
    other.record_again(*event);
    graph->launch(compute);
    compute.synchronize();
  }
  compute.wait_at_launch(*event);  // outside a recording
  EXPECT_THAT(seen, testing::ElementsAre(1, 2, 3));
}

TEST_F(CudaGraphs, RefuseHostWaitsAndAllocations) {
  DeviceMemory memory(device_);
  CudaStream other(device_);
  const std::unique_ptr<Event> earlier = stream_.record();
  const auto said = [](const char* call, const char* status) {
    return AllOf(HasSubstr(std::string(call) + " failed: "), HasSubstr(status), HasSubstr("rank 3 on node7"),
                 HasSubstr("recorded as a CUDA graph: leave out <cuda_graphs>"));
  };
  EXPECT_THAT(refusal([&] { stream_.synchronize(); }), said("cudaStreamQuery", "cudaErrorStreamCaptureUnsupported"));
  EXPECT_THAT(refusal([&] { other.synchronize(); }), said("cudaStreamQuery", "cudaErrorStreamCaptureUnsupported"));
  EXPECT_THAT(refusal([&] { (void)earlier->done(); }), said("cudaEventQuery", "cudaErrorStreamCaptureUnsupported"));
  EXPECT_THAT(refusal([&] { (void)memory.allocate(100); }), said("cudaMalloc", "cudaErrorStreamCaptureUnsupported"));
  EXPECT_THAT(refusal([&] { stream_.wait(*earlier); }), said("cudaStreamWaitEvent", "cudaErrorStreamCaptureIsolation"));
  EXPECT_THAT(refusal([&] {
                other.wait(*stream_.record());
                fake_cuda::enqueue(other.handle(), "left alone", [] {});
              }),
              said("cudaStreamEndCapture", "cudaErrorStreamCaptureUnjoined"));
  // And the streams are as before.
  int runs = 0;
  for (CudaStream* stream : {&stream_, &other}) {
    fake_cuda::enqueue(stream->handle(), "kernel", [&] { ++runs; });
    stream->synchronize();
  }
  EXPECT_EQ(runs, 2);
}

TEST_F(CudaGraphs, ErrorsDuringCapturePropagate) {
  EXPECT_THROW(CudaGraph::record(device_, stream_, [] { throw ShapeError("no such shape"); }), ShapeError);
  EXPECT_NO_THROW(CudaGraph::record(device_, stream_, [] {}));
}

}  // namespace
}  // namespace trireme::cuda

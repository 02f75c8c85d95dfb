// Streams, events, memory and errors of the CUDA runtime, against the fake of tests/fakes/fake_cuda.hpp.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "cuda/runtime/inventory.hpp"
#include "cuda/runtime/memory.hpp"
#include "cuda/runtime/stream.hpp"
#include "src/base/log.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::cuda {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CudaRuntime : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    device_ = make_device(LaunchChecks::deferred);
  }
  static std::shared_ptr<Device> make_device(LaunchChecks checks) {
    return std::make_shared<Device>(DeviceLocation{3, "node7", 0, ""}, checks);
  }
  std::shared_ptr<Device> device_;
};

TEST_F(CudaRuntime, ErrorNamesCallReasonRankHostAndGpu) {
  fake_cuda::fail_next("cudaStreamCreateWithPriority", cudaErrorIllegalAddress);
  const std::string message = message_of<CudaError>([&] { CudaStream stream(device_); });
  EXPECT_THAT(message, AllOf(HasSubstr("cudaStreamCreateWithPriority failed: an illegal memory access was encountered "
                                       "(cudaErrorIllegalAddress)"),
                             HasSubstr("rank 3 on node7, GPU 0 (Fake H200)"), HasSubstr("; cuda/runtime/stream.cpp:")));
}

TEST_F(CudaRuntime, ReportsTheNodeOfAGpuWhoseHardwareFails) {
  const test::TemporaryDirectory directory;
  setenv("TRIREME_FAULTY_NODES", (directory / "nodes").c_str(), 1);
  CudaStream stream(device_);
  device_->launched(stream.handle(), "k1");
  fake_cuda::enqueue(stream.handle(), "bad", [] { fake_cuda::break_device(cudaErrorECCUncorrectable); });
  EXPECT_THAT(message_of<MachineError>([&] { stream.synchronize(); }),
              AllOf(HasSubstr("cudaErrorECCUncorrectable"), HasSubstr("rank 3 on node7"), HasSubstr("exclude it")));
  unsetenv("TRIREME_FAULTY_NODES");
  std::string nodes;
  std::getline(std::ifstream(directory / "nodes"), nodes, '\0');
  EXPECT_EQ(nodes, "node7\n");
}

TEST_F(CudaRuntime, ErrorsOfTheMachineAreNotThoseOfTheProgram) {
  EXPECT_TRUE(is_of_machine(cudaErrorDevicesUnavailable));
  EXPECT_TRUE(is_of_machine(cudaErrorSystemNotReady));
  EXPECT_FALSE(is_of_machine(cudaErrorLaunchFailure));
  // The configuration of a GPU that has left its bus, and of one that has not.
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "lost") << std::string(64, '\xff');
  std::ofstream(directory / "present") << "\xde\x10\x35\x23" << std::string(60, '\xff');
  EXPECT_TRUE(is_of_machine(cudaErrorLaunchFailure, directory / "lost"));
  EXPECT_TRUE(is_of_machine(cudaErrorUnknown, directory / "lost"));
  EXPECT_FALSE(is_of_machine(cudaErrorLaunchFailure, directory / "present"));
  EXPECT_FALSE(is_of_machine(cudaErrorLaunchFailure, directory / "absent"));
}

TEST_F(CudaRuntime, AGpuThatAnotherProcessHoldsDoesNotCountAsAFailedMachine) {
  const auto error_of = [](auto type) {
    fake_cuda::fail_next("cudaSetDevice", cudaErrorDevicesUnavailable);
    return message_of<decltype(type)>([] { Device({0, "node7", 3, ""}, LaunchChecks::deferred); });
  };
  fake_cuda::properties().attributes[cudaDevAttrComputeMode] = cudaComputeModeExclusiveProcess;
  EXPECT_THAT(error_of(EnvironmentError("")), HasSubstr("is in compute mode EXCLUSIVE_PROCESS"));
  fake_cuda::properties().attributes[cudaDevAttrComputeMode] = cudaComputeModeDefault;
  EXPECT_THAT(error_of(MachineError("")), HasSubstr("cudaSetDevice failed"));
}

TEST_F(CudaRuntime, TheFakeRunsStreamsThatDoNotWaitInAnyOrder) {
  int second_first = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    fake_cuda::reset(seed);
    CudaStream first(device_), second(device_);
    std::vector<int> order;
    fake_cuda::enqueue(first.handle(), "a", [&] { order.push_back(1); });
    fake_cuda::enqueue(second.handle(), "b", [&] { order.push_back(2); });
    first.synchronize();
    second.synchronize();
    second_first += order.front() == 2;
  }
  EXPECT_GT(second_first, 5);
  EXPECT_LT(second_first, 45);
}

TEST_F(CudaRuntime, AStreamWaitsOnTheHostForAnotherBackendsEvent) {
  CudaStream stream(device_);
  ImmediateStream host;
  fake_cuda::clear_log();
  stream.wait(*host.record());
  EXPECT_THAT(fake_cuda::log(), ElementsAre());
  EXPECT_THROW(cuda_stream(host), ShapeError);
}

TEST_F(CudaRuntime, ImmediateChecksNameTheKernelThatFailed) {
  const auto checking = make_device(LaunchChecks::immediate);
  CudaStream stream(checking);
  fake_cuda::enqueue(stream.handle(), "good", [] {});
  EXPECT_NO_THROW(checking->launched(stream.handle(), "good_kernel"));
  fake_cuda::enqueue(stream.handle(), "bad", [] { fake_cuda::break_device(cudaErrorIllegalAddress); });
  EXPECT_THAT(message_of<CudaError>([&] { checking->launched(stream.handle(), "bad_kernel"); }),
              AllOf(HasSubstr("bad_kernel failed: an illegal memory access"), HasSubstr("runtime_test.cpp")));
}

TEST_F(CudaRuntime, DeferredChecksListTheLatestKernelsWhenAnErrorShows) {
  CudaStream stream(device_);
  for (const char* kernel : {"k1", "k2", "k3", "k4", "k5"}) device_->launched(stream.handle(), kernel);
  fake_cuda::enqueue(stream.handle(), "bad", [] { fake_cuda::break_device(cudaErrorIllegalAddress); });
  EXPECT_THAT(message_of<CudaError>([&] { stream.synchronize(); }),
              AllOf(HasSubstr("newest first: k5, k4, k3, k2;"), HasSubstr("<check_launches>")));
}

TEST_F(CudaRuntime, ARefusedCallIsNotReportedByTheNextLaunch) {
  CudaStream stream(device_);
  fake_cuda::fail_next("cudaEventRecord", cudaErrorInvalidValue);
  EXPECT_THROW(stream.record(), CudaError);
  EXPECT_NO_THROW(device_->launched(stream.handle(), "kernel"));
}

TEST_F(CudaRuntime, WatchedCommunicationsArePolledWhileTheHostWaits) {
  CudaStream stream(device_);
  int polls = 0;
  {
    const Device::Watch watch = device_->watch({[&] { ++polls; }});
    fake_cuda::enqueue(stream.handle(), "work", [] {});
    stream.synchronize();
  }
  const int polls_while_watching = polls;
  EXPECT_GT(polls_while_watching, 0);
  fake_cuda::enqueue(stream.handle(), "work", [] {});
  stream.synchronize();
  EXPECT_EQ(polls, polls_while_watching);
  const Device::Watch watch = device_->watch({[] { throw NcclError("a peer died"); }});
  fake_cuda::enqueue(stream.handle(), "work", [] {});
  EXPECT_THROW(stream.synchronize(), NcclError);
}

TEST_F(CudaRuntime, AGpuThatDoesNotFinishIsReportedAsHungWithItsPendingWork) {
  CudaStream stream(device_);
  const Device::Watch watch =
      device_->watch({[] {}, [] { return std::string("the group data: all-reduce of 8 fp32"); }});
  device_->set_max_wait(0.05);
  fake_cuda::enqueue_until(
      stream.handle(), "all-reduce", [] {}, [] { return false; }, [] {});
  EXPECT_EQ(message_of<HungError>([&] { stream.synchronize(); }),
            "waiting for 0.05 s for GPU 0 (Fake H200) in the group data: all-reduce of 8 fp32");
}

TEST_F(CudaRuntime, AHostFarAheadOfTheGpuWaitsAndSeesErrors) {
  CudaStream stream(device_);
  const auto launch = [&](int launches) {
    for (int i = 0; i < launches; ++i) {
      fake_cuda::enqueue(stream.handle(), "kernel", [] {});
      device_->launched(stream.handle(), "kernel");
    }
  };
  std::size_t max_pending = 0;
  for (int i = 0; i < 2000; ++i) {
    launch(1);
    max_pending = std::max(max_pending, fake_cuda::pending());
  }
  EXPECT_GT(max_pending, 256u);
  EXPECT_LT(max_pending, 600u) << "a driver blocks at about a thousand";
  device_->set_max_wait(0.05);
  fake_cuda::enqueue_until(
      stream.handle(), "all-reduce", [] {}, [] { return false; }, [] {});
  EXPECT_THROW(launch(600), HungError);
}

using CudaRuntimeDeathTest = CudaRuntime;
TEST_F(CudaRuntimeDeathTest, AProcessThatCannotFreeItsMemoryStillExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        log::initialise(0, 1);
        CudaStream stream(device_);
        device_->set_max_wait(0.05, 0.1);
        fake_cuda::enqueue_until(
            stream.handle(), "all-reduce", [] {}, [] { return false; }, [] {});
        try {
          stream.synchronize();
        } catch (const HungError&) {
          std::this_thread::sleep_for(std::chrono::seconds(60));  // cudaFree, too, may take long
        }
      },
      testing::ExitedWithCode(7), "ending this process.*waiting for 0.05 s for GPU 0");
}

TEST_F(CudaRuntime, ImmediateChecksHaveTheLongestWaitAndAskWatchedCommunications) {
  const auto checking = make_device(LaunchChecks::immediate);
  CudaStream stream(checking);
  const auto behind_an_all_reduce = [&] {
    fake_cuda::enqueue_until(
        stream.handle(), "all-reduce", [] {}, [] { return false; }, [] {});
    checking->launched(stream.handle(), "norm");
  };
  checking->set_max_wait(0.05);
  EXPECT_EQ(message_of<HungError>(behind_an_all_reduce),
            "waiting for 0.05 s for GPU 0 (Fake H200); latest launches, newest first: norm");
  const Device::Watch watch = checking->watch({[] { throw NcclError("a peer died"); }});
  EXPECT_THROW(behind_an_all_reduce(), NcclError);
}

TEST_F(CudaRuntime, MemoryIsCountedAndOutlivesItsAllocator) {
  const int before = fake_cuda::live_allocations();
  Buffer kept;
  {
    DeviceMemory memory(device_);
    CudaStream stream(device_);
    kept = memory.allocate(1000);
    EXPECT_EQ(memory.allocated_bytes(), 1000u);
    {
      const Buffer scratch = memory.allocate_on(stream, 500);
      EXPECT_EQ(memory.allocated_bytes(), 1500u);
    }
    EXPECT_EQ(memory.allocated_bytes(), 1000u);
    EXPECT_EQ(memory.peak_allocated_bytes(), 1500u);
    EXPECT_NE(memory.allocate(0).data(), nullptr);
  }
  kept = {};
  EXPECT_EQ(fake_cuda::live_allocations(), before);
}

TEST_F(CudaRuntime, OutOfMemoryIsAnErrorThatGivesTheSize) {
  DeviceMemory memory(device_);
  for (int times = 0; times < 2; ++times) fake_cuda::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_THAT(message_of<EnvironmentError>([&] { (void)memory.allocate(std::size_t{200} << 30); }),
              AllOf(HasSubstr("no GPU memory left for 204800 MiB"), HasSubstr("1024 MiB of 142336 MiB are free"),
                    HasSubstr("rank 3 on node7")));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "it must not show up as the error of a later launch";
  EXPECT_EQ(memory.allocated_bytes(), 0u);
}

TEST_F(CudaRuntime, CachedMemoryIsReleasedBeforeOutOfMemory) {
  DeviceMemory memory(device_);
  fake_cuda::clear_log();
  fake_cuda::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
  const Buffer buffer = memory.allocate(1024);
  EXPECT_THAT(fake_cuda::log(), ElementsAre("cudaMemPoolTrimTo", "cudaMalloc 1024"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "it must not show up as the error of a later launch";
}

TEST_F(CudaRuntime, UnusedPinnedMemoryCanBeReleased) {
  const int before = fake_cuda::live_allocations();
  PinnedMemory pinned(device_);
  const Buffer held = pinned.allocate(5000);
  const std::byte* freed = pinned.allocate(8000).data();
  pinned.release();
  EXPECT_EQ(pinned.reserved_bytes(), 8192u);
  EXPECT_EQ(fake_cuda::live_allocations(), before + 1);
  EXPECT_TRUE(pinned.owns(held.data()));
  EXPECT_FALSE(pinned.owns(freed));
}

TEST_F(CudaRuntime, PinnedMemoryIsReused) {
  PinnedMemory pinned(device_);
  fake_cuda::clear_log();
  const std::byte* first = pinned.allocate(5000).data();
  const Buffer second = pinned.allocate(8000);
  EXPECT_EQ(second.data(), first);
  const Buffer third = pinned.allocate(8000);
  EXPECT_THAT(fake_cuda::log(), ElementsAre("cudaHostAlloc 8192", "cudaHostAlloc 8192"));
  EXPECT_EQ(pinned.reserved_bytes(), 16384u);
}

TEST_F(CudaRuntime, TheInventoryKnowsTheCeilingsOfAGpu) {
  const Ceilings h200 = take_inventory(0).ceilings;
  EXPECT_NEAR(h200.bytes_per_s, 4.917e12, 1e9);
  EXPECT_NEAR(h200.operations_per_s, 1.0705e15, 1e11);
  fake_cuda::properties() = {.major = 8,
                             .minor = 0,
                             .attributes = {{cudaDevAttrMultiProcessorCount, 108},
                                            {cudaDevAttrClockRate, 1410000},
                                            {cudaDevAttrMemoryClockRate, 1215000},
                                            {cudaDevAttrGlobalMemoryBusWidth, 5120}}};
  const Ceilings a100 = take_inventory(0).ceilings;
  EXPECT_NEAR(a100.bytes_per_s, 1.555e12, 1e9);  // NVIDIA's data sheet
  EXPECT_NEAR(a100.operations_per_s, 3.12e14, 1e12);
  fake_cuda::properties().minor = 9;
  EXPECT_EQ(take_inventory(0).ceilings.operations_per_s, 0) << "no figure is at hand";
  fake_cuda::properties().attributes.erase(cudaDevAttrMemoryClockRate);
  EXPECT_EQ(take_inventory(0).ceilings.bytes_per_s, 0);
}

}  // namespace
}  // namespace trireme::cuda

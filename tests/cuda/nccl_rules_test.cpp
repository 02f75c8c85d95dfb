// Rules of NCCL that a rank can break alone: the fake of NCCL finds each (tests/fakes/nccl/rules.hpp).
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "cuda/runtime/stream.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/nccl/fake_nccl.hpp"
#include "tests/fakes/nccl/rules.hpp"

namespace trireme::cuda {
namespace {

using testing::HasSubstr;

class NcclRules : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_nccl::reset();
    ASSERT_EQ(init(1, config()), ncclSuccess);
  }
  void TearDown() override {
    fake_cuda::run_all();
    ncclCommAbort(comm_);
  }
  static ncclConfig_t config() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    return config;
  }
  /// Joins a communicator of two as `rank`.
  ncclResult_t init(int rank, ncclConfig_t config) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    return ncclCommInitRankConfig(&comm_, 2, id, rank, &config);
  }
  static std::string error() { return ncclGetLastError(nullptr); }
  ncclResult_t all_reduce(const void* from, void* to) {
    return ncclAllReduce(from, to, 4, ncclFloat32, ncclSum, comm_, stream_.handle());
  }

  std::shared_ptr<Device> device_ = std::make_shared<Device>(DeviceLocation{0, "node7", 0, ""}, LaunchChecks::deferred);
  CudaStream stream_{device_};
  ncclComm_t comm_ = nullptr;
  std::vector<float> x_ = std::vector<float>(16);
};

TEST_F(NcclRules, RegisteredMemoryIsDeregisteredBeforeItIsFreedAndBeforeTheCommunicatorEnds) {
  void* data = nullptr;
  ASSERT_EQ(ncclMemAlloc(&data, 8192), ncclSuccess);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(ncclCommWindowRegister(comm_, data, 100, &window, NCCL_WIN_COLL_SYMMETRIC), ncclInvalidArgument);
  EXPECT_EQ(error(), "ncclCommWindowRegister: the size of a window is not a multiple of 4096");
  EXPECT_EQ(ncclCommWindowRegister(comm_, x_.data(), 4096, &window, NCCL_WIN_COLL_SYMMETRIC), ncclInvalidArgument);
  ASSERT_EQ(ncclCommWindowRegister(comm_, data, 8192, &window, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
  EXPECT_EQ(all_reduce(data, data), ncclSuccess);
  EXPECT_EQ(fake_nccl::registered_collectives(), 1);
  EXPECT_EQ(ncclMemFree(data), ncclInvalidUsage);
  EXPECT_EQ(error(), "ncclMemFree: work of the GPU may still use the memory");
  fake_cuda::run_all();
  fake_nccl::reset();
  EXPECT_EQ(ncclCommFinalize(comm_), ncclInvalidUsage);
  EXPECT_EQ(error(), "ncclCommFinalize: a buffer is still registered");
  fake_nccl::reset();
  ASSERT_EQ(ncclCommWindowDeregister(comm_, window), ncclSuccess);
  EXPECT_EQ(ncclMemFree(data), ncclSuccess);
  EXPECT_EQ(ncclMemFree(data), ncclInvalidUsage);
}

TEST_F(NcclRules, BuffersOverlapOnlyInPlace) {
  float* const x = x_.data();
  const auto all_gather = [&](const float* from) {
    return ncclAllGather(from, x, 4, ncclFloat32, comm_, stream_.handle());
  };
  const auto reduce_scatter = [&](float* to) {
    return ncclReduceScatter(x, to, 4, ncclFloat32, ncclSum, comm_, stream_.handle());
  };
  // The shard of rank 1 is the second.
  for (const ncclResult_t status : {all_reduce(x, x), all_gather(x + 4), all_gather(x + 8), reduce_scatter(x + 4)}) {
    EXPECT_EQ(status, ncclSuccess);
  }
  for (const ncclResult_t status : {all_reduce(x, x + 2), all_gather(x), all_gather(x + 6), reduce_scatter(x)}) {
    EXPECT_EQ(status, ncclInvalidArgument);
  }
  EXPECT_EQ(error(), "ncclReduceScatter: the buffers overlap, but not as those of an operation in place");
  EXPECT_EQ(all_reduce(x, x), ncclSuccess) << "a refused argument has no effect";
}

TEST_F(NcclRules, ArgumentsAreWithinTheirBounds) {
  EXPECT_EQ(all_reduce(nullptr, x_.data()), ncclInvalidArgument);
  EXPECT_THAT(error(), HasSubstr("not the GPU's memory"));
  EXPECT_EQ(ncclBroadcast(x_.data(), x_.data(), 4, ncclFloat32, 2, comm_, stream_.handle()), ncclInvalidArgument);
  EXPECT_THAT(error(), HasSubstr("no such root"));
  EXPECT_EQ(ncclSend(x_.data(), 4, ncclFloat32, 2, comm_, stream_.handle()), ncclInvalidArgument);
  EXPECT_THAT(error(), HasSubstr("no such peer"));
  ncclComm_t shard = nullptr;
  ncclConfig_t wrong = config();
  wrong.cgaClusterSize = 9;
  EXPECT_EQ(ncclCommSplit(comm_, 0, 0, &shard, &wrong), ncclInvalidArgument);
  EXPECT_THAT(error(), HasSubstr("cgaClusterSize"));
  wrong = config();
  wrong.maxCTAs = 0;
  EXPECT_EQ(ncclCommSplit(comm_, 0, 0, &shard, &wrong), ncclInvalidArgument);
  EXPECT_THAT(error(), HasSubstr("number of CTAs"));
  ncclUniqueId id{};
  EXPECT_EQ(ncclCommInitRankConfig(&shard, 2, id, 0, &wrong), ncclInvalidArgument);
  EXPECT_THAT(error(), HasSubstr("did not make the id"));
  EXPECT_EQ(shard, nullptr);
}

TEST_F(NcclRules, ACommunicatorIsNotSplitBesideItsOperations) {
  ncclComm_t shard = nullptr;
  ncclConfig_t own = config();
  ASSERT_EQ(all_reduce(x_.data(), x_.data()), ncclSuccess);
  EXPECT_EQ(ncclCommSplit(comm_, 0, 0, &shard, &own), ncclInvalidUsage);
  EXPECT_EQ(error(), "ncclCommSplit: an operation of the communicator is outstanding");
  fake_cuda::run_all();
  EXPECT_EQ(ncclCommSplit(comm_, 0, 0, &shard, &own), ncclSuccess);
  ncclCommAbort(shard);
}

TEST_F(NcclRules, ACommunicatorIsNotUsedAfterItsEnd) {
  ncclComm_t shard = nullptr;
  ncclConfig_t own = config();
  ASSERT_EQ(ncclCommSplit(comm_, 0, 0, &shard, &own), ncclSuccess);
  ASSERT_EQ(ncclCommAbort(shard), ncclSuccess);
  EXPECT_EQ(ncclAllGather(x_.data() + 4, x_.data(), 4, ncclFloat32, shard, stream_.handle()), ncclInvalidUsage);
  EXPECT_THAT(error(), HasSubstr("ncclAllGather: the communicator has ended"));
  EXPECT_EQ(ncclCommDestroy(shard), ncclInvalidUsage);
}

TEST_F(NcclRules, TheOrderOfCallsOnSeveralCommunicatorsFitsAllRanks) {
  using Ranks = std::vector<std::vector<fake_nccl::Call>>;
  // Communicators 1 of ranks 0 and 1, 2 of 1 and 2, and 3 of 2 and 0, with a collective each, and a second of 1.
  EXPECT_EQ(fake_nccl::problem_of(Ranks{{{1, 0}, {1, 1}, {3, 0}}, {{1, 0}, {1, 1}, {2, 0}}, {{2, 0}, {3, 0}}}), "");
  EXPECT_EQ(fake_nccl::problem_of(Ranks{{{1, 0}, {3, 0}, {1, 1}}, {{1, 0}, {1, 1}, {2, 0}}, {{2, 0}, {3, 0}}}),
            "the order of calls on different communicators matches for all ranks; "
            "rank 0: collective 0 of communicator 3 comes first; rank 1: collective 1 of communicator 1 comes first; "
            "rank 2: collective 0 of communicator 2 comes first");
}

TEST_F(NcclRules, OneThreadCallsAtATime) {
  ncclComm_t other = nullptr;
  ncclConfig_t own = config();
  ASSERT_EQ(ncclCommSplit(comm_, 0, 0, &other, &own), ncclSuccess);
  fake_nccl::hold_calls("ncclAllReduce");
  std::thread thread([&] {
    EXPECT_EQ(ncclAllReduce(x_.data(), x_.data(), 4, ncclFloat32, ncclSum, other, stream_.handle()), ncclInternalError);
  });
  while (fake_nccl::callers() == 0) std::this_thread::yield();
  ncclComm_t shard = nullptr;
  EXPECT_EQ(ncclCommSplit(comm_, 0, 0, &shard, &own), ncclInvalidUsage) << "also on another communicator of the GPU";
  EXPECT_EQ(error(), "ncclCommSplit: two threads call at once");
  ncclCommAbort(other);
  thread.join();
}

}  // namespace
}  // namespace trireme::cuda

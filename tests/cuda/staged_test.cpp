// StagedCommunicator on MPI ranks, with host memory instead of the GPU's (tests/fakes/fake_cuda.hpp). Its collectives
// and messages are those of gpu_ranks_test.cpp.
#include <gmock/gmock.h>

#include <cstdlib>

#include "cuda/nccl/gpu_table.hpp"
#include "cuda/nccl/staged_communicator.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::cuda {
namespace {

using testing::Each;

class Staged : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset(static_cast<unsigned>(100 + test::world().rank()));
    comm_ = std::make_unique<StagedCommunicator>(device_, pinned_, test::world().split(0, test::world().rank(), "gpu"));
  }
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  /// Values that a kernel writes when its turn on the stream comes.
  void enqueue_fill(std::vector<float>& values, float value) {
    fake_cuda::enqueue(compute_.handle(), "fill", [&values, value] { std::ranges::fill(values, value); });
  }
  TensorView view(std::vector<float>& values) {
    return TensorView(values.data(), {static_cast<std::int64_t>(values.size())});
  }

  std::shared_ptr<Device> device_ =
      std::make_shared<Device>(DeviceLocation{test::world().rank(), "node", 0, ""}, LaunchChecks::deferred);
  std::shared_ptr<PinnedMemory> pinned_ = std::make_shared<PinnedMemory>(device_);
  CudaStream compute_{device_};
  std::unique_ptr<Communicator> comm_;
};

TEST_F(Staged, SeveralOperationsAreInFlightAtOnce) {
  std::vector<float> x(300), y(300);
  enqueue_fill(x, static_cast<float>(rank()));
  enqueue_fill(y, static_cast<float>(10 * rank()));
  Work first = comm_->all_reduce(compute_, view(x), ReduceOp::max);
  Work second = comm_->all_reduce(compute_, view(y), ReduceOp::sum);
  second.wait(compute_);
  first.wait(compute_);
  compute_.synchronize();
  EXPECT_THAT(x, Each(static_cast<float>(size() - 1)));
  EXPECT_THAT(y, Each(static_cast<float>(5 * size() * (size() - 1))));
}

TEST_F(Staged, AllGatherTakesItsInputFromTheOutput) {
  std::vector<float> whole(static_cast<std::size_t>(2 * size()), -1);
  const TensorView own = view(whole).flat(2 * rank(), 2);
  fake_cuda::enqueue(compute_.handle(), "fill", [&] { std::fill_n(own.as<float>(), 2, static_cast<float>(rank())); });
  comm_->all_gather(compute_, own, view(whole)).wait(compute_);
  compute_.synchronize();
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i], static_cast<float>(i / 2));
}

TEST_F(Staged, SplitMakesStagedGroups) {
  const auto pair = comm_->split(rank() / 2, rank(), "tensor");
  EXPECT_EQ(pair->name(), "tensor");
  std::vector<float> x(3);
  enqueue_fill(x, static_cast<float>(rank()));
  pair->all_reduce(compute_, view(x), ReduceOp::max).wait(compute_);
  compute_.synchronize();
  EXPECT_THAT(x, Each(static_cast<float>(std::min(rank() / 2 * 2 + 1, size() - 1))));
  EXPECT_EQ(comm_->split(-1, 0, "none"), nullptr);
}

TEST_F(Staged, TheTableOfGpusIsTheSameOnEveryRankAndShowsSharing) {
  const std::vector<RankGpu> table = gather_gpu_table(test::world(), *device_);
  ASSERT_EQ(static_cast<int>(table.size()), size());
  EXPECT_EQ(table[0].name, "GPU 0 (Fake H200)");
  EXPECT_THROW(check_one_rank_a_gpu(table), EnvironmentError);
}

TEST_F(Staged, RanksOfOneGpuThatGiveNcclMachinesOfTheirOwnMayShareIt) {
  setenv("NCCL_HOSTID", std::to_string(rank()).c_str(), 1);
  const std::vector<RankGpu> apart = gather_gpu_table(test::world(), *device_);
  setenv("NCCL_HOSTID", "one", 1);
  const std::vector<RankGpu> together = gather_gpu_table(test::world(), *device_);
  unsetenv("NCCL_HOSTID");
  EXPECT_EQ(apart.back().host, std::to_string(size() - 1));
  EXPECT_NO_THROW(check_one_rank_a_gpu(apart));
  EXPECT_THROW(check_one_rank_a_gpu(together), EnvironmentError);
}

}  // namespace
}  // namespace trireme::cuda

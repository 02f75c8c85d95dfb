// The host-staged communicator on a real GPU that all ranks share.
#include "cuda/comm/staged_communicator.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::test {
namespace {

class GpuStaged : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    comm_ = std::make_unique<cuda::StagedCommunicator>(device_, std::make_shared<cuda::PinnedMemory>(device_),
                                                       world().split(0, world().rank(), "gpu"));
  }
  Tensor filled(std::int64_t size, double value) {
    return upload(make_tensor(*cpu_, DType::bf16, {size}, std::vector<double>(static_cast<std::size_t>(size), value)));
  }
  std::unique_ptr<Communicator> comm_;
};

TEST_F(GpuStaged, EveryCollectiveMovesTheGpusMemory) {
  const int rank = comm_->rank(), size = comm_->size();
  constexpr std::int64_t part = 100'000;
  const Tensor x = filled(part * size, rank), y = poisoned(DType::bf16, {part}),
               z = poisoned(DType::bf16, {part * size});
  comm_->all_reduce(*stream_, x, ReduceOp::sum).wait(*stream_);
  comm_->reduce_scatter(*stream_, x, y, ReduceOp::max).wait(*stream_);
  comm_->all_gather(*stream_, y, z).wait(*stream_);
  comm_->broadcast(*stream_, z, size - 1).wait(*stream_);
  for (const double value : values(z)) ASSERT_EQ(value, size * (size - 1) / 2);
}

TEST_F(GpuStaged, ExchangePassesMessagesRoundTheRing) {
  const int rank = comm_->rank(), size = comm_->size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const Tensor out = filled(70'000, rank), in = poisoned(DType::bf16, {70'000});
  const Transfer transfers[] = {{Transfer::Direction::receive, previous, in}, {Transfer::Direction::send, next, out}};
  for (Work& work : comm_->exchange(*stream_, transfers)) work.wait(*stream_);
  for (const double value : values(in)) ASSERT_EQ(value, previous);
}

}  // namespace
}  // namespace trireme::test

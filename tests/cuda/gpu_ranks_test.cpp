// Communication of GPU memory between ranks: staged through the host, on a GPU that all share, and by NCCL.
#include "cuda/nccl/nccl_communicator.hpp"
#include "cuda/nccl/staged_communicator.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::test {
namespace {

class GpuRanks : public GpuTest {
 protected:
  Tensor filled(std::int64_t size, double value) {
    return upload(make_tensor(*cpu_, DType::bf16, {size}, std::vector<double>(static_cast<std::size_t>(size), value)));
  }
  void expect_collectives_to_move_the_gpus_memory() {
    const int rank = comm_->rank(), size = comm_->size();
    constexpr std::int64_t shard = 100'000;
    const Tensor x = filled(shard * size, rank), y = poisoned(DType::bf16, {shard}),
                 z = poisoned(DType::bf16, {shard * size});
    comm_->all_reduce(*stream_, x, ReduceOp::sum).wait(*stream_);
    comm_->reduce_scatter(*stream_, x, y, ReduceOp::max).wait(*stream_);
    comm_->all_gather(*stream_, y, z).wait(*stream_);
    comm_->broadcast(*stream_, z, size - 1).wait(*stream_);
    for (const double value : values(z)) ASSERT_EQ(value, size * (size - 1) / 2);
  }
  void expect_messages_to_go_round_the_ring() {
    const int rank = comm_->rank(), size = comm_->size();
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const Tensor out = filled(70'000, rank), in = poisoned(DType::bf16, {70'000});
    const Transfer transfers[] = {{Transfer::Direction::receive, previous, in}, {Transfer::Direction::send, next, out}};
    for (Work& work : comm_->exchange(*stream_, transfers)) work.wait(*stream_);
    for (const double value : values(in)) ASSERT_EQ(value, previous);
  }
  void expect_messages_between_any_ranks() {
    const int rank = comm_->rank(), size = comm_->size();
    const auto length = [](int from, int message) { return 1000 * from + 10 * message + 1; };
    const auto value = [](int from, int to, int message) { return 20.0 * from + 2 * to + message; };
    for (const int first : {0, 1}) {  // in the second round rank 0 has no messages
      std::vector<Tensor> out, in;
      std::vector<Transfer> transfers;
      for (int peer = first; peer < size && rank >= first; ++peer) {
        if (peer == rank) continue;
        for (const int message : {0, 1}) {
          out.push_back(filled(length(rank, message), value(rank, peer, message)));
          in.push_back(poisoned(DType::bf16, {length(peer, message)}));
          transfers.push_back({Transfer::Direction::send, peer, out.back()});
          transfers.push_back({Transfer::Direction::receive, peer, in.back()});
        }
      }
      comm_->grouped_exchange(*stream_, transfers).wait(*stream_);
      const Tensor sum = filled(3, rank);
      comm_->all_reduce(*stream_, sum, ReduceOp::sum).wait(*stream_);
      std::size_t i = 0;
      for (int peer = first; peer < size && rank >= first; ++peer) {
        for (int message = 0; message < 2 && peer != rank; ++message) {
          for (const double actual : values(in[i++])) ASSERT_EQ(actual, value(peer, rank, message));
        }
      }
      EXPECT_EQ(values(sum)[0], size * (size - 1) / 2);
    }
  }
  std::unique_ptr<Communicator> comm_;
};

class GpuStaged : public GpuRanks {
 protected:
  void SetUp() override {
    GpuRanks::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    comm_ = std::make_unique<cuda::StagedCommunicator>(device_, std::make_shared<cuda::PinnedMemory>(device_),
                                                       world().split(0, world().rank(), "gpu"));
  }
};

class GpuNccl : public GpuRanks {
 protected:
  void SetUp() override {
    if (!have_gpus(world().size())) GTEST_SKIP() << "needs a GPU for each of " << world().size() << " ranks";
    GpuRanks::SetUp();
    if (!IsSkipped() && !HasFatalFailure())
      comm_ = cuda::NcclCommunicator::make(device_, memory_, world().split(0, world().rank(), "gpu"));
  }
  cuda::DeviceLocation location(int gpus) const override {
    return {world().rank(), "this machine", cuda::choose_device(world().rank(), gpus), ""};
  }
};

TEST_F(GpuStaged, EveryCollectiveMovesTheGpusMemory) { expect_collectives_to_move_the_gpus_memory(); }
TEST_F(GpuNccl, EveryCollectiveMovesTheGpusMemory) { expect_collectives_to_move_the_gpus_memory(); }
TEST_F(GpuStaged, ExchangePassesMessagesRoundTheRing) { expect_messages_to_go_round_the_ring(); }
TEST_F(GpuNccl, ExchangePassesMessagesRoundTheRing) { expect_messages_to_go_round_the_ring(); }
TEST_F(GpuStaged, GroupedExchangePassesMessagesBetweenAnyRanks) { expect_messages_between_any_ranks(); }
TEST_F(GpuNccl, GroupedExchangePassesMessagesBetweenAnyRanks) { expect_messages_between_any_ranks(); }

}  // namespace
}  // namespace trireme::test

// Rules of NCCL that ranks break together: the fake of NCCL finds each (tests/fakes/nccl/rules.hpp).
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include "cuda/nccl/nccl_communicator.hpp"
#include "cuda/runtime/graph.hpp"
#include "src/base/machine.hpp"
#include "src/comm/flight_record.hpp"
#include "src/report/flight.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/nccl/fake_nccl.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::cuda {
namespace {

using test::world;
using testing::AllOf;
using testing::HasSubstr;

class NcclRanksRules : public testing::Test {
 protected:
  void SetUp() override { comm_ = NcclCommunicator::make(device_, memory_, world().split(0, rank(), "gpu")); }
  void TearDown() override {
    comm_.reset();
    world().barrier();
  }
  int rank() const { return world().rank(); }
  TensorView x(std::int64_t size) { return {x_.data(), {size}}; }
  /// Error of a collective in which ranks make different calls.
  std::string error_of(const std::function<Work()>& begin) {
    return test::message_of<NcclError>([&] {
      begin().wait(stream_);
      stream_.synchronize();
    });
  }

  /// Begins anew with a GPU for each rank.
  static std::shared_ptr<Device> make_device() {
    fake_cuda::reset();
    fake_nccl::reset();
    fake_cuda::set_devices(world().size());
    const int rank = world().rank();
    return std::make_shared<Device>(DeviceLocation{rank, "node7", rank, ""}, LaunchChecks::deferred);
  }

  std::shared_ptr<Device> device_ = make_device();
  std::shared_ptr<DeviceMemory> memory_ = std::make_shared<DeviceMemory>(device_);
  CudaStream stream_{device_};
  std::unique_ptr<Communicator> comm_;
  std::vector<float> x_ = std::vector<float>(64);
};

// Arenas and parameters take such memory, block by block, and free it before the communicator ends.
TEST_F(NcclRanksRules, RegisteredMemoryServesCollectivesInPlace) {
  Allocator& buffers = comm_->buffers(*memory_);
  const std::size_t before = memory_->allocated_bytes();
  EXPECT_EQ(&comm_->buffers(*memory_), &buffers);
  {
    Arena arena(buffers);
    const TensorView x = arena.allocate(DType::fp32, {64});
    comm_->all_reduce(stream_, x, ReduceOp::sum).wait(stream_);
    const Buffer more = buffers.allocate(100);  // a window beside work that has not run
  }
  EXPECT_EQ(fake_nccl::registered_collectives(), 1);
  EXPECT_EQ(memory_->allocated_bytes(), before);
  comm_->all_reduce(stream_, this->x(4), ReduceOp::sum).wait(stream_);
  stream_.synchronize();
  EXPECT_EQ(fake_nccl::registered_collectives(), 1);
}

TEST_F(NcclRanksRules, RegisteredMemoryIsOfOneSizeOnAllRanks) {
  EXPECT_THAT(test::message_of<NcclError>(
                  [&] { static_cast<void>(comm_->buffers(*memory_).allocate(rank() == 0 ? 100 : 10000)); }),
              HasSubstr("ncclCommWindowRegister: ranks register windows of other sizes"));
}

TEST_F(NcclRanksRules, CountsAgree) {
  EXPECT_THAT(error_of([&] { return comm_->all_reduce(stream_, x(rank() == 0 ? 4 : 8), ReduceOp::sum); }),
              AllOf(HasSubstr("invalid usage: ncclAllReduce: all ranks make the same calls in the same order"),
                    HasSubstr("rank 0: ncclAllReduce of 4 float32, sum; rank 1: ncclAllReduce of 8 float32, sum")));
}

TEST_F(NcclRanksRules, TypesAndOperationsAgree) {
  const TensorView whole(reinterpret_cast<std::byte*>(x_.data()), rank() == 0 ? DType::fp32 : DType::int32, {4});
  EXPECT_THAT(error_of([&] { return comm_->all_reduce(stream_, whole, rank() == 0 ? ReduceOp::sum : ReduceOp::max); }),
              HasSubstr("of 4 float32, sum; rank 1: ncclAllReduce of 4 int32, maximum"));
}

TEST_F(NcclRanksRules, TheOrderOfCallsAgrees) {
  Work broadcast;
  EXPECT_THAT(error_of([&] {
                if (rank() == 0) broadcast = comm_->broadcast(stream_, x(4), 0);
                Work sum = comm_->all_reduce(stream_, x(4), ReduceOp::sum);
                if (rank() != 0) broadcast = comm_->broadcast(stream_, x(4), 0);
                return sum;
              }),
              HasSubstr("rank 0: ncclBroadcast of 16 uint8, root 0; rank 1: ncclAllReduce"));
}

TEST_F(NcclRanksRules, AllRanksCaptureOrNone) {
  std::unique_ptr<CudaGraph> graph;
  const auto sum = [&] { comm_->all_reduce(stream_, x(4), ReduceOp::sum).wait(stream_); };
  if (rank() == 0) graph = CudaGraph::record(device_, stream_, sum);
  EXPECT_THAT(error_of([&]() -> Work {
                if (rank() == 0) {
                  graph->launch(stream_);
                } else {
                  sum();
                }
                return {};
              }),
              AllOf(HasSubstr("all ranks capture an operation, or none"), HasSubstr("sum, captured; rank 1: nccl")));
}

TEST_F(NcclRanksRules, MessagesOfAGroupAgree) {
  if (world().size() > 2) GTEST_SKIP() << "for two ranks";
  const bool is_first = rank() == 0;  // the message of rank 1 to it is wrong
  const Transfer transfers[] = {
      {Transfer::Direction::send, 1 - rank(), x(is_first ? 4 : 6)},
      {Transfer::Direction::receive, 1 - rank(), TensorView(x_.data() + 32, {is_first ? 5 : 4})}};
  EXPECT_THAT(error_of([&] { return comm_->grouped_exchange(stream_, transfers); }),
              HasSubstr("rank 0: a message of 20 uint8; rank 1: a message of 24 uint8"));
}

/// Hangs with flight records, on two or more ranks.
class NcclHangs : public NcclRanksRules {
 protected:
  void SetUp() override {
    NcclRanksRules::SetUp();
    record_.emplace(
        [this](std::string_view line, std::int64_t at) {
          const auto begin = static_cast<std::size_t>(at);
          text_.resize(std::max(text_.size(), begin + line.size()));
          text_.replace(begin, line.size(), line);
        },
        rank(), world().size());
    std::vector<int> ranks(static_cast<std::size_t>(world().size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    recorded_ = recorded(*comm_, ranks, stream_, *record_);
    sum(4).wait(stream_);
    stream_.synchronize();
  }
  Work sum(std::int64_t size) { return recorded_->all_reduce(stream_, x(size), ReduceOp::sum); }
  /// Expects findings on the records of all ranks that contain the texts.
  void expect_findings(const std::vector<std::string>& texts) {
    const std::vector<std::string> records = gather_text(world(), text_, 0);
    if (rank() != 0) return;
    std::vector<report::Flight> flights;
    for (const std::string& one : records) flights.push_back(report::parse_flight(one, "record"));
    for (const std::string& text : texts) EXPECT_THAT(report::flight_findings(flights), HasSubstr(text));
  }
  /// All but rank 0.
  std::string others() const { return world().size() == 2 ? "rank 1" : "ranks 1, 2, 3"; }

  std::string text_;
  std::optional<FlightRecord> record_;
  std::unique_ptr<Communicator> recorded_;
};

TEST_F(NcclHangs, ABusyRankIsNamed) {
  if (rank() != 0) {  // which is busy with something else
    device_->set_max_wait(0.1);
    EXPECT_THAT(test::message_of<HungError>([&] {
                  sum(8).wait(stream_);
                  stream_.synchronize();
                }),
                HasSubstr("in the group gpu: all-reduce of 8 fp32"));
    device_->set_max_wait(0);
  }
  expect_findings(
      {fmt::format("rank 0 on host {} made 1 call, others 2; first missing there: all-reduce of 8 fp32", host_name())});
  if (rank() == 0) sum(8).wait(stream_);  // late, so that the communicators end in order
  stream_.synchronize();
}

TEST_F(NcclHangs, ASkippedCollectiveIsNamed) {
  EXPECT_THAT(error_of([&] { return rank() == 0 ? recorded_->broadcast(stream_, x(4), 0) : sum(8); }),
              HasSubstr("rank 0: ncclBroadcast of 16 uint8, root 0; rank 1: ncclAllReduce of 8 float32"));
  expect_findings(
      {"call 2 is not the same: all-reduce of 8 fp32 on " + others() + " by ", "; broadcast of 4 fp32 on rank 0 by "});
}

TEST_F(NcclHangs, SizesThatDifferAreNamed) {
  EXPECT_THAT(error_of([&] { return sum(rank() == 0 ? 4 : 8); }),
              HasSubstr("rank 0: ncclAllReduce of 4 float32, sum; rank 1: ncclAllReduce of 8 float32, sum"));
  expect_findings(
      {"call 2 is not the same: all-reduce of 4 fp32 on rank 0 by ", "; all-reduce of 8 fp32 on " + others() + " by "});
}

}  // namespace
}  // namespace trireme::cuda

// NcclCommunicator, against fakes of NCCL and of the CUDA runtime.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "cuda/nccl/nccl_communicator.hpp"
#include "src/base/log.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/train/exposed_communication.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/host_of_two.hpp"
#include "tests/fakes/nccl/fake_nccl.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::cuda {
namespace {

using test::HostOfTwo;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_nccl::reset();
    comm_ = make();
  }
  void TearDown() override {
    comm_.reset();
    EXPECT_EQ(fake_nccl::live(), 0);
  }
  std::unique_ptr<Communicator> make(bool other_machine = true) {
    return NcclCommunicator::make(device_, memory_, std::make_unique<HostOfTwo>("world", other_machine));
  }

  TensorView x() { return {x_.data(), {4}}; }
  Work sum(Communicator& comm) { return comm.all_reduce(compute_, x(), ReduceOp::sum); }

  std::shared_ptr<Device> device_ = std::make_shared<Device>(DeviceLocation{0, "node7", 0, ""}, LaunchChecks::deferred);
  std::shared_ptr<DeviceMemory> memory_ = std::make_shared<DeviceMemory>(device_);
  CudaStream compute_{device_};
  std::unique_ptr<Communicator> comm_;
  std::vector<float> x_ = std::vector<float>(4);
  std::vector<float> y_ = std::vector<float>(8);
};

TEST_F(Nccl, CollectivesBeginAfterTheStreamAndTheStreamGoesOnAfterThem) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    fake_cuda::reset(seed);
    x_.assign(4, 0);
    y_.assign(8, 0);
    float seen = 0;
    fake_cuda::enqueue(compute_.handle(), "make x", [&] { x_.assign(4, 7); });
    Work work = comm_->all_gather(compute_, x(), TensorView(y_.data(), {8}));
    bool beside = false;
    fake_cuda::enqueue(compute_.handle(), "beside", [&] { beside = true; });
    work.wait(compute_);
    fake_cuda::enqueue(compute_.handle(), "use y", [&] { seen = y_[7]; });
    compute_.synchronize();
    EXPECT_EQ(seen, 7);
    EXPECT_TRUE(beside);
  }
}

TEST_F(Nccl, ExposedCommunicationIsMeasuredByEventsAroundTheWaitsOfAStream) {
  SelfCommunicator world;
  parallel::GridCommunicators groups;
  groups.tensor = std::move(comm_);
  train::ExposedCommunication communication(world, groups);
  for (int i = 0; i < 2; ++i) {
    sum(*groups.tensor).wait(compute_);
  }
  compute_.synchronize();
  EXPECT_THAT(communication.take_ms(100), ElementsAre(testing::Pair("tensor", 2 * fake_cuda::event_distance_ms)));
}

TEST_F(Nccl, TheHostWaitsForAWorkThatIsDropped) {
  fake_cuda::enqueue(compute_.handle(), "make x", [&] { x_.assign(4, 7); });
  { const Work work = comm_->reduce_scatter(compute_, x(), TensorView(y_.data(), {2}), ReduceOp::sum); }
  EXPECT_EQ(y_[0], 14);
}

TEST_F(Nccl, AnAsynchronousErrorEndsTheWaitAndNamesTheCollective) {
  const auto tensor = comm_->split(0, 0, "tensor");
  Work work = sum(*tensor);
  work.wait(compute_);
  fake_nccl::break_communicators(ncclRemoteError);
  const int aborted = fake_nccl::aborted();
  EXPECT_THAT(message_of<NcclPeerError>([&] { compute_.synchronize(); }),
              AllOf(HasSubstr("NCCL: "), HasSubstr("failed on rank 0 of 2 of the group"),
                    HasSubstr("remote process exited or there was a network error: socket closed by peer"),
                    HasSubstr("rank 0 on node7, GPU 0")));
  comm_.reset();
  EXPECT_GT(fake_nccl::aborted(), aborted);
}

TEST_F(Nccl, AnErrorNamesTheOldestPendingOperationAndAbortsTheGroup) {
  sum(*comm_).wait(compute_);
  compute_.synchronize();
  Work second = comm_->broadcast(compute_, x(), 0);
  Work third = sum(*comm_);
  fake_nccl::break_communicators(ncclRemoteError);
  ImmediateStream host;
  EXPECT_THAT(message_of<NcclPeerError>([&] { third.wait(host); }),
              HasSubstr("broadcast of 4 fp32 (operation 1 of the group)"));
  EXPECT_THAT(message_of<NcclPeerError>([&] { second.wait(host); }), HasSubstr("was aborted after an earlier error"));
  EXPECT_THAT(message_of<NcclPeerError>([&] { comm_->barrier(); }), HasSubstr("world was aborted"));
}

TEST_F(Nccl, AFailedGroupNamesTheCallAndTheRank) {
  fake_nccl::fail_next("ncclCommInitRankConfig", ncclSystemError);
  EXPECT_THAT(message_of<NcclError>([&] { make(); }),
              AllOf(HasSubstr("ncclCommInitRankConfig failed: unhandled system error"), HasSubstr("rank 0 on node7")));
}

TEST_F(Nccl, ACallThatIsHeldUpEndsAfterTheLongestWait) {
  device_->set_max_wait(0.05);
  const auto reduce = [&] { (void)sum(*comm_); };
  fake_nccl::hold_calls("ncclAllReduce");
  EXPECT_THAT(message_of<NcclPeerError>(reduce), AllOf(HasSubstr("NCCL: ncclAllReduce failed on rank 0 of 2"),
                                                       HasSubstr("of the group world: not done after 0.05 s")));
  EXPECT_THAT(message_of<NcclPeerError>(reduce), HasSubstr("world was aborted"));
  comm_ = make();
  EXPECT_THAT(message_of<NcclPeerError>([&] {
                fake_nccl::hold_calls("ncclCommSplit");
                (void)comm_->split(0, 0, "tensor");
              }),
              HasSubstr("ncclCommSplit failed on rank 0 of 2 of the group world: not done after 0.05 s"));
}

TEST_F(Nccl, ACallThatIsHeldUpEndsWhenItsCommunicatorReportsAnError) {
  fake_nccl::hold_calls("ncclBroadcast");
  fake_nccl::break_communicators(ncclRemoteError);
  EXPECT_THAT(message_of<NcclPeerError>([&] { (void)comm_->broadcast(compute_, x(), 0); }),
              HasSubstr("ncclBroadcast failed on rank 0 of 2 of the group world: remote process exited"));
}

TEST_F(Nccl, TheProcessEndsIfOtherRanksNeverJoinTheWorld) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        log::initialise(0, 1);
        device_->set_max_wait(0.05);
        fake_nccl::hold_calls("ncclCommInitRankConfig");
        make();
      },
      testing::ExitedWithCode(7),
      "held in a call of NCCL: ncclCommInitRankConfig; rank 0 on node7.*not done after 0.05 s");
}

TEST_F(Nccl, AllGroupsAreAbortedDuringUnwinding) {
  const int aborted = fake_nccl::aborted();
  try {
    const auto group = comm_->split(0, 0, "tensor");
    throw ConfigError("another error");
  } catch (const ConfigError&) {
  }
  EXPECT_THAT(message_of<NcclPeerError>([&] { comm_->barrier(); }), HasSubstr("was aborted after an earlier error"));
  comm_.reset();
  EXPECT_EQ(fake_nccl::aborted(), aborted + 2);
}

TEST_F(Nccl, GroupsOutliveErrorsThatLeaveNothingWaiting) {
  try {
    const Buffer buffer = memory_->allocate(16);
    sum(*comm_).wait(compute_);
    throw ConfigError("an error whose handler goes on");
  } catch (const ConfigError&) {
  }
  comm_->barrier();
}

TEST_F(Nccl, MemoryIsFreedIfOtherRanksNeverArrive) {
  fake_nccl::lose_peers();
  device_->set_max_wait(0.05);
  EXPECT_THAT(message_of<HungError>([&] {
                const Buffer buffer = memory_->allocate(16);  // freeing it waits for the GPU
                sum(*comm_).wait(compute_);
                compute_.synchronize();
              }),
              HasSubstr("in the group world: all-reduce of 4 fp32"));
  comm_ = make();
  EXPECT_THAT(message_of<ConfigError>([&] {
                const Buffer buffer = memory_->allocate(16);
                sum(*comm_).wait(compute_);
                throw ConfigError("another error");
              }),
              HasSubstr("another error"));
}

TEST_F(Nccl, ExclusiveWorkWaitsForCollectivesButNotForMessages) {
  sum(*comm_);
  device_->wait_for_collectives();
  EXPECT_LE(fake_cuda::pending(), 1u) << "NCCL waits for each on a stream of its own";
  Transfer receive{Transfer::Direction::receive, 1, x()};
  fake_nccl::lose_peers();
  device_->set_max_wait(0.05);
  EXPECT_THROW(
      {
        const Buffer buffer = memory_->allocate(16);  // whose end aborts what is under way
        comm_->exchange(compute_, {&receive, 1});
        device_->wait_for_collectives();
        const Work work = sum(*comm_);
        device_->wait_for_collectives();
      },
      HungError);
}

TEST_F(Nccl, AGroupOfOneRankCopiesOnTheCallersStreamWithoutNccl) {
  const int live = fake_nccl::live();
  SelfCommunicator host("world");
  const std::unique_ptr<Communicator> groups[] = {NcclCommunicator::make(device_, memory_, host.split(0, 0, "world")),
                                                  comm_->split(HostOfTwo::alone, 0, "tensor"),
                                                  comm_->split(HostOfTwo::alone, 0, "tensor")->split(0, 0, "data")};
  EXPECT_EQ(fake_nccl::live(), live);
  for (const auto& group : groups) {
    EXPECT_EQ(group->size(), 1);
    CudaStream after(device_);
    const auto expect_copy = [&](const std::function<void()>& enqueue) {
      x_.assign(4, 0), y_.assign(8, 0);
      float seen = 0;
      fake_cuda::enqueue(compute_.handle(), "make x", [&] { x_.assign(4, 3); });
      enqueue();
      fake_cuda::enqueue(after.handle(), "use y", [&] { seen = y_[2]; });
      after.synchronize();
      EXPECT_EQ(seen, 3);
    };
    const TensorView y(y_.data(), {4});
    expect_copy([&] { group->all_gather(compute_, x(), y).wait(after); });
    expect_copy([&] { group->reduce_scatter(compute_, x(), y, ReduceOp::sum).wait(after); });
    const Transfer transfers[] = {{Transfer::Direction::receive, 0, y}, {Transfer::Direction::send, 0, x()}};
    for (const bool wait_for_send : {true, false}) {
      expect_copy([&] {
        std::vector<Work> works = group->exchange(compute_, transfers);
        works[wait_for_send].wait(after);
      });
    }
  }
}

TEST_F(Nccl, EachDirectionOfAnExchangeHasAStreamOfItsOwn) {
  const auto pipeline = comm_->split(0, 0, "pipeline");
  const auto stream_of = [](const std::string& call) {
    for (const std::string& line : fake_cuda::log()) {
      if (line.starts_with(call)) return line.substr(line.find("stream"));
    }
    return call + " was not called";
  };
  for (int round = 0; round < 2; ++round) {
    fake_cuda::clear_log();
    const Transfer early[] = {{Transfer::Direction::receive, 1, TensorView(y_.data(), {4})}};
    std::vector<Work> receives = pipeline->exchange(compute_, early);
    float sent = 0;
    fake_cuda::enqueue(compute_.handle(), "make x", [&] { sent = 5; });
    const Transfer later[] = {{Transfer::Direction::send, 1, x()}};
    std::vector<Work> sends = pipeline->exchange(compute_, later);
    const std::string receiving = stream_of("ncclRecv"), sending = stream_of("ncclSend");
    EXPECT_THAT(receiving, HasSubstr("stream"));
    EXPECT_THAT(sending, HasSubstr("stream"));
    EXPECT_NE(receiving, sending);
    EXPECT_NE(sending, fake_cuda::name_of(compute_.handle()));
    ImmediateStream wait_here;
    sends[0].wait(wait_here);
    EXPECT_EQ(sent, 5) << "the send waits for what the stream held";
    receives[0].wait(wait_here);
    EXPECT_EQ(std::ranges::count_if(fake_cuda::log(), [](auto& line) { return line.starts_with("ncclCommSplit"); }),
              round == 0 ? 2 : 0)
        << "p2p communicators are made at the first exchange";
  }
}

TEST_F(Nccl, AGroupedExchangeIsOneCallOnTheGroupsOwnCommunicator) {
  const Transfer transfers[] = {{Transfer::Direction::send, 1, x()},
                                {Transfer::Direction::receive, 1, TensorView(y_.data(), {8})}};
  fake_cuda::clear_log();
  bool made = false, is_ordered = false;
  y_.assign(8, 1);
  fake_cuda::enqueue(compute_.handle(), "make x", [&] { made = y_[7] == 1; });
  comm_->grouped_exchange(compute_, transfers).wait(compute_);
  fake_cuda::enqueue(compute_.handle(), "use y", [&] { is_ordered = made && y_[7] == 0; });
  compute_.synchronize();
  EXPECT_TRUE(is_ordered);
  const auto lines = [](const std::string& call) {
    return std::ranges::count_if(fake_cuda::log(), [&](auto& line) { return line.starts_with(call); });
  };
  EXPECT_EQ(lines("ncclGroupEnd 48 bytes"), 1);
  EXPECT_EQ(lines("ncclCommSplit") + lines("ncclSend") + lines("ncclRecv"), 0);
  fake_cuda::clear_log();
  comm_->grouped_exchange(compute_, {}).wait(compute_);
  EXPECT_TRUE(fake_cuda::log().empty()) << "a rank without messages has no part in it";
  for (const char* call : {"ncclGroupEnd", "ncclRecv"}) {
    fake_nccl::fail_next(call, ncclSystemError);
    EXPECT_THAT(message_of<NcclPeerError>([&] { (void)comm_->grouped_exchange(compute_, transfers); }),
                HasSubstr("NCCL: ncclGroupEnd failed on rank 0 of 2 of the group world: unhandled system error"));
    comm_ = make();
  }
}

TEST_F(Nccl, LanesBetweenMachinesHoldFewMultiprocessors) {
  for (const bool other_machine : {true, false}) {
    const auto comm = make(other_machine);
    fake_cuda::clear_log();
    const Transfer message[] = {{Transfer::Direction::send, 1, x()}};
    for (Work& work : comm->exchange(compute_, message)) work.wait(compute_);
    for (const std::string& line : fake_cuda::log()) {
      if (!line.starts_with("ncclCommSplit")) continue;
      EXPECT_THAT(line, HasSubstr(other_machine ? "2 blocks" : "8 blocks"));
    }
    compute_.synchronize();
  }
}

TEST_F(Nccl, MessagesWaitForNoOtherGroupWhateverTheEnvironment) {
  for (const char* variable : {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_LAUNCH_ORDER_IMPLICIT"}) {
    setenv(variable, "1", 1);
    make();
    EXPECT_STREQ(std::getenv(variable), "0");
  }
}

TEST_F(Nccl, ProductsLeaveRoomForCollectivesBesideThemUntilTheWait) {
  const Multiprocessors& share = device_->multiprocessors();
  fake_cuda::clear_log();
  const auto tensor = comm_->split(0, 0, "tensor", GroupUse::beside_products), data = comm_->split(0, 0, "data");
  EXPECT_THAT(fake_cuda::log()[0], HasSubstr("16 blocks"));
  constexpr int all = fake_cuda::multiprocessors;
  {
    Work of_data = sum(*data);
    EXPECT_EQ(share.for_product(), 0);
    Work first = sum(*tensor), second = sum(*tensor);
    EXPECT_EQ(share.for_product(), all - 16);
    first.wait(compute_);
    EXPECT_EQ(share.for_product(), all - 16);
    second.wait(compute_);
    EXPECT_EQ(share.for_product(), 0);
  }
  // Messages may wait at any time, in a communicator of two blocks for each direction.
  const Transfer message[] = {{Transfer::Direction::send, 1, x()}};
  for (Work& work : data->exchange(compute_, message)) work.wait(compute_);
  Work work = sum(*tensor);
  EXPECT_EQ(share.for_product(), all - 16 - 2 * 2);
  work.wait(compute_);
}

}  // namespace
}  // namespace trireme::cuda

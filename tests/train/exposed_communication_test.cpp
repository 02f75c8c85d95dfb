#include "src/train/exposed_communication.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <optional>

#include "src/comm/forwarding_communicator.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/fakes/clock_stream.hpp"

namespace trireme::train {
namespace {

using test::ClockStream;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

/// Group of two ranks whose operations end 30 ms after their start, by the stream's clock.
class Group final : public ForwardingCommunicator {
 public:
  explicit Group(ClockStream& clock) : ForwardingCommunicator(self_), clock_(clock) {}
  int size() const override { return 2; }
  Work all_reduce(StreamPoint, TensorView, ReduceOp) override { return late(); }
  std::vector<Work> exchange(StreamPoint, std::span<const Transfer> transfers) override {
    std::vector<Work> works;
    for (std::size_t i = 0; i < transfers.size(); ++i) works.push_back(late());
    return works;
  }
  Work grouped_exchange(StreamPoint, std::span<const Transfer>) override { return late(); }

 private:
  struct Late final : Work::State {
    explicit Late(ClockStream& on) : clock(on), end_ms(on.now_ms + 30) {}
    bool done() override { return clock.now_ms >= end_ms; }
    void wait(Stream&) override { clock.now_ms = std::max(clock.now_ms, end_ms); }
    ClockStream& clock;
    double end_ms;
  };
  Work late() const { return Work(std::make_unique<Late>(clock_)); }

  SelfCommunicator self_;
  ClockStream& clock_;
};

class ExposedCommunicationTest : public testing::Test {
 protected:
  ExposedCommunicationTest() {
    groups_.tensor = std::make_unique<Group>(stream_);
    groups_.pipeline = std::make_unique<Group>(stream_);
    groups_.data = std::make_unique<SelfCommunicator>();
    communication_.emplace(world_, groups_);
  }
  Work start() { return groups_.tensor->all_reduce(stream_, TensorView(&number_, {1}), ReduceOp::sum); }

  double number_ = 1;
  ClockStream stream_;
  SelfCommunicator world_;
  parallel::GridCommunicators groups_;
  std::optional<ExposedCommunication> communication_;
};

TEST_F(ExposedCommunicationTest, IsTheCommunicationThatComputationDoesNotHide) {
  Work partly = start();
  stream_.now_ms += 10;
  EXPECT_FALSE(partly.done());
  partly.wait(stream_);
  Work hidden = start();
  stream_.now_ms += 50;
  EXPECT_TRUE(hidden.done());
  hidden.wait(stream_);
  EXPECT_THAT(communication_->take_ms(100), ElementsAre(Pair("tensor", 20)));
  EXPECT_THAT(communication_->take_ms(100), IsEmpty());
}

TEST_F(ExposedCommunicationTest, IsMeasuredByGroupAndForEveryMessage) {
  const Transfer transfer{Transfer::Direction::send, 1, TensorView(&number_, {1})};
  for (Work& work : groups_.pipeline->exchange(stream_, std::array{transfer, transfer})) {
    work.wait(stream_);
    stream_.now_ms += 1;
  }
  start().wait(stream_);
  groups_.tensor->grouped_exchange(stream_, std::array{transfer, transfer}).wait(stream_);
  groups_.data->all_reduce(stream_, TensorView(&number_, {1}), ReduceOp::sum).wait(stream_);
  EXPECT_THAT(communication_->take_ms(100), ElementsAre(Pair("tensor", 60), Pair("pipeline", 30)));
}

TEST_F(ExposedCommunicationTest, DiscardsWaitsBeforeARestart) {
  start().wait(stream_);
  communication_->restart();
  EXPECT_THAT(communication_->take_ms(100), IsEmpty());
}

/// Adds the numbers of another rank that began its step early: 1 ms of work, then 50 ms of wait in the tensor group.
class WorldWithAnEarlyRank final : public ForwardingCommunicator {
 public:
  WorldWithAnEarlyRank() : ForwardingCommunicator(self_) {}
  int size() const override { return 2; }
  Work all_reduce(StreamPoint, TensorView data, ReduceOp) override {
    const std::span<double> numbers(reinterpret_cast<double*>(data.data()), static_cast<std::size_t>(data.numel()));
    numbers[1 + static_cast<std::size_t>(parallel::GroupKind::tensor)] += 50;
    numbers.back() += 51;
    return Work();
  }

 private:
  SelfCommunicator self_;
};

TEST(ExposedCommunication, IsNeverMoreThanTheStepWhereOtherRanksBeganBefore) {
  WorldWithAnEarlyRank world;
  parallel::GridCommunicators groups;
  groups.tensor = std::make_unique<SelfCommunicator>();
  ExposedCommunication communication(world, groups);
  EXPECT_THAT(communication.take_ms(9), ElementsAre(Pair("tensor", testing::DoubleEq(50 * 9 / 60.0))));
}

TEST_F(ExposedCommunicationTest, IncludesTheWorldGroup) {
  ImmediateStream host;
  communication_->world().all_reduce(host, TensorView(&number_, {1}), ReduceOp::sum).wait(host);
  for (const auto& [group, ms] : communication_->take_ms(100)) EXPECT_EQ(group, "world");
  EXPECT_EQ(number_, 1);
}

}  // namespace
}  // namespace trireme::train

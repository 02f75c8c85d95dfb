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
  EXPECT_THAT(communication_->take_ms(), ElementsAre(Pair("tensor", 20)));
  EXPECT_THAT(communication_->take_ms(), IsEmpty());
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
  EXPECT_THAT(communication_->take_ms(), ElementsAre(Pair("tensor", 60), Pair("pipeline", 30)));
}

TEST_F(ExposedCommunicationTest, DiscardsWaitsBeforeARestart) {
  start().wait(stream_);
  communication_->restart();
  EXPECT_THAT(communication_->take_ms(), IsEmpty());
}

TEST_F(ExposedCommunicationTest, IncludesTheWorldGroup) {
  ImmediateStream host;
  communication_->world().all_reduce(host, TensorView(&number_, {1}), ReduceOp::sum).wait(host);
  for (const auto& [group, ms] : communication_->take_ms()) EXPECT_EQ(group, "world");
  EXPECT_EQ(number_, 1);
}

}  // namespace
}  // namespace trireme::train

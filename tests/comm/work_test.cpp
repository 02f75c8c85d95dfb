#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "src/comm/communicator.hpp"

namespace trireme {
namespace {

struct Calls {
  int waits = 0;
  int ends = 0;
};

class CountingState final : public Work::State {
 public:
  explicit CountingState(Calls& calls) : calls_(calls) {}
  ~CountingState() override { ++calls_.ends; }
  bool done() override { return calls_.waits > 0; }
  void wait(Stream&) override { ++calls_.waits; }

 private:
  Calls& calls_;
};

Work counting(Calls& calls) { return Work(std::make_unique<CountingState>(calls)); }
ImmediateStream host;

TEST(Work, IsWaitedForOnceAndDoneAfterwards) {
  Calls calls;
  {
    Work work = counting(calls);
    EXPECT_FALSE(work.done());
    work.wait(host);
    EXPECT_TRUE(work.done());
    work.wait(host);
  }
  EXPECT_EQ(calls.waits, 1);
  EXPECT_EQ(calls.ends, 1);
}

TEST(Work, MovingTransfersTheWait) {
  Calls first;
  Calls second;
  {
    Work a = counting(first);
    Work b = std::move(a);
    EXPECT_EQ(first.waits, 0);
    b = counting(second);  // waits for the previous operation of b
    EXPECT_EQ(first.waits, 1);
    EXPECT_EQ(second.waits, 0);
  }
  EXPECT_EQ(first.waits, 1);
  EXPECT_EQ(second.waits, 1);
}

TEST(Work, IsAbandonedWithoutAWaitDuringUnwinding) {
  Calls calls;
  try {
    const Work work = counting(calls);
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(calls.waits, 0);
  EXPECT_EQ(calls.ends, 1);
}

}  // namespace
}  // namespace trireme

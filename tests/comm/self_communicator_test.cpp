#include "src/comm/self_communicator.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace trireme {
namespace {

ImmediateStream host;

TEST(SelfCommunicator, CollectivesKeepOrCopyTheData) {
  SelfCommunicator comm;
  std::vector<float> in = {1, 2, 3};
  std::vector<float> out(3);
  const TensorView x(in.data(), {3});
  const TensorView y(out.data(), {3});
  comm.all_reduce(host, x, ReduceOp::sum).wait(host);
  comm.broadcast(host, x, 0).wait(host);
  EXPECT_EQ(in, (std::vector<float>{1, 2, 3}));
  comm.all_gather(host, x, y).wait(host);
  EXPECT_EQ(out, in);
  out.assign(3, 0);
  comm.reduce_scatter(host, x, y, ReduceOp::max).wait(host);
  EXPECT_EQ(out, in);
  comm.reduce_scatter(host, x, x, ReduceOp::sum).wait(host);  // in place
  EXPECT_EQ(in, (std::vector<float>{1, 2, 3}));
  comm.barrier();
}

TEST(SelfCommunicator, MessagesToItselfArriveInTheOrderSent) {
  SelfCommunicator comm;
  std::vector<float> data = {1, 2, 0, 0};
  const TensorView x(data.data(), {4});
  using Direction = Transfer::Direction;
  const Transfer transfers[] = {{Direction::receive, 0, x.flat(2, 1)},
                                {Direction::send, 0, x.flat(0, 1)},
                                {Direction::send, 0, x.flat(1, 1)},
                                {Direction::receive, 0, x.flat(3, 1)}};
  for (Work& work : comm.exchange(host, transfers)) work.wait(host);
  EXPECT_EQ(data, (std::vector<float>{1, 2, 1, 2}));
  EXPECT_THROW((void)comm.exchange(host, std::span(transfers).first(1)), ShapeError);
}

}  // namespace
}  // namespace trireme

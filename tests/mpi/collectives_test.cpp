#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "mpi/error.hpp"
#include "src/base/hash.hpp"
#include "src/base/timer.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme {
namespace {

using test::world;

ImmediateStream host;

/// Sizes around every change of algorithm: nothing, one step, two steps, parts of unequal size.
const std::vector<std::int64_t> sizes = {0, 1, 2, 31, 33, 1025, 4097, 70001};
constexpr std::int64_t several_segments = 1200007;  // elements of fp32

/// Small integers that 16-bit types hold exactly, also summed over 8 ranks.
float integer(int rank, std::int64_t i) { return static_cast<float>((i * 7 + rank * 5) % 11 - 5); }

template <class T>
class TypedCollectives : public testing::Test {};
using Types = testing::Types<double, float, bf16, fp16, std::int64_t, std::int32_t>;
TYPED_TEST_SUITE(TypedCollectives, Types);

template <class T>
std::vector<T> integers(int rank, std::int64_t size) {
  std::vector<T> values(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) values[static_cast<std::size_t>(i)] = static_cast<T>(integer(rank, i));
  return values;
}

template <class T>
std::vector<float> floats(const std::vector<T>& values) {
  std::vector<float> result(values.size());
  std::ranges::transform(values, result.begin(), [](T value) { return static_cast<float>(value); });
  return result;
}

float expected(ReduceOp op, std::int64_t i) {
  float result = integer(0, i);
  for (int rank = 1; rank < world().size(); ++rank) {
    result = op == ReduceOp::sum ? result + integer(rank, i) : std::max(result, integer(rank, i));
  }
  return result;
}

TYPED_TEST(TypedCollectives, AllReduceOfSmallIntegersIsExact) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    for (const std::int64_t size : sizes) {
      auto data = integers<TypeParam>(world().rank(), size);
      world().all_reduce(host, TensorView(data.data(), {size}), op).wait(host);
      std::vector<float> wanted(data.size());
      for (std::int64_t i = 0; i < size; ++i) wanted[static_cast<std::size_t>(i)] = expected(op, i);
      ASSERT_EQ(floats(data), wanted) << size;
    }
  }
}

TYPED_TEST(TypedCollectives, ReduceScatterOfSmallIntegersIsExact) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    for (const std::int64_t size : sizes) {
      const auto in = integers<TypeParam>(world().rank(), size * world().size());
      std::vector<TypeParam> out(static_cast<std::size_t>(size));
      world()
          .reduce_scatter(host, ConstTensorView(in.data(), {world().size(), size}), TensorView(out.data(), {size}), op)
          .wait(host);
      std::vector<float> wanted(out.size());
      for (std::int64_t i = 0; i < size; ++i) {
        wanted[static_cast<std::size_t>(i)] = expected(op, world().rank() * size + i);
      }
      ASSERT_EQ(floats(out), wanted) << size;
    }
  }
}

TYPED_TEST(TypedCollectives, ReduceScatterMayWriteItsOwnPartOfTheInput) {
  const std::int64_t size = 70001;
  auto data = integers<TypeParam>(world().rank(), size * world().size());
  const TensorView whole(data.data(), {world().size() * size});
  world().reduce_scatter(host, whole, whole.flat(world().rank() * size, size), ReduceOp::sum).wait(host);
  for (std::int64_t i = world().rank() * size; i < (world().rank() + 1) * size; ++i) {
    ASSERT_EQ(static_cast<float>(data[static_cast<std::size_t>(i)]), expected(ReduceOp::sum, i)) << i;
  }
}

TYPED_TEST(TypedCollectives, AllGatherPutsPartsInRankOrder) {
  for (const bool in_place : {false, true}) {
    for (const std::int64_t size : sizes) {
      const auto in = integers<TypeParam>(world().rank(), size);
      std::vector<TypeParam> out(static_cast<std::size_t>(size * world().size()));
      const TensorView whole(out.data(), {world().size() * size});
      const TensorView own = whole.flat(world().rank() * size, size);
      if (in_place) std::ranges::copy(in, out.begin() + world().rank() * size);
      world().all_gather(host, in_place ? ConstTensorView(own) : ConstTensorView(in.data(), {size}), whole).wait(host);
      std::vector<float> wanted;
      for (int rank = 0; rank < world().size(); ++rank) {
        for (std::int64_t i = 0; i < size; ++i) wanted.push_back(integer(rank, i));
      }
      ASSERT_EQ(floats(out), wanted) << size;
    }
  }
}

TYPED_TEST(TypedCollectives, BroadcastComesFromAnyRoot) {
  for (int root = 0; root < world().size(); ++root) {
    for (const std::int64_t size : sizes) {
      auto data = integers<TypeParam>(world().rank(), size);
      world().broadcast(host, TensorView(data.data(), {size}), root).wait(host);
      ASSERT_EQ(floats(data), floats(integers<TypeParam>(root, size)));
    }
  }
}

TEST(Collectives, LargeTensorsAreReducedInSegments) {
  auto data = integers<float>(world().rank(), several_segments);
  std::vector<float> wanted(data.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = expected(ReduceOp::sum, static_cast<std::int64_t>(i));
  world().all_reduce(host, TensorView(data.data(), {several_segments}), ReduceOp::sum).wait(host);
  EXPECT_EQ(data, wanted);

  const std::int64_t shard_size = several_segments / world().size();
  const auto in = integers<float>(world().rank(), shard_size * world().size());
  std::vector<float> out(static_cast<std::size_t>(shard_size));
  world()
      .reduce_scatter(host, ConstTensorView(in.data(), {shard_size * world().size()}),
                      TensorView(out.data(), {shard_size}), ReduceOp::sum)
      .wait(host);
  wanted.erase(wanted.begin(), wanted.begin() + world().rank() * shard_size);
  wanted.resize(out.size());
  EXPECT_EQ(out, wanted);
}

TEST(Collectives, SumsHaveTheSameBitsOnAllRanksAndInEveryRun) {
  for (const std::int64_t size : {1, 33, 4097, 70001, static_cast<int>(several_segments)}) {
    std::vector<float> first;
    for (int run = 0; run < 3; ++run) {
      std::vector<float> data(static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<float>(splitmix64(static_cast<std::uint64_t>(world().rank()), i)) * 1e-19f - 0.5f;
      }
      // Ranks that arrive in another order each time must not add in another order.
      std::this_thread::sleep_for(std::chrono::microseconds(300 * ((run * 3 + world().rank() * 5) % 7)));
      world().all_reduce(host, TensorView(data.data(), {size}), ReduceOp::sum).wait(host);
      if (run == 0) first = data;
      ASSERT_EQ(data, first);
    }
    std::vector<float> of_rank_0 = first;
    world().broadcast(host, TensorView(of_rank_0.data(), {size}), 0).wait(host);
    ASSERT_EQ(first, of_rank_0);
  }
}

TEST(Collectives, SixteenBitSumsAreRoundedOnce) {
  // 256 + 1 is not a bfloat16: added one after another in 16 bits the ones would all be lost.
  std::vector<bf16> data(100, bf16(world().rank() == 0 ? 256.0f : 1.0f));
  world().all_reduce(host, TensorView(data.data(), {100}), ReduceOp::sum).wait(host);
  const auto wanted = static_cast<float>(bf16(256.0f + static_cast<float>(world().size() - 1)));
  EXPECT_THAT(floats(data), testing::Each(wanted));
}

TEST(Collectives, MaximumPropagatesNaN) {
  for (int bad = 0; bad < world().size(); ++bad) {
    float value = world().rank() == bad ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
    world().all_reduce(host, TensorView(&value, {1}), ReduceOp::max).wait(host);
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Exchange, RingsPassInBothDirectionsAtOnce) {
  const int size = world().size();
  const int next = (world().rank() + 1) % size;
  const int previous = (world().rank() + size - 1) % size;
  for (const std::int64_t count : {1, 5000, 300000}) {
    const auto mine = integers<float>(world().rank(), count);
    auto sent = mine;
    std::vector<float> from_previous(sent.size());
    std::vector<float> from_next(sent.size());
    using Direction = Transfer::Direction;
    const Transfer transfers[] = {{Direction::send, next, TensorView(sent.data(), {count})},
                                  {Direction::receive, previous, TensorView(from_previous.data(), {count})},
                                  {Direction::send, previous, TensorView(sent.data(), {count})},
                                  {Direction::receive, next, TensorView(from_next.data(), {count})}};
    for (Work& work : world().exchange(host, transfers)) work.wait(host);
    EXPECT_EQ(from_previous, integers<float>(previous, count));
    EXPECT_EQ(from_next, integers<float>(next, count));
  }
}

TEST(Exchange, MessagesBetweenTwoRanksArriveInTheOrderSent) {
  if (world().size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<std::int64_t> counts = {100000, 1, 3000, 50000, 2};
  const int rank = world().rank();
  std::vector<std::vector<std::int32_t>> data;
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    data.emplace_back(static_cast<std::size_t>(counts[i]), rank == 0 ? static_cast<std::int32_t>(i) : -1);
  }
  for (std::size_t i = 0; i < counts.size() && rank < 2; ++i) {
    transfers.push_back({rank == 0 ? Transfer::Direction::send : Transfer::Direction::receive, 1 - rank,
                         TensorView(data[i].data(), {counts[i]})});
  }
  for (Work& work : world().exchange(host, transfers)) work.wait(host);
  if (rank == 1) {
    for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_THAT(data[i], testing::Each(static_cast<std::int32_t>(i)));
  }
}

// Rank 1 sends only after rank 0, which has begun to receive, says so: a call that waits hangs.
TEST(Asynchronous, GroupedExchangesEndAtTheirWait) {
  if (world().size() < 2) GTEST_SKIP() << "needs two ranks";
  const auto other = world().split(0, world().rank(), "other");
  const int rank = world().rank();
  const auto grouped = [&](Transfer::Direction direction, float& number) {
    const Transfer transfers[] = {{direction, 1 - rank, TensorView(&number, {1})}};
    return world().grouped_exchange(host, transfers);
  };
  float number = rank == 1 ? 7.0f : 0.0f, token = 1;
  Work receiving;
  if (rank == 0) receiving = grouped(Transfer::Direction::receive, number);
  EXPECT_TRUE(rank != 0 || !receiving.done());
  other->all_reduce(host, TensorView(&token, {1}), ReduceOp::sum).wait(host);
  if (rank == 1) grouped(Transfer::Direction::send, number).wait(host);
  receiving.wait(host);
  EXPECT_EQ(number, rank < 2 ? 7.0f : 0.0f);
}

TEST(Asynchronous, OperationsOfTwoCommunicatorsMayBeginInDifferentOrders) {
  const auto a = world().split(0, world().rank(), "a");
  const auto b = world().split(0, world().rank(), "b");
  std::vector<float> x(300000, 1.0f);
  std::vector<float> y(300000, 2.0f);
  for (int round = 0; round < 5; ++round) {
    const bool a_first = (world().rank() + round) % 2 == 0;
    Communicator& first = a_first ? *a : *b;
    Communicator& second = a_first ? *b : *a;
    std::vector<float>& first_data = a_first ? x : y;
    std::vector<float>& second_data = a_first ? y : x;
    Work one = first.all_reduce(host, TensorView(first_data.data(), {300000}), ReduceOp::sum);
    Work two = second.all_reduce(host, TensorView(second_data.data(), {300000}), ReduceOp::sum);
    one.wait(host);  // also waited for in another order
    two.wait(host);
    const auto size = static_cast<float>(world().size());
    ASSERT_EQ(x, std::vector<float>(x.size(), size));
    ASSERT_EQ(y, std::vector<float>(y.size(), 2 * size));
    std::ranges::fill(x, 1.0f);
    std::ranges::fill(y, 2.0f);
  }
}

TEST(Asynchronous, ManyOperationsMayBeInFlightOnOneCommunicator) {
  std::vector<std::vector<float>> data(20);
  std::vector<Work> works;
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i].assign(1000 * (i + 1), static_cast<float>(i));
    works.push_back(world().all_reduce(host, TensorView(data[i].data(), {static_cast<std::int64_t>(data[i].size())}),
                                       ReduceOp::sum));
  }
  for (std::size_t i = data.size(); i-- > 0;) {
    works[i].wait(host);
    ASSERT_EQ(data[i], std::vector<float>(data[i].size(), static_cast<float>(i) * static_cast<float>(world().size())));
  }
}

TEST(Asynchronous, AllReduceProgressesWhileTheCallerComputes) {
  // Several segments of two steps each: without the engine's thread it would stop after the first messages.
  const std::int64_t size = 1 << 20;
  std::vector<float> data(size, 1.0f);
  world().barrier();
  Work work = world().all_reduce(host, TensorView(data.data(), {size}), ReduceOp::sum);
  for (Timer timer; timer.elapsed_s() < 5 && !work.done();) {  // done() itself moves nothing
    for (Timer busy; busy.elapsed_ms() < 20;) {
    }
  }
  EXPECT_TRUE(work.done());
  EXPECT_EQ(data[size - 1], static_cast<float>(world().size()));
  world().barrier();
}

TEST(Split, MakesGroupsByColourInTheOrderOfKeys) {
  const int rank = world().rank();
  const auto shard_size = world().split(rank % 2, -rank, "half");
  EXPECT_EQ(shard_size->size(), (world().size() + 1 - rank % 2) / 2);
  EXPECT_EQ(shard_size->name(), "half");
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(shard_size->size()));
  shard_size->all_gather(host, ConstTensorView(&rank, {1}), TensorView(ranks.data(), {shard_size->size()})).wait(host);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i] % 2, rank % 2);
    if (i > 0) {
      EXPECT_LT(ranks[i], ranks[i - 1]);
    }
  }
}

TEST(Split, GivesNothingForANegativeColour) {
  const auto shard_size = world().split(world().rank() == 0 ? -1 : 0, 0, "rest");
  EXPECT_EQ(shard_size == nullptr, world().rank() == 0);
}

TEST(Errors, CallsThatDoNotMatchAreFound) {
  if (world().size() < 2) GTEST_SKIP() << "needs two ranks";
  if (world().size() > 8) GTEST_SKIP() << "of many ranks only some find it, whose end then ends the job";
  const auto comm = world().split(0, world().rank(), "mismatch");
  std::vector<float> data(10);
  // Rank 0 sends less than the others wait for, and gets more than it has room for.
  Work work = comm->all_reduce(host, TensorView(data.data(), {comm->rank() == 0 ? 9 : 10}), ReduceOp::sum);
  EXPECT_THROW(work.wait(host), mpi::MpiError);
}

}  // namespace
}  // namespace trireme

// More than 2^31 bytes at once, where an MPI count ends. Two ranks, about 5 GB of memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/support/mpi_world.hpp"

namespace trireme {
namespace {

using test::world;

constexpr std::int64_t size = (std::int64_t{1} << 31) + 12345;
ImmediateStream host;

/// A byte that differs between 1 GiB pieces and within their neighbourhood.
std::uint8_t value_at(std::int64_t i) { return static_cast<std::uint8_t>(i % 251 + (i >> 30)); }

/// First element that is not value_at, or -1; checks around the borders and at some elements between.
std::int64_t first_wrong(const std::uint8_t* data) {
  for (std::int64_t i = 0; i < size; i += i % (1 << 30) < 1000 || i + 20000 > size ? 1 : 997) {
    if (data[i] != value_at(i)) return i;
  }
  return -1;
}

TEST(LargeMessages, BroadcastAndExchangeExceedTheRangeOfInt) {
  std::vector<std::uint8_t> data(static_cast<std::size_t>(size));
  const TensorView x(data.data(), {size});
  if (world().rank() == 0) {
    for (std::int64_t i = 0; i < size; ++i) data[static_cast<std::size_t>(i)] = value_at(i);
  }
  world().broadcast(host, x, 0).wait(host);
  EXPECT_EQ(first_wrong(data.data()), -1);

  if (world().rank() == 0) std::memset(data.data(), 255, data.size());
  const Transfer transfer[] = {
      {world().rank() == 1 ? Transfer::Direction::send : Transfer::Direction::receive, 1 - world().rank(), x}};
  for (Work& work : world().exchange(host, transfer)) work.wait(host);
  EXPECT_EQ(first_wrong(data.data()), -1);
}

TEST(LargeMessages, AllGatherExceedsTheRangeOfInt) {
  const std::int64_t shard_size = size / 2 + 1;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(2 * shard_size));
  const TensorView whole(all.data(), {2 * shard_size});
  const TensorView own = whole.flat(world().rank() * shard_size, shard_size);
  std::memset(own.data(), 7 + world().rank(), own.size_bytes());
  world().all_gather(host, own, whole).wait(host);
  for (const std::int64_t i : {std::int64_t{0}, shard_size - 1, shard_size, 2 * shard_size - 1}) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)], 7 + i / shard_size) << i;
  }
}

TEST(LargeMessages, AllReduceExceedsTheRangeOfInt) {
  std::vector<bf16> data(static_cast<std::size_t>(size / 2), bf16(static_cast<float>(world().rank() + 1)));
  world().all_reduce(host, TensorView(data.data(), {size / 2}), ReduceOp::sum).wait(host);
  for (const std::int64_t i : {std::int64_t{0}, size / 4, size / 2 - 1}) {
    EXPECT_EQ(static_cast<float>(data[static_cast<std::size_t>(i)]), 3.0f) << i;
  }
}

}  // namespace
}  // namespace trireme

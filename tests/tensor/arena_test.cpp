#include <gtest/gtest.h>

#include <set>

#include "src/tensor/memory.hpp"

namespace trireme {
namespace {

constexpr std::size_t block = 4096;

/// Counts what it hands out.
class CountingAllocator final : public Allocator {
 public:
  Buffer allocate(std::size_t size_bytes) override {
    ++buffers;
    bytes += size_bytes;
    return {new (std::align_val_t{64}) std::byte[size_bytes], size_bytes,
            [](std::byte* data) { ::operator delete[](data, std::align_val_t{64}); }};
  }
  int buffers = 0;
  std::size_t bytes = 0;
};

class ArenaTest : public testing::Test {
 protected:
  TensorView take(std::int64_t floats) { return arena_.allocate(DType::fp32, {floats}); }
  CountingAllocator allocator_;
  Arena arena_{allocator_, block};
};

TEST_F(ArenaTest, SmallTensorsBetweenLargeOnesShareABlock) {
  for (int i = 0; i < 10; ++i) {
    take(2000);
    take(16);
    take(30);  // 120 bytes take 128
  }
  EXPECT_EQ(allocator_.buffers, 11);
  EXPECT_EQ(allocator_.bytes, 10 * 8000 + block);
  EXPECT_EQ(arena_.reserved_bytes(), allocator_.bytes);
  EXPECT_EQ(arena_.used_bytes(), 10u * (8000 + 64 + 128));
}

TEST_F(ArenaTest, ReusesTheSameMemory) {
  std::vector<std::byte*> first, second;
  for (std::vector<std::byte*>* round : {&first, &second}) {
    arena_.clear();
    for (const std::int64_t floats : {2000, 16, 3000, 200, 1, 256, 257}) round->push_back(take(floats).data());
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(arena_.peak_bytes(), arena_.used_bytes());
  const std::set<std::byte*> distinct(first.begin(), first.end());
  EXPECT_EQ(distinct.size(), first.size());
}

TEST_F(ArenaTest, RewindsToAMarkInBothKindsOfBlocks) {
  take(2000);
  const TensorView small = take(16);
  const Arena::Mark mark = arena_.mark();
  const TensorView behind = take(16), large = take(3000);
  arena_.release(mark);
  EXPECT_EQ(arena_.used_bytes(), 8000u + 64);
  EXPECT_EQ(take(16).data(), behind.data());
  EXPECT_EQ(take(3000).data(), large.data());
  EXPECT_EQ(behind.data(), small.data() + 64);
}

TEST_F(ArenaTest, ReplacesBlocksThatAreTooSmallInTheirPlace) {
  arena_ = Arena(allocator_, block, Growth::replace);
  const auto round = [&](std::int64_t varying) {
    arena_.clear();
    take(2000);
    take(varying);
    take(16);
    return take(3000).data();
  };
  const std::byte* last = round(2000);
  EXPECT_EQ(arena_.reserved_bytes(), 8000u + 8000 + block + 12032);
  EXPECT_EQ(round(2100), last);
  EXPECT_EQ(arena_.reserved_bytes(), 8000u + 8448 + 8448 / 8 + block + 12032);
  const int buffers = allocator_.buffers;
  for (const std::int64_t varying : {2300, 1900, 2340, 2000}) EXPECT_EQ(round(varying), last);
  EXPECT_EQ(allocator_.buffers, buffers);
  const Arena::Mark mark = arena_.mark();
  take(5000);
  arena_.release(mark);
  EXPECT_EQ(arena_.used_ranges().size(), 4u);
}

TEST_F(ArenaTest, SkipsBlocksThatAreTooSmall) {
  take(2000);
  arena_.clear();
  const std::byte* larger = take(2100).data();
  EXPECT_EQ(allocator_.bytes, 8000u + 8448);
  arena_.clear();
  EXPECT_EQ(take(2050).data(), larger);
  arena_.clear();
  take(1900);
  EXPECT_EQ(allocator_.buffers, 2);
}

}  // namespace
}  // namespace trireme

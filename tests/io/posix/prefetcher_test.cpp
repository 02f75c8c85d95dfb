#include "io/posix/prefetcher.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "io/posix/file.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

class PrefetcherTest : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 random(7);
    bytes_.resize(std::size_t{9} << 20 | 4321);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
    const Descriptor direct(open(path_.c_str(), O_RDONLY | O_DIRECT));
    if (!direct) GTEST_SKIP() << "the file system of " << path_ << " has no direct access";
  }

  /// Takes a range in parts of `part` bytes.
  std::vector<std::byte> taken(std::size_t offset, std::size_t size, std::size_t part) {
    std::vector<std::byte> out(size);
    for (std::size_t done = 0; done < size; done += part) {
      const auto rest = std::span(out).subspan(done, std::min(part, size - done));
      if (!prefetcher_.take(path_, static_cast<std::int64_t>(offset + done), rest)) return {};
    }
    return out;
  }
  std::vector<std::byte> expected(std::size_t offset, std::size_t size) const {
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }
  void begin(std::size_t offset, std::size_t size) {
    prefetcher_.begin(path_, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(size), Symlinks::refuse);
  }

  test::TemporaryDirectory folder_;
  std::string path_ = folder_ / "file";
  std::vector<std::byte> bytes_;
  Prefetcher prefetcher_;
};

TEST_F(PrefetcherTest, AnyRangeHasTheBytesOfTheFile) {
  const std::size_t all = bytes_.size();
  struct Case {
    std::size_t offset, size, part;
  };
  for (const auto& [offset, size, part] :
       {Case{0, 1, 1}, Case{0, all, all}, Case{4095, 4098, 1000}, Case{17, 5 << 20, 1 << 20}, Case{all - 1, 1, 1},
        Case{all - 5000, 5000, 4999}, Case{(4 << 20) - 1, 2, 2}, Case{123, 8 << 20, 3 << 20}}) {
    begin(offset, size);
    EXPECT_EQ(taken(offset, size, part), expected(offset, size)) << offset << " " << size;
    EXPECT_TRUE(taken(offset, 1, 1).empty()) << "the range was released";
  }
}

TEST_F(PrefetcherTest, RangesMayBeTakenInAnotherOrderThanTheyWereBegun) {
  begin(100, 2 << 20);
  begin(5 << 20, 1 << 20);
  begin(3 << 20, 777);
  EXPECT_EQ(taken(3 << 20, 777, 777), expected(3 << 20, 777));
  EXPECT_EQ(taken(5 << 20, 1 << 20, 9999), expected(5 << 20, 1 << 20));
  EXPECT_EQ(taken(100, 2 << 20, 1 << 20), expected(100, 2 << 20));
}

TEST_F(PrefetcherTest, WhatWasNotBegunOrCannotBeReadIsLeftToTheCaller) {
  EXPECT_TRUE(taken(0, 10, 10).empty());
  begin(10, 10);
  EXPECT_TRUE(taken(9, 10, 10).empty());
  begin(bytes_.size() - 10, 20);
  EXPECT_TRUE(taken(bytes_.size() - 10, 10, 10).empty());
  std::byte byte{};
  prefetcher_.begin(path_ + "-absent", 0, 1, Symlinks::refuse);
  EXPECT_FALSE(prefetcher_.take(path_ + "-absent", 0, {&byte, 1}));
}

TEST_F(PrefetcherTest, RangesThatAreNeverTakenMakeRoomForOthers) {
  for (std::size_t i = 0; i < 200; ++i) begin(i * 1000, 1000);
  EXPECT_EQ(taken(199 * 1000, 1000, 1000), expected(199 * 1000, 1000));
  begin(0, 8 << 20);  // still being read at the end
}

}  // namespace
}  // namespace trireme::io

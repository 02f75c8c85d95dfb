#include "io/posix/direct_io.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "src/base/error.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

/// Random bytes, more than a block, and the path of a file.
class DirectIoTest : public testing::Test {
 protected:
  DirectIoTest() : bytes_(std::size_t{9} << 20 | 777) {
    std::mt19937_64 random(3);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }
  std::string expected(std::size_t begin, std::size_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, size};
  }

  test::TemporaryDirectory folder_;
  std::string path_ = folder_ / "file";
  std::vector<std::byte> bytes_;
};

class BlockWriterTest : public DirectIoTest {
 protected:
  /// Fills the file with bytes that no test writes.
  void SetUp() override { std::ofstream(path_, std::ios::binary) << std::string(bytes_.size(), '?'); }
  void write(BlockWriter& writer, std::size_t begin, std::size_t size) const {
    writer.write(static_cast<std::int64_t>(begin), std::span(bytes_).subspan(begin, size));
  }
  std::string content() const { return test::content_of(path_); }
};

TEST_F(BlockWriterTest, BytesInPartsOfAnySizeFillTheFile) {
  for (const std::size_t part : {std::size_t{1000}, std::size_t{4096}, std::size_t{5} << 20}) {
    SetUp();
    BlockWriter writer(path_);
    for (std::size_t done = 0; done < bytes_.size(); done += part) {
      write(writer, done, std::min(part, bytes_.size() - done));
    }
    writer.finish();
    EXPECT_TRUE(content() == expected(0, bytes_.size())) << part;
  }
}

TEST_F(BlockWriterTest, WritesAtAnyOffsetWithoutChangingOtherBytes) {
  BlockWriter writer(path_);
  struct Range {
    std::size_t begin, size;
  };
  const Range ranges[] = {{5000, 6 << 20}, {4096, 904}, {0, 1}, {8 << 20, 4096}, {(8 << 20) + 4096, 10}, {12, 3000}};
  std::string wanted(bytes_.size(), '?');
  for (const auto& [begin, size] : ranges) {
    write(writer, begin, size);
    wanted.replace(begin, size, expected(begin, size));
  }
  writer.finish();
  EXPECT_TRUE(content() == wanted);
  write(writer, 3000, 1000);  // resumes after `finish`
  writer.finish();
  EXPECT_TRUE(content() == wanted.replace(3000, 1000, expected(3000, 1000)));
}

TEST_F(BlockWriterTest, AFailureOfAnEarlierWriteIsThrown) {
  std::filesystem::resize_file(path_, 0);
  BlockWriter writer(path_);
  const test::FileSizeLimit limit(5 << 20);
  const auto write_all = [&] {
    write(writer, 0, bytes_.size());
    writer.finish();
  };
  EXPECT_THAT(test::message_of(write_all), testing::AllOf(testing::HasSubstr(path_), testing::HasSubstr("ulimit -f")));
  EXPECT_THAT(test::message_of([&] { writer.finish(); }), testing::HasSubstr(path_)) << "it stays failed";
  EXPECT_THAT(test::message_of([&] { BlockWriter(folder_ / "absent"); }), testing::HasSubstr("cannot write"));
}

class PrefetcherTest : public DirectIoTest {
 protected:
  void SetUp() override {
    std::ofstream(path_, std::ios::binary) << expected(0, bytes_.size());
    const Descriptor direct(open(path_.c_str(), O_RDONLY | O_DIRECT));
    if (!direct) GTEST_SKIP() << "the file system of " << path_ << " has no direct access";
  }

  /// Takes a range in parts of `part` bytes.
  std::string taken(std::size_t offset, std::size_t size, std::size_t part) {
    std::string out(size, '\0');
    for (std::size_t done = 0; done < size; done += part) {
      const auto rest = std::as_writable_bytes(std::span(out)).subspan(done, std::min(part, size - done));
      if (!prefetcher_.take(path_, static_cast<std::int64_t>(offset + done), rest)) return {};
    }
    return out;
  }
  void begin(std::size_t offset, std::size_t size) {
    prefetcher_.begin(path_, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(size), Symlinks::refuse);
  }

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
    EXPECT_TRUE(taken(offset, size, part) == expected(offset, size)) << offset << " " << size;
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

TEST_F(PrefetcherTest, MissingAndUnreadableRangesAreLeftToTheCaller) {
  EXPECT_TRUE(taken(0, 10, 10).empty());
  begin(10, 10);
  EXPECT_TRUE(taken(9, 10, 10).empty());
  begin(bytes_.size() - 10, 20);
  EXPECT_TRUE(taken(bytes_.size() - 10, 10, 10).empty());
  std::byte byte{};
  prefetcher_.begin(path_ + "-absent", 0, 1, Symlinks::refuse);
  EXPECT_FALSE(prefetcher_.take(path_ + "-absent", 0, {&byte, 1}));
}

TEST_F(PrefetcherTest, UnusedRangesAreReplaced) {
  for (std::size_t i = 0; i < 200; ++i) begin(i * 1000, 1000);
  EXPECT_EQ(taken(199 * 1000, 1000, 1000), expected(199 * 1000, 1000));
  begin(0, 8 << 20);  // still being read at the end
}

}  // namespace
}  // namespace trireme::io

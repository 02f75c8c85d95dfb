#include "io/posix/block_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "src/base/error.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

class BlockWriterTest : public testing::Test {
 protected:
  /// Fills the file with bytes that no test writes.
  void SetUp() override {
    std::mt19937_64 random(3);
    bytes_.resize(std::size_t{9} << 20 | 777);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    std::ofstream(path_, std::ios::binary) << std::string(bytes_.size(), '?');
  }
  void write(BlockWriter& writer, std::size_t begin, std::size_t size) const {
    writer.write(static_cast<std::int64_t>(begin), std::span(bytes_).subspan(begin, size));
  }
  std::string content() const { return test::content_of(path_); }
  std::string expected(std::size_t begin, std::size_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, size};
  }

  test::TemporaryDirectory folder_;
  std::string path_ = folder_ / "file";
  std::vector<std::byte> bytes_;
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

TEST_F(BlockWriterTest, PlacesMayLieAnywhereAndNothingBesideThemChanges) {
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

}  // namespace
}  // namespace trireme::io

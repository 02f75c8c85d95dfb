#include "cuda/cublaslt/algorithm_cache.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.hpp"

namespace trireme::cuda {
namespace {

Choice choice(std::uint64_t word) {
  return {
      .fused = word % 2 == 1, .workspace_bytes = 1000 * word, .algorithm = {word, ~word, 0, 4, 5, 6, 7, word << 40}};
}

class AlgorithmCaches : public testing::Test {
 protected:
  const test::TemporaryDirectory folder;
  const std::string file = folder / "algorithms";
};

TEST_F(AlgorithmCaches, RestoresTheChoicesOfAnEarlierRun) {
  const std::string in_new_folder = folder / "new folder/algorithms";
  AlgorithmCache(in_new_folder, "NVIDIA H200", 130100).keep("a product", choice(3));
  const AlgorithmCache cache(in_new_folder, "NVIDIA H200", 130100);
  EXPECT_EQ(cache.find("a product"), choice(3));
  EXPECT_EQ(cache.find("another product"), std::nullopt);
}

TEST_F(AlgorithmCaches, KeepsDevicesAndVersionsApart) {
  AlgorithmCache(file, "NVIDIA H200", 130100).keep("a product", choice(1));
  AlgorithmCache(file, "NVIDIA A100", 130100).keep("a product", choice(2));
  AlgorithmCache(file, "NVIDIA H200", 130200).keep("a product", choice(4));
  EXPECT_EQ(AlgorithmCache(file, "NVIDIA H200", 130100).find("a product"), choice(1));
  EXPECT_EQ(AlgorithmCache(file, "NVIDIA A100", 130100).find("a product"), choice(2));
  EXPECT_EQ(AlgorithmCache(file, "NVIDIA A100", 130200).find("a product"), std::nullopt);
}

TEST_F(AlgorithmCaches, RanksThatWriteInTurnLoseNothing) {
  AlgorithmCache first(file, "GPU", 1), second(file, "GPU", 1);
  first.keep("of the first", choice(1));
  second.keep("of the second", choice(2));
  EXPECT_FALSE(std::filesystem::exists(file)) << "written before all is chosen";
  first.write();
  second.write();
  first.keep("another of the first", choice(3));
  first.write();
  const AlgorithmCache all(file, "GPU", 1);
  EXPECT_EQ(all.find("of the first"), choice(1));
  EXPECT_EQ(all.find("of the second"), choice(2));
  EXPECT_EQ(all.find("another of the first"), choice(3));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "no temporary file stays";
}

TEST_F(AlgorithmCaches, RewritesWhatAnotherRankOverwrote) {
  {
    AlgorithmCache cache(file, "GPU", 1);
    cache.keep("a product", choice(1));
    cache.write();
    std::filesystem::remove(file);
  }
  EXPECT_EQ(AlgorithmCache(file, "GPU", 1).find("a product"), choice(1));
}

TEST_F(AlgorithmCaches, DoesNotRewriteACompleteFile) {
  AlgorithmCache(file, "GPU", 1).keep("a product", choice(1));
  const auto written = std::filesystem::last_write_time(file);
  std::filesystem::last_write_time(file, written - std::chrono::hours(1));
  AlgorithmCache cache(file, "GPU", 1);
  cache.write();
  EXPECT_LT(std::filesystem::last_write_time(file), written);
}

TEST_F(AlgorithmCaches, IgnoresInvalidLines) {
  AlgorithmCache(file, "GPU", 1).keep("good", choice(1));
  std::ofstream(file, std::ios::app) << "GPU\t1\tcut short\tfused\t12\n"
                                     << "GPU\t1\tno number\tfused\ttwelve\t" << std::string(128, '0') << "\n"
                                     << "GPU\t1\tno digits\tfused\t12\t" << std::string(128, 'x') << "\n"
                                     << "GPU\t1\tno form\tmelted\t12\t" << std::string(128, '0') << "\n\n";
  const AlgorithmCache cache(file, "GPU", 1);
  EXPECT_EQ(cache.find("good"), choice(1));
  for (const char* bad : {"cut short", "no number", "no digits", "no form"}) EXPECT_EQ(cache.find(bad), std::nullopt);
}

TEST_F(AlgorithmCaches, DoesNotOverwriteOtherFiles) {
  const std::string text = folder / "text", pipe = folder / "pipe";
  std::ofstream(text) << "another's notes\n";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {text, pipe, folder.path()}) {
    AlgorithmCache cache(path, "GPU", 1);
    cache.keep("a product", choice(1));
    EXPECT_EQ(cache.find("a product"), choice(1));
  }
  std::string line;
  std::getline(std::ifstream(text), line);
  EXPECT_EQ(line, "another's notes");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2) << "no temporary file stays";
}

TEST_F(AlgorithmCaches, KeepsChoicesForTheRunIfTheFileCannotBeWritten) {
  AlgorithmCache cache("/proc/no such folder/algorithms", "GPU", 1);
  cache.keep("a product", choice(1));
  EXPECT_EQ(cache.find("a product"), choice(1));
}

}  // namespace
}  // namespace trireme::cuda

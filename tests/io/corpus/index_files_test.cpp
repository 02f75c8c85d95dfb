#include "io/corpus/index_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/base/log.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/sample_text.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  return paths;
}

class IndexCacheFiles : public ::testing::Test {
 protected:
  std::shared_ptr<data::TokenStore> store(std::int32_t first) const {
    std::vector<std::vector<std::int32_t>> documents;
    for (std::int32_t d = 0; d < 150; ++d) documents.emplace_back(1 + (d * 7) % 23, (first + d) % 250);
    data::CorpusInfo info;
    info.tokenizer_digest = "0";
    info.vocabulary_size = 257;
    return std::make_shared<data::MemoryTokenStore>(info, documents);
  }
  /// All training samples of a run.
  static std::vector<std::int32_t> samples(const std::shared_ptr<data::TokenStore>& store, data::IndexCache* cache,
                                           std::int64_t budget = 500, std::int64_t seed = 1) {
    data::GptDataOptions options;
    options.sequence_length = 8;
    options.seed = seed;
    options.budgets = {{budget, 0, 0}};
    options.cache = cache;
    const data::SampleSplits data = data::make_gpt_data({{store}}, options);
    std::vector<std::int32_t> all;
    for (std::int64_t i = 0; i < data.train->size(); ++i) {
      const std::vector<std::int32_t> sample = test::text_of(*data.train, i);
      all.insert(all.end(), sample.begin(), sample.end());
    }
    return all;
  }

  test::TemporaryDirectory directory_;
  std::string folder_ = directory_ / "deep/cache";
  IndexFiles cache_{folder_, 0};
};

TEST_F(IndexCacheFiles, AreReadAndDoNotChangeTheOrder) {
  const auto corpus = store(0);
  const auto expected = samples(corpus, nullptr);
  log::initialise(0, 1);
  const auto expect_logged = [&](const std::string& source) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(samples(corpus, &cache_), expected);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                ::testing::MatchesRegex(".* order of training samples of memory: " + source + " .*/cache/[^ ]*\n"));
  };
  expect_logged("stored in");
  ASSERT_EQ(files_in(folder_).size(), 1u);
  const auto written = std::filesystem::last_write_time(files_in(folder_)[0]);
  expect_logged("read from");
  ASSERT_EQ(files_in(folder_).size(), 1u);
  EXPECT_EQ(std::filesystem::last_write_time(files_in(folder_)[0]), written);
}

TEST_F(IndexCacheFiles, ExistOncePerSetOfInputsOfTheOrder) {
  for (const auto& corpus : {store(0), store(1)}) {
    for (const std::int64_t seed : {1, 2}) {
      for (const std::int64_t budget : {100, 150, 500}) {  // one, one and three epochs of 215 samples
        EXPECT_EQ(samples(corpus, &cache_, budget, seed), samples(corpus, nullptr, budget, seed));
      }
    }
  }
  EXPECT_EQ(files_in(folder_).size(), 8u);
}

TEST_F(IndexCacheFiles, AreRebuiltIfDamagedOrForeign) {
  const auto corpus = store(0);
  const auto expected = samples(corpus, &cache_);
  const std::string path = files_in(folder_)[0];
  const std::string good = test::content_of(path);
  const auto replace = [&](const std::string& bytes) {
    std::filesystem::remove(path);  // the old one may still be mapped
    std::ofstream(path, std::ios::binary) << bytes;
  };
  const auto expect_made_again = [&](const std::string& bytes) {
    replace(bytes);
    EXPECT_EQ(samples(corpus, &cache_), expected);
    EXPECT_TRUE(test::content_of(path) == good);
  };
  for (std::size_t size = 0; size < good.size(); size = size * 3 / 2 + 5) expect_made_again(good.substr(0, size));
  for (std::size_t at = 0; at < good.size(); at = at * 3 / 2 + 1) {
    std::string bad = good;
    bad[at] ^= 4;
    expect_made_again(bad);
  }
  std::string bad = good;
  bad[good.size() - 1] ^= 4;
  expect_made_again(bad);
  expect_made_again(good + "x");
  expect_made_again("");

  samples(corpus, &cache_, 500, 2);  // another's file under this name
  for (const auto& other : files_in(folder_)) {
    if (other == path) continue;
    std::filesystem::copy_file(other, path, std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_EQ(samples(corpus, &cache_), expected);
}

TEST_F(IndexCacheFiles, AreOptionalIfTheyCannotBeWritten) {
  const auto corpus = store(0);
  std::ofstream(directory_ / "file") << "no folder";
  IndexFiles cache(directory_ / "file/cache", 0);
  EXPECT_EQ(samples(corpus, &cache), samples(corpus, nullptr));
  IndexFiles nowhere("/proc/cache", 0);
  EXPECT_EQ(samples(corpus, &nowhere), samples(corpus, nullptr));
  const test::FileSizeLimit limit(16);
  EXPECT_EQ(samples(corpus, &cache_), samples(corpus, nullptr));
  EXPECT_THAT(files_in(folder_), ::testing::IsEmpty());
}

TEST_F(IndexCacheFiles, AreNotMadeForSmallCorpora) {
  IndexFiles cache(folder_);
  samples(store(0), &cache);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

/// Bytes of mapped files in this process' memory.
std::int64_t resident_file_bytes() {
  std::ifstream status("/proc/self/status");
  std::string name;
  std::int64_t kib = 0;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    if (words >> name >> kib && name == "RssFile:") return kib << 10;
  }
  return 0;
}

TEST_F(IndexCacheFiles, TakeNoMemoryBeforeTheyAreRead) {
  const auto corpus = store(0);
  const std::vector<std::byte> array(std::size_t{32} << 20, std::byte{7});
  const data::SampleOrder order{*corpus, "", "large"};
  cache_.keep(order, {array});
  const std::int64_t before = resident_file_bytes();
  const data::IndexCache::Kept kept = cache_.find(order);
  const std::int64_t taken = resident_file_bytes() - before;
  ASSERT_TRUE(kept.owner);
  EXPECT_LT(taken, std::int64_t{8} << 20);
  EXPECT_TRUE(std::ranges::equal(kept.arrays[0], array));
  EXPECT_GT(resident_file_bytes() - before, std::int64_t{30} << 20);  // the measure works
}

TEST_F(IndexCacheFiles, MayBeMadeByManyProcessesAtOnce) {
  const auto corpus = store(0);
  const auto expected = samples(corpus, nullptr);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    bool good = true;
    for (int round = 0; round < 20; ++round) {
      IndexFiles cache(folder_, 0);
      good = good && samples(corpus, &cache) == expected;
      std::error_code ignored;
      if (i == 0) std::filesystem::remove_all(folder_, ignored);
    }
    _exit(good ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace trireme::io

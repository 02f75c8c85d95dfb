#include "io/metrics/progress_file.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using testing::ElementsAre;

class ProgressFileTest : public testing::Test {
 protected:
  ProgressFileTest() {
    std::tm noon{};
    noon.tm_year = 126, noon.tm_mon = 2, noon.tm_mday = 14, noon.tm_hour = 12, noon.tm_isdst = -1;
    now_ = std::mktime(&noon);
    setenv("SLURM_JOB_ID", "77", 1);
  }
  ~ProgressFileTest() override { unsetenv("SLURM_JOB_ID"); }
  ProgressFile start(int ranks, double petaflops) {
    return {
        directory_.path(), ranks, {.iteration = 0, .flops = petaflops * 1e15, .tokens = 0}, [this] { return now_; }};
  }
  static RunWork work(std::int64_t iteration, double petaflops) {
    return {.iteration = iteration, .flops = petaflops * 1e15, .tokens = 2.5e9};
  }
  std::vector<std::string> lines() const {
    std::ifstream in(directory_ / "progress.txt");
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }

  const test::TemporaryDirectory directory_;
  std::time_t now_ = 0;
};

TEST_F(ProgressFileTest, HasMegatronsLines) {
  ProgressFile file = start(4, 0);
  now_ += 100;
  file.add_checkpoint(work(50, 12), false);
  EXPECT_THAT(lines(), ElementsAre("2026-03-14 12:00:00\tJob ID: 77\t# GPUs: 4\tStarting job",
                                   "2026-03-14 12:01:40\tJob ID: 77\t# GPUs: 4\tSaved checkpoint\tIteration: 50\t"
                                   "Job throughput: 30.0 TFLOP/s/GPU\tCumulative throughput: 30.0 TFLOP/s/GPU\t"
                                   "Floating-point operations: 1.20e+16\tTokens (in billions): 2.50"));
}

// The second job begins an hour later, with what the first one saved.
TEST_F(ProgressFileTest, TheCumulativeThroughputCountsTheTimeBetweenJobs) {
  start(2, 0).add_checkpoint(work(10, 4), false);
  now_ += 900;
  ProgressFile second = start(2, 4);
  now_ += 100;
  second.add_checkpoint(work(20, 8), false);
  EXPECT_THAT(lines().back(), testing::HasSubstr("\tJob throughput: 20.0 TFLOP/s/GPU\tCumulative throughput: 4.0 "));
}

TEST_F(ProgressFileTest, AnotherNumberOfRanksBeginsANewRow) {
  start(2, 0).add_checkpoint(work(10, 4), true);
  start(2, 0).add_arrival(10);
  now_ += 900;
  ProgressFile wide = start(4, 4);
  now_ += 100;
  wide.add_checkpoint(work(20, 12), false);
  EXPECT_THAT(lines().back(), testing::HasSubstr("\tJob throughput: 20.0 TFLOP/s/GPU\tCumulative throughput: 20.0 "));
}

TEST_F(ProgressFileTest, ToleratesMissingLines) {
  std::ofstream(directory_ / "progress.txt") << "no fields\n\t\t\t\n2026-03-14\tx\t# GPUs: 1\tStarting job\n";
  ProgressFile file = start(1, 0);
  now_ += 10;
  EXPECT_NO_THROW(file.add_checkpoint(work(5, 1), false));
}

}  // namespace
}  // namespace trireme::io

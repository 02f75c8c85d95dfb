#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/app/run_config/read_config.hpp"

namespace trireme::app {
namespace {

TEST(RunConfig, ReadsReportsOfTimes) {
  const ReportOptions report = read(gpt + "--mfu-peak H100 --timing-log-level 2 --timing-log-option max").report;
  EXPECT_EQ(report.peak.value().tflops, 989.4);
  EXPECT_EQ(report.timing_level, 2);
  EXPECT_EQ(report.timing_option, train::TimingOption::max);
  expect_refused(gpt + "--mfu-peak H1000", "--mfu-peak H1000: is neither a number of TFLOP/s nor one of GB200");
  expect_refused(gpt + "--log-straggler --cuda-graphs", "--log-straggler and --cuda-graphs exclude each other");
}

TEST(RunConfig, ReadsWhatAProfilerRecords) {
  const Words profiled = gpt + "--profile";
  const ReportOptions report = read(profiled).report;
  EXPECT_TRUE(report.profile);
  EXPECT_EQ(report.profile_start, 10);
  EXPECT_EQ(report.profile_end, 12);
  EXPECT_THAT(report.profile_ranks, ::testing::ElementsAre(0));
  expect_refused(profiled + "--profile-ranks 0 1", "--profile-ranks 1: the ranks of this job are 0 to 0");
  expect_refused(profiled + "--profile-ranks all",
                 "--profile-ranks all has the element 'all', which is not a whole number");
  expect_refused(profiled + "--profile-step-end 10", "--profile-step-start 10 must be less than --profile-step-end 10");
}

TEST(RunConfig, ReadsTheCurvesOfTensorboard) {
  const RunConfig all = read(gpt + "--tensorboard-dir x");
  EXPECT_TRUE(all.report.tensorboard.learning_rate && all.report.tensorboard.loss_scale);
  const RunConfig few = read(
      "--model gpt2-124m --data-path a.h5 --tensorboard-dir x --no-log-learnig-rate-to-tensorboard "
      "--no-log-loss-scale-to-tensorboard");
  EXPECT_FALSE(few.report.tensorboard.learning_rate || few.report.tensorboard.loss_scale);
}

}  // namespace
}  // namespace trireme::app

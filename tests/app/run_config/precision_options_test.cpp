#include "src/app/run_config/precision_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/app/run_config/read_config.hpp"

namespace trireme::app {
namespace {

train::TrainOptions options_of(const Words& words) { return read(gpt + words).train_options(); }

TEST(PrecisionOptions, RefusesGuardsThatWouldDoNothing) {
  expect_refused(gpt + "--max-skipped 3", "--max-skipped needs --no-check-for-nan-in-loss-and-grad or fp16");
  EXPECT_EQ(options_of("--max-skipped 3 --no-check-for-nan-in-loss-and-grad").max_skipped, 3);
  EXPECT_EQ(options_of("--max-skipped 3 --fp16").max_skipped, 3);
  expect_refused(gpt + "--max-machine-faults 1 --fp16", "--max-machine-faults excludes");
  EXPECT_EQ(options_of("--max-machine-faults 1").guards.max_machine_faults, 1);
  expect_refused(gpt + "--skip-spiky-loss", "--skip-spiky-loss needs --check-for-spiky-loss");
  expect_refused(gpt + "--spiky-loss-factor 5", "--spiky-loss-factor needs --check-for-spiky-loss");
  EXPECT_EQ(options_of("--check-for-spiky-loss").guards.spiky_loss_factor, 10);
  expect_refused(gpt + "--iterations-to-skip 3 0",
                 "--iterations-to-skip 3 0 has the element '0', which must be at least 1");
  EXPECT_EQ(options_of("--iterations-to-skip 7 3").guards.iterations_to_skip, (std::set<std::int64_t>{3, 7}));
  const Attributes attributes = attributes_of(options_of("--iterations-to-skip 7 3"));
  EXPECT_EQ(attributes.texts().at("training.iterations-to-skip"), "3 7");
}

}  // namespace
}  // namespace trireme::app

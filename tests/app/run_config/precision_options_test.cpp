#include "src/app/run_config/precision_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/app/run_config/run_config.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

train::TrainOptions options_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(),
                   {"--lr", "1", "--train-iters", "1", "--seq-length", "16", "--model", "gpt2-124m", "--mock-data"});
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(arguments);
  return reader.settle(1).train_options();
}

void expect_unsettled(const std::vector<std::string>& arguments, const std::string& message) {
  EXPECT_THAT([&] { options_of(arguments); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
}

TEST(PrecisionOptions, RefusesGuardsThatWouldDoNothing) {
  expect_unsettled({"--max-skipped", "3"}, "--max-skipped needs --no-check-for-nan-in-loss-and-grad or fp16");
  EXPECT_EQ(options_of({"--max-skipped", "3", "--no-check-for-nan-in-loss-and-grad"}).max_skipped, 3);
  EXPECT_EQ(options_of({"--max-skipped", "3", "--fp16"}).max_skipped, 3);
  expect_unsettled({"--max-machine-faults", "1", "--fp16"}, "--max-machine-faults excludes");
  EXPECT_EQ(options_of({"--max-machine-faults", "1"}).guards.max_machine_faults, 1);
  expect_unsettled({"--skip-spiky-loss"}, "--skip-spiky-loss needs --check-for-spiky-loss");
  expect_unsettled({"--spiky-loss-factor", "5"}, "--spiky-loss-factor needs --check-for-spiky-loss");
  EXPECT_EQ(options_of({"--check-for-spiky-loss"}).guards.spiky_loss_factor, 10);
  expect_unsettled({"--iterations-to-skip", "3", "0"},
                   "--iterations-to-skip 3 0 has the element '0', which must be at least 1");
  EXPECT_EQ(options_of({"--iterations-to-skip", "7", "3"}).guards.iterations_to_skip, (std::set<std::int64_t>{3, 7}));
  const Attributes attributes = attributes_of(options_of({"--iterations-to-skip", "7", "3"}));
  EXPECT_EQ(attributes.texts().at("training.iterations-to-skip"), "3 7");
}

}  // namespace
}  // namespace trireme::app

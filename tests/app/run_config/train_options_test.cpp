#include "src/app/run_config/train_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Options beside the few that every run needs are refused with this message.
void expect_refused(std::vector<std::string> arguments, const std::string& message) {
  for (const char* given : {"--seq-length", "16", "--lr", "1", "--train-iters", "1"}) arguments.emplace_back(given);
  EXPECT_THAT(
      [&] {
        TrainCommandOptions o;
        Options options("trireme train", "");
        o.declare(options);
        options.parse(arguments);
        o.settle(options, 1);
      },
      ThrowsMessage<ConfigError>(HasSubstr(message)));
}

TEST(TrainOptions, CorporaAreOneOrEachHasAWeight) {
  expect_refused({"--data-path", "a.h5", "foo"}, "unexpected 'foo' after 'a.h5'; give one corpus, or a weight before");
  expect_refused({"--data-path", "1", "a.h5", "b.h5"}, "unexpected 'b.h5' after 'a.h5'");
  expect_refused({"--data-path", "1", "a.h5", "1"}, "no corpus follows the weight 1");
  for (const std::string weight : {"0", "-1", "nan", "inf"}) {
    expect_refused({"--data-path", weight, "a.h5"}, "a.h5 has weight " + weight + "; weights must be positive");
  }
}

TEST(TrainOptions, WhatConcernsACheckpointIsRefusedWithoutOne) {
  expect_refused({"--data-path", "a.h5", "--allow-new-data"}, "--allow-new-data needs --load");
  expect_refused({"--data-path", "a.h5", "--load-or-init"}, "--load-or-init needs --load");
}

TEST(TrainOptions, ThoseOfAnotherOptimizerAreRefused) {
  for (const std::string name : {"adam-beta1", "adam-beta2", "adam-eps"}) {
    expect_refused({"--data-path", "a.h5", "--optimizer", "sgd", "--" + name, "0.5"},
                   "--" + name + " needs --optimizer adam");
  }
  expect_refused({"--data-path", "a.h5", "--sgd-momentum", "0.5"}, "--sgd-momentum needs --optimizer sgd");
}

TEST(TrainOptions, SizesHaveBounds) {
  const std::string most = "2147483647";
  for (const std::string name : {"num-layers", "vpp", "num-layers-per-virtual-pipeline-stage", "recompute-num-layers",
                                 "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"}) {
    expect_refused({"--data-path", "a.h5", "--" + name, most}, " 2147483647 must be between 1 and 2000");
  }
  for (const std::string name : {"tp", "pp", "cp"}) {
    expect_refused({"--data-path", "a.h5", "--" + name, most}, " 2147483647 must be between 1 and 99999");
  }
  expect_refused({"--data-path", "a.h5", "--lr-decay-iters", "9223372036854775807"}, "must be between 1 and 1e+18");
  expect_refused({"--data-path", "a.h5", "--global-batch-size", most}, "more than the 100000 that can be planned");
}

}  // namespace
}  // namespace trireme::app

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/app/run_config/run_config.hpp"

namespace trireme::app {

/// Reads a command line on one rank. It needs options beside the few that every run has.
inline RunConfig read(std::vector<std::string> arguments, const std::string& sequence_length = "16") {
  for (const char* given : {"--lr", "1", "--train-iters", "1"}) arguments.emplace_back(given);
  if (!sequence_length.empty()) arguments.insert(arguments.end(), {"--seq-length", sequence_length});
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(arguments);
  return reader.settle(1);
}

/// Expects a command line to be refused with this message.
inline void expect_refused(const std::vector<std::string>& arguments, const std::string& message) {
  EXPECT_THAT([&] { read(arguments); }, ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(message)));
}

}  // namespace trireme::app

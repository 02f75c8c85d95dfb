#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/app/run_config/run_config.hpp"
#include "tests/app/words.hpp"

namespace trireme::app {

/// A model and its corpus.
inline const Words gpt = "--model gpt2-124m --data-path a.h5";

/// Reads a command line on one rank, with the options that every run needs.
inline RunConfig read(const Words& words, const std::string& sequence_length = "16") {
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(words + "--lr 1 --train-iters 1" +
                (sequence_length.empty() ? Words() : Words{"--seq-length", sequence_length}));
  return reader.settle(1);
}

/// Expects a command line to be refused with this message.
inline void expect_refused(const Words& words, const std::string& message) {
  EXPECT_THAT([&] { read(words); }, ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(message)));
}

}  // namespace trireme::app

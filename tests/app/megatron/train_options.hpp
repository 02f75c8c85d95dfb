#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "src/app/megatron/translation.hpp"
#include "src/app/run_config/run_config.hpp"
#include "tests/app/words.hpp"

namespace trireme::app::megatron {

/// Options of `trireme train`.
class TrainOptionsTest : public ::testing::Test {
 protected:
  std::vector<std::string> words(const Words& arguments) const { return translate(arguments, options_).arguments; }
  Kind kind_of(const Words& arguments) const { return translate(arguments, options_).verdicts.front().kind; }

  Options options_{"trireme train", "Trains a model."};
  RunConfigReader reader_{options_};
};

/// Returns the names of the options in a text.
inline std::vector<std::string> options_in(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> options;
  for (std::string word; stream >> word;) {
    if (word.starts_with("--")) options.push_back(word.substr(2));
  }
  return options;
}

}  // namespace trireme::app::megatron

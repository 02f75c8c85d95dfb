#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "src/app/options/field_names.hpp"
#include "src/base/check.hpp"

namespace trireme::app {

/// Problems of a configuration, reported at once.
class Problems {
 public:
  /// Adds `problem` where a condition does not hold. A problem that is known already is not repeated.
  void expect(bool holds, const std::string& problem) {
    if (!holds && std::ranges::find(texts_, problem) == texts_.end()) texts_.push_back(problem);
  }
  /// Runs `action`; a ConfigError that it throws is a problem.
  template <class Action>
  void attempt(const Action& action) {
    try {
      action();
    } catch (const ConfigError& error) {
      expect(false, with_flags(error.what()));
    }
  }
  /// Throws one ConfigError with all problems, if there are any.
  void report() const {
    std::string text;
    for (const std::string& problem : texts_) text += (text.empty() ? "" : "\n  ") + problem;
    TRIREME_CHECK(text.empty(), ConfigError, "{}", text);
  }

 private:
  std::vector<std::string> texts_;
};

}  // namespace trireme::app

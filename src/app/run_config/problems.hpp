#pragma once

#include <string>

#include "src/app/options/field_names.hpp"
#include "src/base/check.hpp"

namespace trireme::app {

/// Everything that is wrong with a configuration, to be reported at once.
class Problems {
 public:
  void expect(bool holds, const std::string& problem) {
    if (!holds) text_ += (text_.empty() ? "" : "\n  ") + problem;
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
  void report() const { TRIREME_CHECK(text_.empty(), ConfigError, "{}", text_); }

 private:
  std::string text_;
};

}  // namespace trireme::app

#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/app/options/field_names.hpp"
#include "src/app/options/options.hpp"
#include "src/base/check.hpp"

namespace trireme::app {

/// Problems of a configuration, reported together.
class Problems {
 public:
  /// Adds `problem` unless the condition holds. A known problem is not repeated.
  void expect(bool holds, const std::string& problem) {
    if (!holds && std::ranges::find(texts_, problem) == texts_.end()) texts_.push_back(problem);
  }
  /// Adds "--NAME needs NEEDED" for each option of `names` that was requested, unless the condition holds.
  void need(const Options& options, std::initializer_list<const char*> names, bool holds, std::string_view needed) {
    for (const char* name : names) {
      expect(holds || !options.requested(name), fmt::format("--{} needs {}", name, needed));
    }
  }
  /// Adds "--A and --B exclude each other" and the reason, if any, unless the condition holds.
  void exclude(bool holds, std::string_view a, std::string_view b, std::string_view reason = "") {
    expect(holds, fmt::format("--{} and --{} exclude each other{}{}", a, b, reason.empty() ? "" : ": ", reason));
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
  /// Throws one ConfigError with all problems, if any.
  void report() const { TRIREME_CHECK(texts_.empty(), ConfigError, "{}", fmt::join(texts_, "\n  ")); }

 private:
  std::vector<std::string> texts_;
};

}  // namespace trireme::app

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/report/run.hpp"

namespace trireme::report {

/// Content and settings of a page.
struct Page {
  std::vector<Run> runs;
  std::string version;       ///< version of this program
  std::int64_t made_at = 0;  ///< seconds since 1970
  int renewal_seconds = 0;   ///< a page that is served renews itself this often; 0: never
  /// Replaces fields in angle brackets by the flags of the program, in messages of this folder.
  std::function<std::string(std::string_view)> spell;
};

/// Returns the page as one self-contained HTML document, complete without its script (page.js). Its colours follow the
/// reader's light or dark theme, its columns the window width.
std::string html_of(const Page& page);

/// Returns a page that holds a message in place of runs, and renews itself.
std::string html_of_message(const Page& page, const std::string& message);

}  // namespace trireme::report

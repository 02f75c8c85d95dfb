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
  /// Replaces fields in angle brackets by the flags of the program, in messages of this folder.
  std::function<std::string(std::string_view)> spell;
};

/// Returns the page as one self-contained HTML document without scripts. Its colours follow the reader's light or dark
/// theme, its columns the window width.
std::string html_of(const Page& page);

}  // namespace trireme::report

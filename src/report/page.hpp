#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/report/run.hpp"

namespace trireme::report {

/// Content of a page, and how it is made.
struct Page {
  std::vector<Run> runs;
  std::string version;       ///< version of this program
  std::int64_t made_at = 0;  ///< seconds since 1970
  /// Replaces fields in angle brackets by the flags of the program, in messages of this folder.
  std::function<std::string(std::string_view)> spell;
};

/// Returns the page as HTML: one document that names no other file. It has no script. Its colours follow the reader's
/// choice of light or dark, its columns the width of the window.
std::string html_of(const Page& page);

}  // namespace trireme::report

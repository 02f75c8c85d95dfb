#pragma once

#include <string_view>

namespace trireme::report {

/// The files page.css and page.js, embedded by the build.
extern const std::string_view style_sheet;
extern const std::string_view page_script;

}  // namespace trireme::report

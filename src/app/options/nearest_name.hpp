#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trireme::app {

/// Returns "; did you mean PREFIXNAME?" for the candidate nearest to a misspelt or abbreviated `name`; empty if none is
/// near.
std::string suggestion(const std::string& name, std::span<const std::string> candidates, std::string_view prefix = "");

}  // namespace trireme::app

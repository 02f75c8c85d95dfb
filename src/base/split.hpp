#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace trireme {

/// Returns the parts of `text` between separators, as views of it. As with std::getline, an empty part after the last
/// separator does not count.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    parts.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(parts.back().size() + 1, text.size()));
  }
  return parts;
}

}  // namespace trireme

#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Fraction of `all` that `part` is; 0 of nothing.
inline double share(double part, double all) { return all > 0 ? part / all : 0; }

/// The parts of `text` between runs of at least `min_feeds` line feeds: Python's re.split.
std::vector<std::string_view> parts_of(std::string_view text, std::size_t min_feeds);

/// Parts of a text, and those that are equal to an earlier one.
struct Repetition {
  double all = 0, repeated = 0, repeated_characters = 0;
};
Repetition repetition_of(const std::vector<std::string_view>& parts);

}  // namespace trireme::data

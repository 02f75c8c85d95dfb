#include "src/app/options/nearest_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

namespace trireme::app {
namespace {

/// Damerau-Levenshtein distance, ignoring case: insertions, deletions, substitutions and swaps of neighbours, each
/// letter edited once.
std::size_t distance(std::string_view a, std::string_view b) {
  const auto same = [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); };
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({next[j] + 1, row[j + 1] + 1, row[j] + !same(a[i], b[j])});
      if (i > 0 && j > 0 && same(a[i], b[j - 1]) && same(a[i - 1], b[j]))
        next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row.back();
}

}  // namespace

std::string suggestion(const std::string& name, std::span<const std::string> candidates, std::string_view prefix) {
  constexpr std::size_t max_length = 100;  // longer than any option; the cost is the product of the lengths
  if (name.size() > max_length) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const bool abbreviated = name.size() >= 3 && candidate.starts_with(name);
    const std::size_t d = abbreviated ? 1 : distance(name, candidate);
    if (d < best_distance && d < name.size()) {
      best_distance = d;
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, best);
}

}  // namespace trireme::app

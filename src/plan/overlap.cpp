#include "src/plan/overlap.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::plan {

CriticalPath critical_path(std::span<const OverlapStep> steps) {
  constexpr double not_started = -1;
  CriticalPath path;
  std::vector<double> link_is_free, ends;
  const auto at = [](std::vector<double>& values, int i, double initial) -> double& {
    if (values.size() <= static_cast<std::size_t>(i)) values.resize(static_cast<std::size_t>(i) + 1, initial);
    return values[static_cast<std::size_t>(i)];
  };
  for (const OverlapStep& step : steps) {
    path.time += step.compute;
    if (step.kind == OverlapStep::Kind::start) {
      double& free = at(link_is_free, step.link, 0);
      free = std::max(free, path.time) + step.duration;
      at(ends, step.operation, not_started) = free;
      continue;
    }
    const double end = at(ends, step.operation, not_started);
    TRIREME_CHECK(end != not_started, ConfigError, "communication {} is waited for and was never started",
                  step.operation);
    at(path.waits, step.operation, 0) += std::max(0.0, end - path.time);
    path.time = std::max(path.time, end);
  }
  path.waits.resize(ends.size());
  return path;
}

}  // namespace trireme::plan

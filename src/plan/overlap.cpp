#include "src/plan/overlap.hpp"

#include <algorithm>
#include <map>

#include "src/base/check.hpp"

namespace trireme::plan {

double critical_path(std::span<const OverlapStep> steps) {
  double now = 0;
  double link_is_free = 0;
  std::map<int, double> ends;
  for (const OverlapStep& step : steps) {
    now += step.compute;
    if (step.kind == OverlapStep::Kind::start) {
      link_is_free = std::max(link_is_free, now) + step.duration;
      ends[step.operation] = link_is_free;
    } else {
      const auto end = ends.find(step.operation);
      TRIREME_CHECK(end != ends.end(), ConfigError, "communication {} is waited for and was never started",
                    step.operation);
      now = std::max(now, end->second);
    }
  }
  return now;
}

}  // namespace trireme::plan

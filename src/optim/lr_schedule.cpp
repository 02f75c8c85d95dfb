#include "src/optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/check.hpp"

namespace trireme::optim {

void LrSchedule::validate() const {
  TRIREME_CHECK(std::isfinite(maximum) && maximum >= 0, ConfigError, "--lr {} must be a number of at least 0", maximum);
  TRIREME_CHECK(std::isfinite(minimum) && minimum >= 0 && minimum <= maximum, ConfigError,
                "--min-lr {} must be from 0 to --lr {}", minimum, maximum);
  TRIREME_CHECK(warmup_updates >= 0, ConfigError, "--lr-warmup-iters {} must not be negative", warmup_updates);
  TRIREME_CHECK(style == LrDecayStyle::constant || warmup_updates < decay_updates, ConfigError,
                "--lr-warmup-iters {} must be below --lr-decay-iters {} (default --train-iters)", warmup_updates,
                decay_updates);
}

double LrSchedule::at(std::int64_t update) const {
  const auto k = static_cast<double>(update);
  const auto warmup = static_cast<double>(warmup_updates);
  if (update <= warmup_updates) return maximum * k / warmup;
  if (style == LrDecayStyle::constant) return maximum;
  if (update > decay_updates) return minimum;
  if (style == LrDecayStyle::inverse_square_root) {
    return std::max(minimum, maximum * std::sqrt(std::max(warmup, 1.0) / k));
  }
  const double ratio = (k - warmup) / (static_cast<double>(decay_updates) - warmup);
  const double share = style == LrDecayStyle::linear ? 1 - ratio : 0.5 * (1 + std::cos(std::numbers::pi * ratio));
  return minimum + (maximum - minimum) * share;
}

}  // namespace trireme::optim

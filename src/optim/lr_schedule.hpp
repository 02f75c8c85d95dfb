#pragma once

#include <cstdint>

namespace trireme::optim {

enum class LrDecayStyle { constant, linear, cosine, inverse_square_root };

/// The learning rate of each update, counted from 1. With W warm-up updates and the decay's end at D:
///   k <= W:  maximum k / W: update W is the first at the maximum
///   then     constant: maximum
///            linear: minimum + (maximum - minimum) (1 - r), r = (k - W) / (D - W)
///            cosine: minimum + (maximum - minimum) (1 + cos(pi r)) / 2
///            inverse square root: max(minimum, maximum sqrt(max(W, 1) / k))
///   k > D:   minimum (not for constant).
struct LrSchedule {
  LrDecayStyle style = LrDecayStyle::linear;
  double maximum = 0;
  double minimum = 0;
  std::int64_t warmup_updates = 0;
  std::int64_t decay_updates = 0;

  /// Throws ConfigError where the settings contradict each other.
  void validate() const;
  double at(std::int64_t update) const;
};

}  // namespace trireme::optim

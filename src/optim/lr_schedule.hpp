#pragma once

#include <cstdint>

#include "src/base/attributes.hpp"

namespace trireme::optim {

enum class LrDecayStyle { constant, linear, cosine, inverse_square_root };

/// Learning rate of an update as a function of its progress k: its number, counted from 1, or with `by_samples` the
/// samples of all updates up to and including it. Both are the same for batches of one size. With a warm-up of W and
/// the decay's end at D:
///   k <= W:  maximum k / W: the update that reaches W is the first at the maximum
///   then     constant: maximum
///            linear: minimum + (maximum - minimum) (1 - r), r = (k - W) / (D - W)
///            cosine: minimum + (maximum - minimum) (1 + cos(pi r)) / 2
///            inverse square root: max(minimum, maximum sqrt(max(W, 1) / k)); by samples it needs a warm-up
///   k > D:   minimum (not for constant).
struct LrSchedule {
  LrDecayStyle style = LrDecayStyle::linear;
  double maximum = 0;
  double minimum = 0;
  std::int64_t warmup = 0;
  std::int64_t decay = 0;
  bool by_samples = false;  ///< progress, warm-up and decay count samples, not updates

  /// Throws ConfigError where the settings contradict each other.
  void validate() const;
  double at(std::int64_t progress) const;
};

/// The schedule among the attributes "training.*" of a checkpoint.
Attributes attributes_of(const LrSchedule& schedule);

}  // namespace trireme::optim

#pragma once

#include <cstdint>
#include <optional>

#include "src/base/attributes.hpp"

namespace trireme::optim {

enum class WeightDecayStyle { linear, cosine };

/// Weight decay that grows with the run, Megatron-LM's, as a function of the progress k of LrSchedule. With r = k /
/// length:
///   k <= length:  linear: start + (end - start) r
///                 cosine: start + (end - start) (1 + cos(pi (1 - r))) / 2
///   then          end.
struct WeightDecayRamp {
  WeightDecayStyle style = WeightDecayStyle::linear;
  double start = 0;
  double end = 0;
  std::int64_t length = 0;  ///< in updates, or in samples with LrSchedule::by_samples

  /// Throws ConfigError if the settings contradict each other.
  void validate() const;
  double at(std::int64_t progress) const;
};

/// The ramp among the attributes "training.*" of a checkpoint, and back: none if the weight decay is constant.
Attributes attributes_of(const WeightDecayRamp& ramp, bool by_samples);
std::optional<WeightDecayRamp> weight_decay_ramp_from(const Attributes& attributes);

}  // namespace trireme::optim

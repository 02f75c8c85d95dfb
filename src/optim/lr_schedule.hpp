#pragma once

#include <cstdint>
#include <optional>

#include "src/base/attributes.hpp"

namespace trireme::optim {

enum class LrDecayStyle { constant, linear, cosine, inverse_square_root, wsd };
inline constexpr Choice<LrDecayStyle> lr_decay_styles[] = {{"linear", LrDecayStyle::linear},
                                                           {"cosine", LrDecayStyle::cosine},
                                                           {"constant", LrDecayStyle::constant},
                                                           {"inverse-square-root", LrDecayStyle::inverse_square_root},
                                                           {"WSD", LrDecayStyle::wsd}};
/// Shape of the final part of WSD.
enum class WsdDecayStyle { linear, cosine, exponential, minus_sqrt };
inline constexpr Choice<WsdDecayStyle> wsd_decay_styles[] = {{"exponential", WsdDecayStyle::exponential},
                                                             {"linear", WsdDecayStyle::linear},
                                                             {"cosine", WsdDecayStyle::cosine},
                                                             {"minus_sqrt", WsdDecayStyle::minus_sqrt}};

/// Learning rate of an update as a function of its progress k: its number, counted from 1, or with `by_samples` the
/// samples of all updates up to and including it. Both are the same for batches of one size. With a warm-up of W and
/// the decay's end at D:
///   k <= W:  initial + (maximum - initial) k / W: the update that reaches W is the first at the maximum
///   then     constant: maximum
///            linear: minimum + (maximum - minimum) (1 - r), r = (k - W) / (D - W)
///            cosine: minimum + (maximum - minimum) (1 + cos(pi r)) / 2
///            inverse square root: max(minimum, maximum sqrt(max(W, 1) / k)); by samples it needs a warm-up
///            WSD (warm-up, stable, decay; Hu et al. 2024, arXiv:2404.06395) with a decay as long as A:
///              k <= D - A:  maximum
///              then         minimum + (maximum - minimum) f, r = (k - (D - A)) / A, where f is by its style
///                           1 - r, (1 + cos(pi r)) / 2, 2 * 0.5^r - 1, or 1 - sqrt(r)
///   k > D:   minimum (not for constant).
struct LrSchedule {
  LrDecayStyle style = LrDecayStyle::linear;
  double maximum = 0;
  double minimum = 0;
  double warmup = 0;  ///< may be fractional: a share of the decay
  std::int64_t decay = 0;
  bool by_samples = false;  ///< progress, warm-up and decays count samples, not updates
  double initial = 0;       ///< at progress 0 of the warm-up
  WsdDecayStyle wsd_style = WsdDecayStyle::exponential;
  std::int64_t wsd_decay = 0;

  /// Throws ConfigError if the settings contradict each other.
  void validate() const;
  double at(std::int64_t progress) const;
};

/// The schedule among the attributes "training.*" of a checkpoint, and back. CheckpointError if values are missing
/// or malformed.
Attributes attributes_of(const LrSchedule& schedule);
LrSchedule lr_schedule_from(const Attributes& attributes);

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

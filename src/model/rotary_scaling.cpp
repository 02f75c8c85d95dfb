#include "src/model/rotary_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::model {
namespace {

/// m(x) of YaRN's magnitude.
double magnitude_of(double mscale, double factor) { return 0.1 * mscale * std::log(factor) + 1; }

}  // namespace

RotaryEmbedding RotaryScaling::embedding(std::int64_t channels, double base) const {
  RotaryEmbedding rotary{channels, base};
  rotary.interpolation = interpolation;
  if (kind == RotaryScalingKind::none || channels == 0) return rotary;
  rotary.factor = factor;
  const double positions_a_turn = static_cast<double>(positions) / (2 * std::numbers::pi);
  if (kind == RotaryScalingKind::llama3) {
    rotary.kept.by_frequency = positions_a_turn / (fast_turns - slow_turns);
    rotary.kept.offset = -slow_turns / (fast_turns - slow_turns);
    return rotary;
  }
  const auto size = static_cast<double>(channels);
  const auto pair_of = [&](double turns) { return size * std::log(positions_a_turn / turns) / (2 * std::log(base)); };
  const double first = std::max(std::floor(pair_of(fast_turns)), 0.0);
  double last = std::min(std::ceil(pair_of(slow_turns)), size - 1);
  if (last == first) last += 0.001;  // as first published: a step instead of a ramp
  rotary.kept.offset = last / (last - first);
  rotary.kept.by_pair = -1 / (last - first);
  rotary.magnitude = magnitude_of(mscale, factor) / magnitude_of(mscale_all_dim, factor);
  return rotary;
}

}  // namespace trireme::model

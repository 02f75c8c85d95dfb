#pragma once

#include "src/backend/kernels/rotary.hpp"

namespace trireme::model {

enum class RotaryScalingKind { none, llama3, yarn };

/// Change of the rotary frequencies for sequences longer than those of an earlier training. There a pair of channels of
/// frequency f = base^(-2 i / channels) made n = positions f / 2 pi turns. Pairs of many turns keep their frequency,
/// those of few get f / factor, and those between them f (t + (1 - t) / factor):
///   llama3 (Llama 3.1; Dubey et al. 2024, arXiv:2407.21783): t = (n - slow_turns) / (fast_turns - slow_turns);
///   yarn (Peng et al. 2023, arXiv:2309.00071): t = (last - i) / (last - first), the pairs of fast_turns and of
///   slow_turns, rounded down and up: i = channels ln(positions / 2 pi n) / (2 ln base). Sines and cosines are
///   multiplied by m(mscale) / m(mscale_all_dim), m(x) = 0.1 x ln(factor) + 1, and so scores by its square.
/// Interpolation divides all positions, whatever the kind (Chen et al. 2023, arXiv:2306.15595).
struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::none;
  double factor = 1;           ///< times the sequence grows
  std::int64_t positions = 0;  ///< positions of the earlier training
  double slow_turns = 1;
  double fast_turns = 32;
  double mscale = 1;          ///< yarn
  double mscale_all_dim = 0;  ///< yarn
  double interpolation = 1;   ///< divides positions

  /// Returns Llama 3.1's constants: 8192 positions, 1 and 4 turns.
  static RotaryScaling llama3(double factor) { return {RotaryScalingKind::llama3, factor, 8192, 1, 4}; }

  /// Rotation of `channels` channels of a head.
  RotaryEmbedding embedding(std::int64_t channels, double base) const;
};

}  // namespace trireme::model

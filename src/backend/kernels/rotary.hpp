#pragma once

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/positions.hpp"

namespace trireme {

/// Rotary position embedding (Su et al. 2021, arXiv:2104.09864): channels i and i + channels / 2 of a head are the
/// coordinates of a point. At position p it turns by the angle p f (t + (1 - t) / factor) / interpolation, f = base^(-2
/// i / channels), where t is the share of its frequency that the pair keeps: 1, unless frequencies are scaled for
/// longer sequences.
struct RotaryEmbedding {
  /// t = offset + by_pair i + by_frequency f, from 0 to 1.
  struct Kept {
    double offset = 1;
    double by_pair = 0;
    double by_frequency = 0;
  };
  std::int64_t channels = 0;  ///< even; a head's channels from here on stay as they are
  double base = 10000;
  double factor = 1;
  Kept kept = {};
  double magnitude = 1;      ///< multiplies sines and cosines
  double interpolation = 1;  ///< divides positions

  /// Frequency of pair i, whose unscaled frequency is f.
  constexpr double scaled(std::int64_t i, double f) const {
    const double share = kept.offset + kept.by_pair * static_cast<double>(i) + kept.by_frequency * f;
    const double t = share < 0 ? 0 : share > 1 ? 1 : share;
    return f * (t + (1 - t) / factor) / interpolation;
  }
};

/// The heads to rotate, and the positions of their rows: those in the sequence, or others for each row and sample.
struct RotaryHeads {
  Heads data;
  std::int64_t rows = 0;  ///< the first index of data, its positions
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  Positions positions;
  const std::int32_t* position_ids = nullptr;  ///< [rows, batch] in the backend's memory; null: `positions`

  constexpr std::int64_t position(std::int64_t row, std::int64_t sample) const {
    return position_ids == nullptr ? positions[row] : position_ids[row * batch + sample];
  }
};

enum class Rotation { forward, backward };

class RotaryKernels : public KernelFamily<RotaryKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// In place, for i < channels / 2 with the angle a of channel i at the row's position, m the magnitude:
  ///   x[i] = m (x[i] cos a - x[i + channels / 2] sin a),   x[i + channels / 2] = m (x[i + channels / 2] cos a + x[i]
  ///   sin a).
  /// `backward` turns by -a instead: a gradient of the rotated heads becomes that of the heads before rotation. T the
  /// training type; angles, sines and cosines are computed in fp64, products in A. Stream-ordered, deterministic.
  virtual void rotate(Stream& stream, const RotaryEmbedding& rotary, const RotaryHeads& x, Rotation rotation) {
    const double numel = static_cast<double>(x.rows * x.batch * x.heads * rotary.channels);
    pass_on(&RotaryKernels::rotate, stream,
            {KernelKind::embedding, 2 * numel * static_cast<double>(size_of(x.data.data.dtype()))}, rotary, x,
            rotation);
  }
};

}  // namespace trireme

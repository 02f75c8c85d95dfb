#pragma once

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/positions.hpp"

namespace trireme {

/// Rotary position embedding (Su et al. 2021, arXiv:2104.09864): channels i and i + channels / 2 of a head are the
/// coordinates of a point. At position p it turns by the angle p base^(-2 i / channels).
struct RotaryEmbedding {
  std::int64_t channels = 0;  ///< even; a head's channels from here on stay as they are
  double base = 10000;
};

/// The heads to rotate, and the positions of their rows in the sequence.
struct RotaryHeads {
  Heads data;
  std::int64_t rows = 0;  ///< the first index of data, its positions
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  Positions positions;
};

enum class Rotation { forward, backward };

class RotaryKernels {
 public:
  virtual ~RotaryKernels() = default;

  /// In place, for i < channels / 2 with the angle t of channel i at the row's position:
  ///   x[i] = x[i] cos t - x[i + channels / 2] sin t,   x[i + channels / 2] = x[i + channels / 2] cos t + x[i] sin t.
  /// `backward` turns by -t instead: a gradient of the rotated heads becomes that of the heads before. T the training
  /// type; angles, sines and cosines are computed in fp64, products in A. Stream-ordered, deterministic.
  virtual void rotate(Stream& stream, const RotaryEmbedding& rotary, const RotaryHeads& x, Rotation rotation) = 0;
};

}  // namespace trireme

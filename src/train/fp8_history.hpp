#pragma once

#include <map>
#include <span>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/parallel/tensor/fp8_scaling.hpp"

namespace trireme::train {

/// Largest magnitudes of the tensors of earlier updates, for delayed scales in FP8. Powers of two represent them
/// (fp8_exponent_of), which give the same scales. They cover the whole model and depend on no grid.
class Fp8History {
 public:
  Fp8History() = default;
  friend bool operator==(const Fp8History&, const Fp8History&) = default;

  /// Adds the magnitudes of an update, [tensors of the model], as Fp8Scaling::read_seen returns them. A magnitude of 0
  /// adds nothing.
  void add(std::span<const double> seen, const parallel::Fp8Options& options);
  /// Returns the magnitudes of the next update's scales, in the same order. 0: none is known.
  std::vector<double> amax(const parallel::Fp8Options& options) const;
  /// Returns whether there are magnitudes of each layer, among the model's `layers`, whose products are rounded.
  bool covers(const parallel::Fp8Options& options, int layers) const;

  /// Adds an attribute for every layer with a tensor that is rounded; and reads them back, empty if there are none.
  /// CheckpointError if one is malformed.
  void put(Attributes& attributes) const;
  static Fp8History from(const Attributes& attributes);

 private:
  /// Exponent of an update's largest magnitude, and the number of updates since.
  struct Entry {
    int exponent = 0;
    int age = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  /// Entries that no later one equals or exceeds, the oldest first.
  using Window = std::vector<Entry>;

  std::vector<Window> windows_;  // by tensor
};

}  // namespace trireme::train

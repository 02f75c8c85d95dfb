#pragma once

#include <cstdint>
#include <string>

namespace trireme::model {

/// Sliding windows of a causal model's attention: in some layers or all, a query attends to itself and to the `left`
/// positions before it, as in Mistral (Jiang et al. 2023, arXiv:2310.06825). The other layers see all earlier
/// positions.
struct AttentionWindow {
  std::int64_t left = -1;  ///< negative: all earlier positions in every layer
  /// A '1' for each layer with a window, a '0' for each with all earlier positions, from the first one; empty: all have
  /// one.
  std::string layers;

  /// Windows in all layers but every `frequency`-th of `layers`: in the first frequency - 1 of each `frequency`.
  static AttentionWindow every(std::int64_t left, std::int64_t frequency, int layers);
  /// Windows in the layers that have a '1' in `pattern`. Values are equal where the layers are, however they are given.
  static AttentionWindow of_layers(std::int64_t left, std::string pattern);

  bool any() const { return left >= 0; }
  /// AttentionProblem::window of a layer, counted from 0 over the full model; `layers` repeat beyond their end.
  std::int64_t of(int layer) const {
    return layers.empty() || layers[static_cast<std::size_t>(layer) % layers.size()] == '1' ? left : -1;
  }
};

}  // namespace trireme::model

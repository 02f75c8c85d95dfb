#pragma once

#include <algorithm>
#include <vector>

namespace trireme::model {

enum class RecomputeGranularity {
  none,
  selective,  ///< parts of a layer: RecomputedModules
  full        ///< entire layers, from their input
};
inline const char* name_of(RecomputeGranularity granularity) {
  constexpr const char* names[] = {"none", "selective", "full"};
  return names[static_cast<int>(granularity)];
}
enum class RecomputeMethod {
  uniform,  ///< all layers of a chunk, in groups of `layers`; a group keeps only its input
  block     ///< the first `layers` layers of a chunk, one by one; the others keep everything
};

/// Parts of a layer that backward recomputes.
struct RecomputedModules {
  bool attention = false;   ///< the attention from Q, K and V: SelfAttention::Saved
  bool activation = false;  ///< the activation in dense blocks, from its input: FeedForward::Saved
  bool experts = false;     ///< the experts and their shared block, from their input and the route: Experts::Saved
};

/// Activations that backward recomputes, or fetches from host memory, to save memory (Chen et al. 2016,
/// arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198). Dropout masks are pure functions of indices, so no
/// random state is kept.
struct Recomputation {
  RecomputeGranularity granularity = RecomputeGranularity::none;
  RecomputeMethod method = RecomputeMethod::uniform;
  int layers = 1;
  RecomputedModules modules = {.attention = true, .activation = true};  ///< parts that selective recomputation repeats
  bool distribute = false;  ///< each tensor rank keeps 1/t of a recomputed group's input
  /// Layers of a chunk that keep everything in host memory, at most those that are not recomputed in full
  /// (HostActivations).
  int offloaded_layers = 0;

  bool selective() const { return granularity == RecomputeGranularity::selective; }
  RecomputedModules selected() const { return selective() ? modules : RecomputedModules(); }
};

/// Layers of a chunk of `layers` that are recomputed in full, and of the others those offloaded.
inline int recomputed_layers(const Recomputation& recomputation, int layers) {
  if (recomputation.granularity != RecomputeGranularity::full) return 0;
  return recomputation.method == RecomputeMethod::uniform ? layers : std::min(recomputation.layers, layers);
}
inline int offloaded_layers(const Recomputation& recomputation, int layers) {
  return std::min(recomputation.offloaded_layers, layers - recomputed_layers(recomputation, layers));
}

/// Consecutive layers of one chunk that keep either everything or only the input of the first.
struct LayerSpan {
  int first = 0;  ///< within the chunk
  int layers = 0;
  bool recomputed = false;
  int offloaded = 0;  ///< number among the chunk's layers in host memory, from 1; 0: not one of them
};

/// The spans of a chunk of `layers` layers, in order. The last span of `uniform` may be smaller. Each offloaded layer
/// is a span. They are spread evenly, so that copies have the time of the layers between, and the last layers, which
/// backward needs at once, are kept.
inline std::vector<LayerSpan> layer_spans(const Recomputation& recomputation, int layers) {
  const int recomputed = recomputed_layers(recomputation, layers);
  const int size = recomputation.method == RecomputeMethod::uniform ? recomputation.layers : 1;
  std::vector<LayerSpan> spans;
  for (int first = 0; first < recomputed; first += size) {
    spans.push_back({first, std::min(size, recomputed - first), true});
  }
  const int kept = layers - recomputed, offloaded = offloaded_layers(recomputation, layers);
  int number = 0;
  for (int i = 0; i < kept; ++i) {
    const bool is_offloaded = i * offloaded / kept == number && number < offloaded;
    const bool extends = i > 0 && !is_offloaded && spans.back().offloaded == 0;
    if (extends) {
      ++spans.back().layers;
    } else {
      spans.push_back({recomputed + i, 1, false, is_offloaded ? ++number : 0});
    }
  }
  return spans;
}

}  // namespace trireme::model

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

/// Activations that backward recomputes to save memory (Chen et al. 2016, arXiv:1604.06174; Korthikanti et al. 2022,
/// arXiv:2205.05198). Dropout masks are pure functions of indices, so no random state is kept.
struct Recomputation {
  RecomputeGranularity granularity = RecomputeGranularity::none;
  RecomputeMethod method = RecomputeMethod::uniform;
  int layers = 1;
  RecomputedModules modules = {.attention = true, .activation = true};  ///< parts that selective recomputation repeats
  bool distribute = false;  ///< each tensor rank keeps 1/t of a recomputed group's input

  bool selective() const { return granularity == RecomputeGranularity::selective; }
  RecomputedModules selected() const { return selective() ? modules : RecomputedModules(); }
};

/// Consecutive layers of one chunk that keep either everything or only the input of the first.
struct LayerSpan {
  int first = 0;  ///< within the chunk
  int layers = 0;
  bool recomputed = false;
};

/// The spans of a chunk of `layers` layers, in order. The last span of `uniform` may be smaller.
inline std::vector<LayerSpan> layer_spans(const Recomputation& recomputation, int layers) {
  const bool full = recomputation.granularity == RecomputeGranularity::full;
  const bool uniform = full && recomputation.method == RecomputeMethod::uniform;
  const int recomputed = uniform ? layers : full ? std::min(recomputation.layers, layers) : 0;
  const int size = uniform ? recomputation.layers : 1;
  std::vector<LayerSpan> spans;
  for (int first = 0; first < recomputed; first += size) {
    spans.push_back({first, std::min(size, recomputed - first), true});
  }
  if (recomputed < layers) spans.push_back({recomputed, layers - recomputed, false});
  return spans;
}

}  // namespace trireme::model

#include <algorithm>

#include "src/model/gpt_stage.hpp"

namespace trireme::model {
namespace {

/// Memory that is only counted: what an arena over it hands out must not be touched.
class CountingAllocator final : public Allocator {
 public:
  Buffer allocate(std::size_t size_bytes) override {
    return {reinterpret_cast<std::byte*>(64), size_bytes, [](std::byte*) {}};
  }
};

}  // namespace

GptStage::ActivationBytes GptStage::activation_bytes(const LayerShape& shape, const GptPlace& place, int chunk,
                                                     const parallel::VocabularyPartition& vocabulary,
                                                     const Recomputation& recomputation) {
  // What forward and backward do, without doing it.
  CountingAllocator allocator;
  Arena arena(allocator);
  const bool first = place.first_stage && chunk == 0;
  const bool last = place.last_stage && chunk + 1 == static_cast<int>(place.chunks.size());
  const bool selective = recomputation.selective();
  const std::vector<LayerGroup> groups =
      layer_groups(recomputation, place.chunks[static_cast<std::size_t>(chunk)].layers);
  const auto in_parts = [&](const LayerGroup& group) { return group.recomputed && recomputation.distribute; };
  const auto keep_input = [&](std::size_t i) {
    if (i == groups.size() ? last : !in_parts(groups[i])) shape.allocate_residual(arena);
  };
  const auto keep_layers = [&](int layers) {
    for (int i = 0; i < layers; ++i) TransformerLayer::Saved::allocate(shape, selective, arena);
    for (int i = 0; i + 1 < layers; ++i) shape.allocate_residual(arena);
  };
  const auto keep_again = [&](const LayerGroup& group) {
    if (in_parts(group)) shape.allocate_residual(arena);
    if (group.recomputed) keep_layers(group.layers);
  };

  ActivationBytes bytes;
  const auto at_least_now = [&](std::size_t& peak) { peak = std::max(peak, arena.used_bytes()); };
  std::vector<Arena::Mark> marks;
  if (first) keep_input(0);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    marks.push_back(arena.mark());
    if (in_parts(groups[i])) {
      arena.allocate(shape.dtype, {shape.local_rows() * shape.h / place.tensor_size});
    }
    keep_input(i + 1);
    if (groups[i].recomputed) {
      const ArenaScope scope(arena);
      keep_layers(1);
      at_least_now(bytes.forward_peak);
    } else {
      keep_layers(groups[i].layers);
    }
  }
  const Arena::Mark head_mark = arena.mark();
  if (last) Head::allocate(shape, vocabulary.rows(), arena);
  bytes.kept = arena.used_bytes();
  at_least_now(bytes.forward_peak);
  at_least_now(bytes.backward_peak);
  if (last) arena.release(head_mark);
  const Arena::Mark end = arena.mark();
  for (const LayerGroup& group : groups) keep_again(group);
  bytes.between_halves = arena.used_bytes();
  arena.release(end);
  for (std::size_t i = groups.size(); i-- > 0;) {
    keep_again(groups[i]);
    at_least_now(bytes.backward_peak);
    arena.release(marks[i]);
  }
  return bytes;
}

}  // namespace trireme::model

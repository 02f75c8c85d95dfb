#pragma once

#include <vector>

#include "src/model/blocks/recomputation.hpp"
#include "src/model/blocks/transformer_layer.hpp"
#include "src/model/stage/activation_store.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/model/stage/stage_probe.hpp"
#include "src/parallel/parameter_hooks.hpp"

namespace trireme::model {

/// Two tensors of the work space that the residual stream, or its gradient, passes in turn.
class ResidualPair {
 public:
  ResidualPair(const LayerShape& shape, Arena& workspace) : shape_(shape), workspace_(workspace) {}
  /// Returns the tensor that was not returned last. Its first use takes memory, so no scope of the work space may have
  /// begun after the pair.
  TensorView next() {
    TensorView& tensor = tensors_[turn_++ % 2];
    if (!tensor) tensor = shape_.allocate_residual(workspace_);
    return tensor;
  }

 private:
  const LayerShape& shape_;
  Arena& workspace_;
  TensorView tensors_[2];
  int turn_ = 0;
};

/// The transformer layers of one rank, chunk by chunk. Spans of layers either keep what backward reads, or are
/// recomputed there from their input. Calls the hooks for the layers' parameters.
class LayerStack {
 public:
  /// State that one micro-batch keeps of one span of layers between forward and backward.
  struct SavedSpan {
    Arena::Mark mark;                                    // all that was allocated before
    ConstTensorView input;                               // perhaps only this rank's shard of it, flat
    std::vector<TransformerLayer::Saved> layers;         // each layer's output is the next one's input
    std::vector<TransformerLayer::Gradients> gradients;  // between backward and backward_weight
  };
  using Saved = std::vector<SavedSpan>;

  /// One pass of a micro-batch through a chunk.
  struct Pass {
    LayerShape shape;
    int chunk = 0;
    bool keeps = false;  ///< keeps what backward needs
    bool last = false;   ///< runs the update's last micro-batch
    DropoutPlan dropout;
    Arena& arena;  ///< for what is kept
    ResidualPair& streams;
    StageProbe* probe = nullptr;  ///< null for none
  };

  /// Takes the layers of `shard`, whose parameters are the units from `first_unit` on. `hooks` and `activations` must
  /// live longer.
  LayerStack(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
             const ModelConfig& config, const StageShard& shard, const Recomputation& recomputation,
             parallel::ParameterHooks& hooks, int first_unit, ActivationStore& activations);

  int size() const { return static_cast<int>(layers_.size()); }
  /// Number of a chunk's layers.
  int layers_of(int chunk) const { return first_of(chunk + 1) - first_of(chunk); }

  /// A tensor for the input of the chunk's first layer, or of what follows where it has none.
  TensorView make_input(const Pass& pass) const;
  /// Runs the chunk's layers from x and returns the result: y, or where y is empty a tensor of `pass`. A chunk without
  /// layers returns x. x must stay valid until the end of backward where `reads_input_in_backward`.
  ConstTensorView forward(const Pass& pass, ConstTensorView x, TensorView y, Saved& saved) const;
  bool reads_input_in_backward(int chunk, bool keeps) const;
  /// Returns the gradient of the input from that of the output: dx, or where dx is empty one of the pass's streams.
  /// Unless weights come later it releases what was kept.
  ConstTensorView backward(const Pass& pass, ConstTensorView dy, TensorView dx, parallel::WeightGradient weights,
                           Saved& saved) const;
  /// Adds the gradients that `backward` left for later.
  void backward_weight(const Pass& pass, const Saved& saved) const;

  /// Caches of every layer for `capacity` positions of each of shape.b texts, allocated from `arena`.
  std::vector<KeyValueCache> make_caches(const LayerShape& shape, std::int64_t capacity, Arena& arena) const;
  /// `forward` in generation: runs the newest positions of `texts`, and appends to the layers' caches.
  ConstTensorView forward_cached(int chunk, const LayerShape& shape, ResidualPair& streams, ConstTensorView x,
                                 TensorView y, const CachedTexts& texts,
                                 const std::vector<KeyValueCache>& caches) const;

 private:
  int first_of(int chunk) const { return first_layers_[static_cast<std::size_t>(chunk)]; }
  const TransformerLayer& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  /// Tells the probe the result of the layer with this index here.
  void show(const Pass& pass, int index, ConstTensorView y) const {
    if (pass.probe != nullptr && y) pass.probe->after_layer(numbers_[static_cast<std::size_t>(index)], y);
  }
  int unit(int layer) const { return first_unit_ + layer; }
  std::vector<LayerSpan> spans_of(int chunk, bool keeps) const;
  /// Returns whether this rank keeps only its shard of the span's input.
  bool keeps_shard_of_input(const LayerSpan& span, bool keeps) const {
    return keeps && span.recomputed && recomputation_.distribute;
  }
  /// A tensor for the input of the span of this number, or after the last span for the result.
  TensorView make_input(const Pass& pass, const std::vector<LayerSpan>& spans, std::size_t span) const;
  /// A copy of this tensor rank's shard of a tensor that is the same on all of them.
  ConstTensorView own_shard(ConstTensorView whole, Arena& arena) const;
  /// A span's input, gathered where only shards of it were kept.
  ConstTensorView whole_input(const Pass& pass, const LayerSpan& span, ConstTensorView kept) const;
  /// Runs a span from x to y and keeps what backward needs. With an empty y the last layer makes only that.
  void forward_saving(const Pass& pass, const LayerSpan& span, ConstTensorView x, TensorView y, SavedSpan& saved) const;
  /// Runs a span from x to y and keeps nothing.
  void forward_only(const Pass& pass, const LayerSpan& span, ConstTensorView x, TensorView y) const;
  /// Runs backward through one layer of a span, counted within the span.
  void backward_layer(const Pass& pass, const LayerSpan& span, int index, ConstTensorView dy, TensorView dx,
                      parallel::WeightGradient weights, SavedSpan& saved) const;

  parallel::TensorContext context_;
  Recomputation recomputation_;
  parallel::ParameterHooks& hooks_;
  int first_unit_;
  ActivationStore& activations_;
  std::vector<TransformerLayer> layers_;  // layers of all chunks, one after another
  std::vector<int> numbers_;              // number in the model of each of layers_
  std::vector<int> first_layers_;         // first layer of each chunk in layers_, then the number of layers
};

}  // namespace trireme::model

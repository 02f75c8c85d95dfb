#pragma once

#include <map>
#include <span>
#include <vector>

#include "src/model/blocks/recomputation.hpp"
#include "src/model/blocks/transformer_layer.hpp"
#include "src/model/stage/activation_store.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/model/stage/stage_probe.hpp"
#include "src/parallel/parameter_hooks.hpp"

namespace trireme::model {

/// Two tensors of the work space between which the residual stream, or its gradient, alternates.
class ResidualPair {
 public:
  ResidualPair(const LayerShape& shape, Arena& workspace) : shape_(shape), workspace_(workspace) {}
  /// Returns the tensor that was not returned last. Allocates it at first use, so no later scope of the work space may
  /// be open then.
  TensorView next() {
    TensorView& tensor = tensors_[turn_++ % 2];
    if (!tensor) tensor = shape_.allocate_residual(workspace_);
    return tensor;
  }
  /// Allocates the tensors that `count` calls of `next` will return.
  void reserve(int count) {
    for (int i = 0; i < count; ++i) next();
    turn_ -= count;
  }

 private:
  const LayerShape& shape_;
  Arena& workspace_;
  TensorView tensors_[2];
  int turn_ = 0;
};

/// Transformer layers of one rank, chunk by chunk. Spans of layers either keep what backward reads or are recomputed
/// from their input. Calls the hooks for the layers' parameters.
class LayerStack {
 public:
  /// State of one micro-batch and span of layers between forward and backward.
  struct SavedSpan {
    Arena::Mark mark;                                    // start of the span's allocations
    ConstTensorView input;                               // or this rank's flat shard of it
    std::vector<TransformerLayer::Saved> layers;         // each layer's output is the next one's input
    std::vector<TransformerLayer::Gradients> gradients;  // between backward and backward_weight
    HostActivations::Layer host;                         // copies of an offloaded layer
  };
  using Saved = std::vector<SavedSpan>;

  /// One pass of a micro-batch through a chunk.
  struct Pass {
    LayerShape shape;
    int chunk = 0;
    bool keeps = false;  ///< keeps what backward needs
    bool last = false;   ///< the update's last micro-batch
    DropoutPlan dropout;
    Arena& arena;       ///< for kept tensors
    Arena& host_arena;  ///< for those of offloaded layers
    ResidualPair& streams;
    StageProbe* probe = nullptr;  ///< may be null
    double mean_gradient = 0;     ///< StageMode::mean_gradient
  };

  /// Makes the layers of `shard`, whose parameters are the units from `first_unit` on. `hooks` and `activations` must
  /// outlive it.
  LayerStack(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
             const ModelConfig& config, const StageShard& shard, const Recomputation& recomputation,
             parallel::ParameterHooks& hooks, int first_unit, ActivationStore& activations);

  int size() const { return static_cast<int>(layers_.size()); }
  /// Number of a chunk's layers.
  int layers_of(int chunk) const { return first_of(chunk + 1) - first_of(chunk); }

  /// Returns a tensor for the input of the chunk's first layer, or of whatever follows a chunk without layers.
  TensorView make_input(const Pass& pass) const;
  /// Runs the chunk's layers on x and returns the result: y, or if y is empty a tensor of `pass`. A chunk without
  /// layers returns x. If `reads_input_in_backward`, x must stay valid until the end of backward.
  ConstTensorView forward(const Pass& pass, ConstTensorView x, TensorView y, Saved& saved) const;
  bool reads_input_in_backward(int chunk, bool keeps) const;
  /// Begins to fetch the layers that `backward` or `backward_weight` needs first, which call it too.
  void begin_fetch(const Pass& pass, const Saved& saved) const;
  /// Returns the gradient of the input from that of the output: dx, or if dx is empty one of the pass's streams. Frees
  /// what was kept unless the weight gradients come later.
  ConstTensorView backward(const Pass& pass, ConstTensorView dy, TensorView dx, parallel::WeightGradient weights,
                           Saved& saved) const;
  /// Accumulates the weight gradients that `backward` left.
  void backward_weight(const Pass& pass, const Saved& saved) const;

  /// Experts::take_load of the layers with experts.
  std::vector<ExpertLoad> take_expert_loads() const;
  /// Experts::set_bias of the layers with experts, from `biases` [layers of the model, E].
  void set_router_biases(std::span<const double> biases) const;
  /// Experts::set_balance_load of the layers with experts, from the loads by layer of the model; without any: even.
  void set_balance_loads(const std::map<int, std::vector<double>>& loads) const;

  /// Allocates each layer's cache from `arena`, for `capacity` positions of each of shape.b texts.
  std::vector<KeyValueCache> make_caches(const LayerShape& shape, std::int64_t capacity, Arena& arena) const;
  /// `forward` in generation: runs the newest positions of `texts` and appends to the layers' caches.
  /// `arena` as in TransformerLayer::forward_cached.
  ConstTensorView forward_cached(int chunk, const LayerShape& shape, ResidualPair& streams, ConstTensorView x,
                                 TensorView y, const CachedTexts& texts, const std::vector<KeyValueCache>& caches,
                                 Arena& arena) const;

 private:
  int first_of(int chunk) const { return first_layers_[static_cast<std::size_t>(chunk)]; }
  const TransformerLayer& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  /// Passes the result of layer `index` of this rank to the probe.
  void show(const Pass& pass, int index, ConstTensorView y) const {
    if (pass.probe != nullptr && y) pass.probe->after_layer(numbers_[static_cast<std::size_t>(index)], y);
  }
  int unit(int layer) const { return first_unit_ + layer; }
  std::vector<LayerSpan> spans_of(int chunk, bool keeps) const;
  /// Returns whether this rank keeps only its shard of the span's input.
  bool keeps_shard_of_input(const LayerSpan& span, bool keeps) const {
    return keeps && span.recomputed && recomputation_.distribute;
  }
  /// Returns a tensor for the input of span number `span`, or after the last span for the result.
  TensorView make_input(const Pass& pass, const std::vector<LayerSpan>& spans, std::size_t span) const;
  /// Returns whether that is one of the pass's streams. Backward reads the full input unless a copy of its shard is
  /// kept.
  bool is_stream(const Pass& pass, const std::vector<LayerSpan>& spans, std::size_t span) const {
    return !pass.keeps || (span < spans.size() && keeps_shard_of_input(spans[span], pass.keeps));
  }
  /// Memory of what a span keeps.
  Arena& arena_of(const Pass& pass, const LayerSpan& span) const {
    return span.offloaded > 0 ? activations_.host().open(slot_of(span)) : pass.arena;
  }
  static int slot_of(const LayerSpan& span) { return (span.offloaded - 1) % HostActivations::slots; }
  /// Calls function(span, its saved state) for all spans, the last first, with the activations of offloaded ones on the
  /// device. Begins to fetch those of earlier ones meanwhile.
  template <class SavedSpans, class Function>
  void for_each_backwards(const Pass& pass, SavedSpans& saved, const Function& function) const;
  /// Copies this tensor rank's shard of a replicated tensor.
  ConstTensorView own_shard(ConstTensorView whole, Arena& arena) const;
  /// Returns a span's input, gathered if only shards of it were kept.
  ConstTensorView whole_input(const Pass& pass, const LayerSpan& span, ConstTensorView kept) const;
  /// Runs a span from x to y, which `handover` completes, and keeps what backward needs. With an empty y the last layer
  /// computes only that.
  void forward_saving(const Pass& pass, const LayerSpan& span, ConstTensorView x, ResidualForm::Handover& handover,
                      TensorView y, SavedSpan& saved) const;
  /// Runs a span from x to y, which `handover` completes, and keeps nothing. All its layers overwrite `residual`.
  void forward_only(const Pass& pass, const LayerSpan& span, ConstTensorView x, const ResidualForm::Saved& residual,
                    ResidualForm::Handover& handover, TensorView y) const;
  /// Runs backward through layer `index` of a span to dx, which `handover` completes.
  void backward_layer(const Pass& pass, const LayerSpan& span, int index, ConstTensorView dy,
                      ResidualForm::Handover& handover, TensorView dx, parallel::WeightGradient weights,
                      SavedSpan& saved) const;

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

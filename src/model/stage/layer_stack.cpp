#include "src/model/stage/layer_stack.hpp"

#include <algorithm>

namespace trireme::model {

using parallel::WeightGradient;

LayerStack::LayerStack(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                       const ModelConfig& config, const StageShard& shard, const Recomputation& recomputation,
                       parallel::ParameterHooks& hooks, int first_unit, ActivationStore& activations)
    : context_(context),
      recomputation_(recomputation),
      hooks_(hooks),
      first_unit_(first_unit),
      activations_(activations) {
  const std::int64_t first_head = config.heads / shard.tensor_size * shard.tensor_rank;
  for (const LayerRange& chunk : shard.chunks) {
    first_layers_.push_back(size());
    for (int i = 0; i < chunk.layers; ++i) {
      layers_.emplace_back(context, parameters, config, chunk.first_layer + i, first_head);
      numbers_.push_back(chunk.first_layer + i);
    }
  }
  first_layers_.push_back(size());
}

std::vector<LayerSpan> LayerStack::spans_of(int chunk, bool keeps) const {
  const int layers = layers_of(chunk);
  if (!keeps && layers > 0) return {{0, layers, true}};
  return layer_spans(recomputation_, layers);
}

bool LayerStack::reads_input_in_backward(int chunk, bool keeps) const {
  const std::vector<LayerSpan> spans = spans_of(chunk, keeps);
  return spans.empty() || !keeps_shard_of_input(spans.front(), keeps);
}

TensorView LayerStack::make_input(const Pass& pass) const {
  return make_input(pass, spans_of(pass.chunk, pass.keeps), 0);
}

TensorView LayerStack::make_input(const Pass& pass, const std::vector<LayerSpan>& spans, std::size_t span) const {
  if (is_stream(pass, spans, span)) return pass.streams.next();
  return pass.shape.allocate_residual(span == spans.size() ? pass.arena : arena_of(pass, spans[span]));
}

ConstTensorView LayerStack::own_shard(ConstTensorView whole, Arena& arena) const {
  const std::int64_t numel = whole.numel() / context_.tensor_group.size();
  const TensorView kept = arena.allocate(whole.dtype(), {numel});
  context_.backend.elementwise().convert(context_.stream(), whole.flat(numel * context_.tensor_group.rank(), numel),
                                         kept);
  return kept;
}

ConstTensorView LayerStack::whole_input(const Pass& pass, const LayerSpan& span, ConstTensorView kept) const {
  if (!keeps_shard_of_input(span, pass.keeps)) return kept;
  const TensorView whole = pass.shape.allocate_residual(pass.arena);
  context_.tensor_group.all_gather(context_.stream(), kept, whole).wait(context_.stream());
  return whole;
}

void LayerStack::forward_saving(const Pass& pass, const LayerSpan& span, ConstTensorView x,
                                ResidualForm::Handover& handover, TensorView y, SavedSpan& saved) const {
  Arena& arena = arena_of(pass, span);
  for (int i = 0; i < span.layers; ++i) {
    const int index = first_of(pass.chunk) + span.first + i;
    saved.layers.push_back(layer(index).make_saved(pass.shape, recomputation_.selected(), arena));
    const TensorView output = i + 1 == span.layers ? y : pass.shape.allocate_residual(arena);
    if (hooks_.takes_units_in_turn()) handover.finish();
    hooks_.before_forward(unit(index));
    layer(index).forward(pass.shape, x, pass.dropout, saved.layers.back(), handover, output);
    handover.then([this, &pass, index, output] { show(pass, index, output); });
    x = output;
  }
  activations_.note_peak();
  if (span.offloaded == 0) return;
  handover.finish();  // writes what is stored
  saved.host = activations_.host().store(slot_of(span), pass.host_arena);
}

void LayerStack::forward_only(const Pass& pass, const LayerSpan& span, ConstTensorView x,
                              const ResidualForm::Saved& residual, ResidualForm::Handover& handover,
                              TensorView y) const {
  const ArenaScope scope(context_.workspace);
  ResidualPair streams(pass.shape, context_.workspace);
  for (int i = 0; i < span.layers; ++i) {
    const int index = first_of(pass.chunk) + span.first + i;
    const ArenaScope layer_scope(pass.arena);
    TransformerLayer::Saved saved =
        layer(index).make_saved(pass.shape, recomputation_.selected(), residual, pass.arena);
    activations_.note_peak();
    const TensorView output = i + 1 == span.layers ? y : streams.next();
    if (hooks_.takes_units_in_turn()) handover.finish();
    hooks_.before_forward(unit(index));
    layer(index).forward(pass.shape, x, pass.dropout, saved, handover, output);
    handover.then([this, &pass, index, output] { show(pass, index, output); });
    x = output;
  }
}

ConstTensorView LayerStack::forward(const Pass& pass, ConstTensorView x, TensorView y, Saved& saved) const {
  const std::vector<LayerSpan> spans = spans_of(pass.chunk, pass.keeps);
  if (spans.empty()) return x;
  int streams = 0;
  for (std::size_t i = 1; i < spans.size() + (y ? 0 : 1); ++i) streams += is_stream(pass, spans, i) ? 1 : 0;
  pass.streams.reserve(std::min(streams, 2));
  const ArenaScope scope(context_.workspace);
  ResidualForm::Handover handover(context_, pass.shape);
  // The arena keeps only tensors that backward reads.
  Arena& passing = pass.keeps ? context_.workspace : pass.arena;
  const ArenaScope passing_scope(passing);
  ResidualForm::Saved residual;
  if (spans.front().recomputed) residual = layers_.front().make_residual(pass.shape, passing);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    SavedSpan& kept = saved.emplace_back();
    kept.mark = pass.arena.mark();
    if (keeps_shard_of_input(spans[i], pass.keeps)) {
      handover.finish();
      kept.input = own_shard(x, pass.arena);
    } else {
      kept.input = x;
    }
    const TensorView output = i + 1 == spans.size() && y ? y : make_input(pass, spans, i + 1);
    if (spans[i].recomputed) {
      forward_only(pass, spans[i], x, residual, handover, output);
    } else {
      forward_saving(pass, spans[i], x, handover, output, kept);
    }
    x = output;
  }
  handover.finish();
  return x;
}

void LayerStack::backward_layer(const Pass& pass, const LayerSpan& span, int index, ConstTensorView dy,
                                ResidualForm::Handover& handover, TensorView dx, WeightGradient weights,
                                SavedSpan& saved) const {
  const int number = first_of(pass.chunk) + span.first + index;
  TransformerLayer::Saved& kept = saved.layers[static_cast<std::size_t>(index)];
  TransformerLayer::Gradients& gradients = saved.gradients[static_cast<std::size_t>(index)];
  const ArenaScope scope(context_.workspace);
  gradients = layer(number).make_gradients(pass.shape, recomputation_.selected(), context_.workspace);
  if (hooks_.takes_units_in_turn()) handover.finish();
  hooks_.before_backward(unit(number));
  layer(number).backward_input(pass.shape, dy, pass.dropout, kept, gradients, handover, dx, weights,
                               pass.mean_gradient);
  if (weights == WeightGradient::later) layer(number).keep_for_weights(pass.shape, kept, gradients);
  handover.then([this, &pass, number, weights] {
    if (weights == WeightGradient::now) {
      hooks_.after_backward(unit(number), pass.last);
    } else {
      hooks_.pause_backward(unit(number));
    }
  });
}

void LayerStack::begin_fetch(const Pass& pass, const Saved& saved) const {
  const std::vector<LayerSpan> spans = spans_of(pass.chunk, pass.keeps);
  int fetched = 0;
  for (std::size_t s = spans.size(); s-- > 0 && fetched < HostActivations::slots;) {
    if (spans[s].offloaded == 0) continue;
    activations_.host().begin_fetch(saved[s].host);
    ++fetched;
  }
}

template <class SavedSpans, class Function>
void LayerStack::for_each_backwards(const Pass& pass, SavedSpans& saved, const Function& function) const {
  begin_fetch(pass, saved);
  const std::vector<LayerSpan> spans = spans_of(pass.chunk, pass.keeps);
  for (std::size_t s = spans.size(); s-- > 0;) {
    const int offloaded = spans[s].offloaded;
    if (offloaded > 0) activations_.host().finish_fetch(saved[s].host);
    function(spans[s], saved[s]);
    // The next layer of this one's slot.
    const int next = offloaded - HostActivations::slots;
    for (std::size_t i = s; next > 0 && i-- > 0;) {
      if (spans[i].offloaded == next) activations_.host().begin_fetch(saved[i].host);
    }
  }
}

ConstTensorView LayerStack::backward(const Pass& pass, ConstTensorView dy, TensorView dx, WeightGradient weights,
                                     Saved& saved) const {
  if (saved.empty()) return dy;
  pass.streams.reserve(std::min(layers_of(pass.chunk) - (dx ? 1 : 0), 2));
  const ArenaScope scope(context_.workspace);
  ResidualForm::Handover handover(context_, pass.shape);
  for_each_backwards(pass, saved, [&](const LayerSpan& span, SavedSpan& kept) {
    if (span.recomputed) forward_saving(pass, span, whole_input(pass, span, kept.input), handover, {}, kept);
    kept.gradients.resize(kept.layers.size());
    for (int i = span.layers - 1; i >= 0; --i) {
      const TensorView target = span.first + i == 0 && dx ? dx : pass.streams.next();
      backward_layer(pass, span, i, dy, handover, target, weights, kept);
      dy = target;
    }
    handover.finish();
    if (weights == WeightGradient::now) {
      pass.arena.release(kept.mark);  // for the next recomputation
    } else if (span.offloaded > 0) {
      activations_.host().store(kept.host);
    }
  });
  return dy;
}

void LayerStack::backward_weight(const Pass& pass, const Saved& saved) const {
  for_each_backwards(pass, saved, [&](const LayerSpan& span, const SavedSpan& kept) {
    for (std::size_t i = kept.layers.size(); i-- > 0;) {
      const int index = first_of(pass.chunk) + span.first + static_cast<int>(i);
      hooks_.before_backward(unit(index));
      layer(index).backward_weight(pass.shape, kept.layers[i], kept.gradients[i]);
      hooks_.after_backward(unit(index), pass.last);
    }
  });
}

std::vector<ExpertLoad> LayerStack::take_expert_loads() const {
  std::vector<ExpertLoad> loads;
  for (const TransformerLayer& layer : layers_) {
    if (layer.experts()) loads.push_back(layer.experts()->take_load());
  }
  return loads;
}

void LayerStack::set_router_biases(std::span<const double> biases) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].experts()) continue;
    const std::size_t experts = layers_[i].experts()->count();
    layers_[i].experts()->set_bias(biases.subspan(static_cast<std::size_t>(numbers_[i]) * experts, experts));
  }
}

void LayerStack::set_balance_loads(const std::map<int, std::vector<double>>& loads) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].experts()) continue;
    const auto found = loads.find(numbers_[i]);
    layers_[i].experts()->set_balance_load(found == loads.end() ? std::vector<double>() : found->second);
  }
}

std::vector<KeyValueCache> LayerStack::make_caches(const LayerShape& shape, std::int64_t capacity, Arena& arena) const {
  std::vector<KeyValueCache> caches;
  for (int i = 0; i < size(); ++i) {
    caches.push_back({arena.allocate(shape.dtype, {shape.b, capacity, 2, shape.kv_local, shape.d})});
  }
  return caches;
}

ConstTensorView LayerStack::forward_cached(int chunk, const LayerShape& shape, ResidualPair& streams, ConstTensorView x,
                                           TensorView y, const CachedTexts& texts,
                                           const std::vector<KeyValueCache>& caches, Arena& arena) const {
  const int end = first_of(chunk + 1);
  for (int i = first_of(chunk); i < end; ++i) {
    const TensorView output = i + 1 == end && y ? y : streams.next();
    const ArenaScope scope(arena);
    layer(i).forward_cached(shape, x, texts, caches[static_cast<std::size_t>(i)], arena, output);
    x = output;
  }
  return x;
}

}  // namespace trireme::model

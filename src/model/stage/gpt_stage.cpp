#include "src/model/stage/gpt_stage.hpp"

#include <algorithm>

namespace trireme::model {

using parallel::WeightGradient;

/// State that one micro-batch of one group of layers keeps between forward and backward.
struct GptStage::SavedSpan {
  Arena::Mark mark;                                    // all that was allocated before
  ConstTensorView input;                               // of a recomputed group perhaps only this rank's part, flat
  std::vector<TransformerLayer::Saved> layers;         // each layer's output is the next one's input
  std::vector<TransformerLayer::Gradients> gradients;  // between backward_input and backward_weight
};

struct GptStage::Saved {
  std::size_t arena_number = 0;
  Arena* arena = nullptr;  // null when all is done
  std::vector<SavedSpan> groups;
  ConstTensorView head_input;
  Arena::Mark head_mark;
  std::optional<Head> head;
};

GptStage::Head GptStage::Head::allocate(const LayerShape& shape, std::int64_t vocabulary_rows, Arena& arena) {
  Head head;
  head.normed = shape.allocate_residual(arena);
  head.statistics = shape.allocate_statistics(arena);
  head.logits = arena.allocate(shape.dtype, {shape.rows(), vocabulary_rows});
  const DType type = accumulation_type(shape.dtype);
  head.loss = {arena.allocate(type, {shape.rows()}), arena.allocate(type, {shape.rows()})};
  return head;
}

GptStage::GptStage(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const GptConfig& config, const StageShard& shard, const parallel::VocabularyPartition& vocabulary,
                   const parallel::SequenceShard& sequence, std::int64_t micro_batch_size, DType dtype,
                   const Recomputation& recomputation, parallel::ParameterHooks& hooks)
    : context_(context),
      hooks_(hooks),
      config_(config),
      shard_(shard),
      shape_(
          LayerShape::of(config, sequence.rows, micro_batch_size, shard.tensor_size, context.sequence_parallel, dtype)),
      vocabulary_rows_(vocabulary.rows()),
      recomputation_(recomputation),
      cross_entropy_(context, vocabulary),
      loss_sum_(context.backend, DType::fp64, {1}) {
  shape_.positions = sequence.positions;
  for (const LayerRange& chunk : shard.chunks) {
    for (int i = 0; i < chunk.layers; ++i) {
      layers_.emplace_back(context, parameters, config, chunk.first_layer + i, shape_.a_local * shard.tensor_rank);
    }
  }
  if (shard.first_stage) {
    embedding_.emplace(context, vocabulary, parameters.at("wte"));
    if (const parallel::Parameter* wpe = parameters.find("wpe")) {
      positions_ = wpe->value;
      positions_gradient_ = wpe->gradient;
    }
  }
  if (shard.last_stage) {
    final_norm_.emplace(parameters, "ln_f");
    head_.emplace(context, parameters.at(config.tied_output ? "wte" : "lm_head.weight"), nullptr);
  }
  context.backend.elementwise().fill(context.stream(), 0, loss_sum_);
}

GptStage::~GptStage() = default;

void GptStage::use_graphs(const Unrecorded& unrecorded) {
  graphs_.emplace(context_.backend, shape_.s, shape_.b, accumulation_type(shape_.dtype));
  unrecorded_ = unrecorded;
}

void GptStage::begin(std::vector<MicroBatch> micro_batches, const StageMode& mode) {
  micro_batches_ = std::move(micro_batches);
  mode_ = mode;
  if (runs_graphs()) graphs_->begin(mode);
  for (const auto& saved : saved_) {
    if (saved && saved->arena != nullptr) release(*saved);  // a forward whose backward never came
  }
  saved_.clear();
  saved_.resize(micro_batches_.size() * shard_.chunks.size());
}

double GptStage::take_loss_sum() {
  double sum = 0;
  context_.backend.copy_to_host(context_.stream(), loss_sum_.view(), TensorView(&sum, {1}));
  context_.stream().synchronize();
  context_.backend.elementwise().fill(context_.stream(), 0, loss_sum_);
  return sum;
}

GptStage::Saved& GptStage::saved(int chunk, int micro_batch) {
  return *saved_[static_cast<std::size_t>(chunk) * micro_batches_.size() + static_cast<std::size_t>(micro_batch)];
}

GptStage::Saved& GptStage::open(int chunk, int micro_batch) {
  if (free_arenas_.empty()) {
    free_arenas_.insert(arenas_.size());
    arenas_.push_back(std::make_unique<Arena>(context_.backend, std::size_t{1} << 22));
  }
  const std::size_t number = *free_arenas_.begin();
  free_arenas_.erase(free_arenas_.begin());
  auto& slot = saved_[static_cast<std::size_t>(chunk) * micro_batches_.size() + static_cast<std::size_t>(micro_batch)];
  slot = std::make_unique<Saved>();
  slot->arena_number = number;
  slot->arena = arenas_[number].get();
  return *slot;
}

void GptStage::release(Saved& saved) {
  saved.arena->clear();
  saved.arena = nullptr;
  free_arenas_.insert(saved.arena_number);
}

void GptStage::run(parallel::StepKind kind, int chunk, int micro_batch, ConstTensorView received, TensorView sent,
                   const MicroBatchGraphs::Enqueue& enqueue) {
  if (!runs_graphs()) return enqueue(received, sent);
  graphs_->bring(micro_batch, micro_batches_[static_cast<std::size_t>(micro_batch)]);
  const bool recordable = !(unrecorded_.first && micro_batch == 0) &&
                          !(unrecorded_.last && micro_batch + 1 == static_cast<int>(micro_batches_.size()));
  const bool replayed =
      graphs_->run(kind, chunk, saved(chunk, micro_batch).arena_number, recordable, received, sent, enqueue);
  if (!replayed) return;
  // The hooks were not called: those of the layers come with the weights' half of backward, others with the first half.
  const bool input_half = kind == parallel::StepKind::backward || kind == parallel::StepKind::backward_input;
  const bool weight_half = kind == parallel::StepKind::backward || kind == parallel::StepKind::backward_weight;
  if (input_half && is_last(chunk)) hooks_.after_replayed_backward(head_unit());
  if (input_half && is_first(chunk)) hooks_.after_replayed_backward(embedding_unit);
  for (int i = 0; weight_half && i < shard_.chunks[static_cast<std::size_t>(chunk)].layers; ++i) {
    hooks_.after_replayed_backward(layer_unit(first_layer_index(chunk) + i));
  }
}

std::size_t GptStage::activation_bytes() const {
  std::size_t sum = 0;
  for (const auto& arena : arenas_) sum += arena->used_bytes();
  return sum;
}

std::size_t GptStage::reserved_activation_bytes() const {
  std::size_t sum = 0;
  for (const auto& arena : arenas_) sum += arena->reserved_bytes();
  return sum;
}

void GptStage::note_activation_bytes() {
  if (mode_.backward) peak_activation_bytes_ = std::max(peak_activation_bytes_, activation_bytes());
}

DropoutPlan GptStage::dropout(int micro_batch) const {
  DropoutPlan plan;
  plan.hidden = mode_.hidden_dropout;
  plan.attention = mode_.attention_dropout;
  plan.seed = mode_.seed;
  if (plan.hidden != 0 || plan.attention != 0) {
    plan.positions = residual_positions();
    plan.samples = batch(micro_batch).samples.as<std::int64_t>();
  }
  return plan;
}

int GptStage::first_layer_index(int chunk) const {
  int index = 0;
  for (int i = 0; i < chunk; ++i) index += shard_.chunks[static_cast<std::size_t>(i)].layers;
  return index;
}

void GptStage::embed(int micro_batch, TensorView x) {
  embedding_->forward(batch(micro_batch).ids.reshape({shape_.rows()}), shape_.as_rows(x));
  context_.backend.embedding().add_positions(context_.stream(), positions_, residual_positions(),
                                             dropout(micro_batch).at(0, DropoutSite::embedding), x);
}

std::vector<LayerSpan> GptStage::groups(int chunk) const {
  const int layers = shard_.chunks[static_cast<std::size_t>(chunk)].layers;
  if (!mode_.backward && layers > 0) return {{0, layers, true}};  // nothing is kept
  return layer_spans(recomputation_, layers);
}

void GptStage::run_and_keep(int first_layer, int layers, const DropoutPlan& dropout, ConstTensorView x, TensorView y,
                            Arena& arena, SavedSpan& group) {
  for (int i = 0; i < layers; ++i) {
    const bool last = i + 1 == layers;
    group.layers.push_back(TransformerLayer::Saved::allocate(shape_, recomputation_.selective(), arena));
    const TensorView next = last ? y : shape_.allocate_residual(arena);
    hooks_.before_forward(layer_unit(first_layer + i));
    layers_[static_cast<std::size_t>(first_layer + i)].forward(shape_, x, dropout, group.layers.back(), next);
    x = next;
  }
  note_activation_bytes();
}

void GptStage::run_and_forget(int first_layer, int layers, const DropoutPlan& dropout, ConstTensorView x, TensorView y,
                              Arena& arena) {
  const ArenaScope scope(context_.workspace);
  TensorView streams[2];
  for (int i = 0; i < layers; ++i) {
    const ArenaScope layer_scope(arena);
    TransformerLayer::Saved saved = TransformerLayer::Saved::allocate(shape_, recomputation_.selective(), arena);
    note_activation_bytes();
    TensorView& stream = streams[i % 2];
    if (i + 1 < layers && !stream) stream = shape_.allocate_residual(context_.workspace);
    const TensorView next = i + 1 == layers ? y : stream;
    hooks_.before_forward(layer_unit(first_layer + i));
    layers_[static_cast<std::size_t>(first_layer + i)].forward(shape_, x, dropout, saved, next);
    x = next;
  }
}

ConstTensorView GptStage::own_part(ConstTensorView stream, Arena& arena) {
  const std::int64_t part = stream.numel() / shard_.tensor_size;
  const TensorView kept = arena.allocate(stream.dtype(), {part});
  context_.backend.elementwise().convert(context_.stream(), stream.flat(part * shard_.tensor_rank, part), kept);
  return kept;
}

void GptStage::forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) {
  Saved& state = open(chunk, micro_batch);
  run(parallel::StepKind::forward, chunk, micro_batch, input, output,
      [&](ConstTensorView x, TensorView y) { run_forward(chunk, micro_batch, x, y); });
  if (!mode_.backward) release(state);
}

void GptStage::run_forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) {
  Saved& state = saved(chunk, micro_batch);
  Arena& arena = *state.arena;
  const bool last = is_last(chunk);
  const int first = first_layer_index(chunk);
  const DropoutPlan plan = dropout(micro_batch);
  const std::vector<LayerSpan> groups = this->groups(chunk);

  // A group's output is kept where the next group, or the head, reads it whole in backward; else it is in one of two
  // tensors of the work space.
  const ArenaScope scope(context_.workspace);
  TensorView streams[2];
  const auto stream_into = [&](std::size_t group) {
    const bool kept_whole = group == groups.size() || !keeps_part_of_input(groups[group]);
    if (mode_.backward && kept_whole) return shape_.allocate_residual(arena);
    TensorView& stream = streams[group % 2];
    if (!stream) stream = shape_.allocate_residual(context_.workspace);
    return stream;
  };
  if (is_first(chunk)) {
    const TensorView x = groups.empty() && !last ? output : stream_into(0);
    hooks_.before_forward(embedding_unit);
    embed(micro_batch, x);
    input = x;
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const LayerSpan& group = groups[i];
    SavedSpan& kept = state.groups.emplace_back();
    kept.mark = arena.mark();
    kept.input = keeps_part_of_input(group) ? own_part(input, arena) : input;
    const TensorView y = i + 1 == groups.size() && !last ? output : stream_into(i + 1);
    if (group.recomputed) {
      run_and_forget(first + group.first, group.layers, plan, input, y, arena);
    } else {
      run_and_keep(first + group.first, group.layers, plan, input, y, arena, kept);
    }
    input = y;
  }
  if (last) {
    state.head_mark = arena.mark();
    state.head = Head::allocate(shape_, vocabulary_rows_, arena);
    state.head_input = input;
    hooks_.before_forward(head_unit());
    forward_head(micro_batch, *state.head, input);
  }
  note_activation_bytes();
}

void GptStage::forward_head(int micro_batch, Head& head, ConstTensorView x) {
  const MicroBatch& batch = this->batch(micro_batch);
  const std::int64_t n = shape_.rows();
  const ArenaScope scope(context_.workspace);
  const TensorView losses = context_.workspace.allocate(accumulation_type(shape_.dtype), {n});
  context_.backend.norm().normalise(context_.stream(), x, final_norm_->weight, final_norm_->bias, config_.norm_epsilon,
                                    head.normed, head.statistics);
  head_->forward(shape_.as_rows(head.normed), Activation::none, {}, head.logits);
  cross_entropy_.forward(head.logits, batch.targets.reshape({n}), batch.weights, head.loss, losses);
  context_.backend.reduce().sum(context_.stream(), losses, loss_sum_);
}

void GptStage::backward_head(int micro_batch, Head& head, ConstTensorView x, TensorView dx) {
  const MicroBatch& batch = this->batch(micro_batch);
  const std::int64_t n = shape_.rows();
  const ArenaScope scope(context_.workspace);
  const TensorView dnormed = shape_.allocate_residual(context_.workspace);
  ConstTensorView loss_gradient;
  if (runs_graphs()) {
    loss_gradient = graphs_->loss_gradient();
  } else {
    const TensorView made = context_.workspace.allocate(accumulation_type(shape_.dtype), {n});
    context_.backend.elementwise().convert(context_.stream(), batch.weights, made);
    context_.backend.elementwise().scale(context_.stream(), mode_.loss_gradient, made);
    loss_gradient = made;
  }
  cross_entropy_.backward(head.logits, batch.targets.reshape({n}), loss_gradient, head.loss);
  head_->backward_input(head.logits, shape_.as_rows(head.normed), shape_.as_rows(dnormed),
                        parallel::WeightGradient::now);
  context_.backend.norm().normalise_backward(context_.stream(), dnormed, x, final_norm_->weight, head.statistics, {},
                                             dx, final_norm_->weight_gradient, final_norm_->bias_gradient);
}

void GptStage::backward_embedding(int micro_batch, ConstTensorView dx) {
  const MicroBatch& batch = this->batch(micro_batch);
  const ArenaScope scope(context_.workspace);
  const TensorView masked = shape_.allocate_residual(context_.workspace);
  context_.backend.embedding().add_positions_backward(context_.stream(), dx, residual_positions(),
                                                      dropout(micro_batch).at(0, DropoutSite::embedding), masked,
                                                      positions_gradient_);
  embedding_->backward(batch.ids.reshape({shape_.rows()}), shape_.as_rows(masked));
}

ConstTensorView GptStage::whole_input(const LayerSpan& group, ConstTensorView kept, Arena& arena) {
  if (!keeps_part_of_input(group)) return kept;
  const TensorView whole = shape_.allocate_residual(arena);
  context_.tensor_group.all_gather(context_.stream(), kept, whole).wait(context_.stream());
  return whole;
}

void GptStage::run_backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient,
                            WeightGradient weights) {
  Saved& state = saved(chunk, micro_batch);
  Arena& arena = *state.arena;
  const DropoutPlan plan = dropout(micro_batch);
  const int first = first_layer_index(chunk);
  const std::vector<LayerSpan> groups = this->groups(chunk);
  const ArenaScope scope(context_.workspace);
  // The gradient of the residual stream goes to and fro between two tensors; the chunk's own input gradient is the
  // last.
  const TensorView spare[] = {shape_.allocate_residual(context_.workspace),
                              shape_.allocate_residual(context_.workspace)};
  ConstTensorView dy = output_gradient;
  if (is_last(chunk)) {
    hooks_.before_backward(head_unit());
    if (shard_.first_stage && config_.tied_output) hooks_.before_backward(embedding_unit);  // the tied table
    const TensorView dx = groups.empty() && !is_first(chunk) ? input_gradient : spare[0];
    backward_head(micro_batch, *state.head, state.head_input, dx);
    dy = dx;
    hooks_.after_backward(head_unit());
    arena.release(state.head_mark);
  }
  for (std::size_t g = groups.size(); g-- > 0;) {
    const LayerSpan& group = groups[g];
    SavedSpan& kept = state.groups[g];
    if (group.recomputed) {
      const ConstTensorView input = whole_input(group, kept.input, arena);
      run_and_keep(first + group.first, group.layers, plan, input, {}, arena, kept);
    }
    kept.gradients.resize(kept.layers.size());
    for (int i = group.layers - 1; i >= 0; --i) {
      const bool into_input_gradient = g == 0 && i == 0 && !is_first(chunk);
      const TensorView dx = into_input_gradient ? input_gradient : spare[dy.data() == spare[0].data() ? 1 : 0];
      const ArenaScope layer_scope(context_.workspace);
      TransformerLayer::Gradients& gradients = kept.gradients[static_cast<std::size_t>(i)];
      gradients = TransformerLayer::Gradients::allocate(shape_, recomputation_.selective(), context_.workspace);
      const int layer = first + group.first + i;
      hooks_.before_backward(layer_unit(layer));
      layers_[static_cast<std::size_t>(layer)].backward_input(
          shape_, dy, plan, kept.layers[static_cast<std::size_t>(i)], gradients, dx, weights);
      if (weights == WeightGradient::now) {
        hooks_.after_backward(layer_unit(layer));
      } else {
        layers_[static_cast<std::size_t>(layer)].keep_for_weights(kept.layers[static_cast<std::size_t>(i)], gradients);
        hooks_.pause_backward(layer_unit(layer));
      }
      dy = dx;
    }
    // Released memory makes room for recomputation.
    if (weights == WeightGradient::now) arena.release(kept.mark);
  }
  if (is_first(chunk)) {
    hooks_.before_backward(embedding_unit);
    backward_embedding(micro_batch, dy);
    hooks_.after_backward(embedding_unit);
  }
  note_activation_bytes();
}

void GptStage::backward_input(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) {
  run(parallel::StepKind::backward_input, chunk, micro_batch, output_gradient, input_gradient,
      [&](ConstTensorView dy, TensorView dx) { run_backward(chunk, micro_batch, dy, dx, WeightGradient::later); });
}

void GptStage::backward_weight(int chunk, int micro_batch) {
  run(parallel::StepKind::backward_weight, chunk, micro_batch, {}, {},
      [&](ConstTensorView, TensorView) { run_backward_weight(chunk, micro_batch); });
  release(saved(chunk, micro_batch));
}

void GptStage::run_backward_weight(int chunk, int micro_batch) {
  const Saved& state = saved(chunk, micro_batch);
  const int first = first_layer_index(chunk);
  const std::vector<LayerSpan> groups = this->groups(chunk);
  for (std::size_t g = groups.size(); g-- > 0;) {
    const SavedSpan& kept = state.groups[g];
    for (std::size_t i = kept.layers.size(); i-- > 0;) {
      const int layer = first + groups[g].first + static_cast<int>(i);
      hooks_.before_backward(layer_unit(layer));
      layers_[static_cast<std::size_t>(layer)].backward_weight(shape_, kept.layers[i], kept.gradients[i]);
      hooks_.after_backward(layer_unit(layer));
    }
  }
}

void GptStage::backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) {
  run(parallel::StepKind::backward, chunk, micro_batch, output_gradient, input_gradient,
      [&](ConstTensorView dy, TensorView dx) { run_backward(chunk, micro_batch, dy, dx, WeightGradient::now); });
  release(saved(chunk, micro_batch));
}

}  // namespace trireme::model

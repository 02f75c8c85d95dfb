#include "src/model/stage/decoding_stage.hpp"

#include <algorithm>

namespace trireme::model {

DecodingStage::DecodingStage(const TransformerStage& model, std::int64_t texts, std::int64_t capacity,
                             std::int64_t window)
    : model_(model),
      head_(dynamic_cast<const LanguageModelHead*>(model.head())),
      multiple_(row_multiple(model.context())),
      shape_(model.shape()),
      capacity_(capacity),
      window_(window),
      memory_(model.context().backend),
      lengths_(static_cast<std::size_t>(padded(texts))),
      step_(4 * lengths_.size()) {
  TRIREME_CHECK(shape_.causal, ConfigError,
                "generation failed: a BERT predicts masked tokens, not the next one. Try a checkpoint of a GPT.");
  TRIREME_CHECK(!model.context().sequence_parallel, ShapeError,
                "sequence parallelism splits the sequence, but generation adds one position at a time");
  shape_.b = std::ssize(lengths_);
  shape_.row_chunks = 1;
  shape_.limits_experts = false;
  caches_ = model.layers().make_caches(shape_, padded(capacity), memory_);
  step_fields_ = memory_.allocate(DType::int32, {4, shape_.b});
  if (model.embedding()) text_ids_ = memory_.allocate(DType::int32, {2 * padded(capacity)});
  if (head_ != nullptr) logits_ = memory_.allocate(shape_.dtype, {shape_.b, head_->vocabulary_rows()});
}

void DecodingStage::set_run(std::int64_t first_text, std::int64_t texts, std::int64_t b, std::int64_t positions,
                            std::int64_t s) {
  texts_ = texts;
  newest_ = positions - 1;
  shape_.b = b;
  shape_.s = shape_.s_local = s;
  shape_.positions = {};
  first_text_ = first_text;
  before_.assign(lengths_.begin() + first_text, lengths_.begin() + first_text + b);
  for (std::int64_t text = first_text; text < first_text + texts; ++text) {
    lengths_[static_cast<std::size_t>(text)] += positions;
    TRIREME_CHECK(length(text) <= capacity_, ShapeError, "a text of {} positions for a cache of {}", length(text),
                  capacity_);
  }
}

void DecodingStage::begin_text(std::int64_t text, std::span<const std::int32_t> tokens) {
  const std::int64_t s = std::ssize(tokens);
  const std::int64_t before = length(text);
  set_run(text, 1, 1, s, padded(s));
  shape_.positions = {before};
  shape_.lengths = shape_.position_ids = shape_.first_visible = nullptr;
  batch_ = {};
  if (!text_ids_) return;
  const parallel::TensorContext& context = model_.context();
  std::vector<std::int32_t> filled(tokens.begin(), tokens.end());
  filled.resize(static_cast<std::size_t>(shape_.s));
  // Padding beyond the capacity takes its last position: a table of positions may have no further row.
  const bool exceeds = before + shape_.s > capacity_;
  for (std::int64_t i = 0; exceeds && i < shape_.s; ++i) {
    filled.push_back(static_cast<std::int32_t>(std::min(before + i, capacity_ - 1)));
  }
  const TensorView ids = text_ids_.rows(0, std::ssize(filled));
  context.backend.copy_from_host(context.stream(), ConstTensorView(filled.data(), ids.shape()), ids);
  context.stream().synchronize();  // before `filled` is released
  batch_.tokens = ids.rows(0, shape_.s).reshape({shape_.s, 1});
  if (exceeds) batch_.positions = ids.rows(shape_.s, shape_.s).reshape({shape_.s, 1});
}

void DecodingStage::begin_step(std::span<const std::int32_t> tokens) {
  const std::int64_t count = std::ssize(tokens), b = padded(count), texts = std::ssize(lengths_);
  set_run(0, count, b, 1, 1);
  for (std::int64_t i = 0; i < b; ++i) {
    const auto at = static_cast<std::size_t>(i), stride = static_cast<std::size_t>(texts);
    step_[at] = i < count ? tokens[at] : 0;
    step_[at + stride] = static_cast<std::int32_t>(before_[at]);
    step_[at + 2 * stride] = static_cast<std::int32_t>(before_[at] + 1);
    step_[at + 3 * stride] = static_cast<std::int32_t>(std::max<std::int64_t>(0, before_[at] - window_));
  }
  const parallel::TensorContext& context = model_.context();
  context.backend.copy_from_host(context.stream(), ConstTensorView(step_.data(), {4, texts}), step_fields_);
  context.stream().synchronize();  // the next run overwrites step_
  batch_.tokens = step_fields_.flat(0, b).reshape({1, b});
  batch_.positions = step_fields_.flat(texts, b).reshape({1, b});
  shape_.position_ids = batch_.positions.as<std::int32_t>();
  shape_.lengths = step_fields_.flat(2 * texts, b).as<std::int32_t>();
  if (window_ >= 0) shape_.first_visible = step_fields_.flat(3 * texts, b).as<std::int32_t>();
}

void DecodingStage::copy_text(std::int64_t from, std::int64_t to) {
  const parallel::TensorContext& context = model_.context();
  for (const KeyValueCache& cache : caches_) {
    context.backend.attention().copy_heads(context.stream(), {length(from), 1, 2 * cache.kv_heads(), cache.head_dim()},
                                           cache.keys(from), cache.keys(to));
  }
  lengths_[static_cast<std::size_t>(to)] = length(from);
}

void DecodingStage::forward(int chunk, int /*micro_batch*/, ConstTensorView input, TensorView output) {
  const LayerStack& layers = model_.layers();
  const bool last = is_last(chunk);
  const ArenaScope scope(model_.context().workspace);
  ResidualPair streams(shape_, model_.context().workspace);
  if (is_first(chunk)) {
    const TensorView x = layers.layers_of(chunk) == 0 && !last ? output : streams.next();
    model_.embedding()->forward(shape_, batch_, {}, x, model_.context().workspace);
    input = x;
  }
  const ConstTensorView result = layers.forward_cached(chunk, shape_, streams, input, last ? TensorView() : output,
                                                       {first_text_, before_}, caches_, memory_);
  if (!last) return;
  LayerShape newest = shape_;
  newest.s = newest.s_local = 1;
  head_->logits(newest, result.rows(newest_, 1), logits_.rows(0, shape_.b));
}

void DecodingStage::backward_input(int /*chunk*/, int /*micro_batch*/, ConstTensorView /*output_gradient*/,
                                   TensorView /*input_gradient*/) {
  throw ShapeError("a schedule of generation has a backward");
}

void DecodingStage::backward_weight(int /*chunk*/, int /*micro_batch*/) {
  throw ShapeError("a schedule of generation has a backward");
}

}  // namespace trireme::model

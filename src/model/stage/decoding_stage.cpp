#include "src/model/stage/decoding_stage.hpp"

namespace trireme::model {

DecodingStage::DecodingStage(const TransformerStage& model, std::int64_t capacity)
    : model_(model),
      head_(dynamic_cast<const LanguageModelHead*>(model.head())),
      shape_(model.shape()),
      memory_(model.context().backend) {
  TRIREME_CHECK(shape_.causal, ConfigError,
                "generation failed: a BERT predicts masked tokens, not the next one. Try a checkpoint of a GPT.");
  TRIREME_CHECK(!model.context().sequence_parallel, ConfigError,
                "generation failed: <sequence_parallel> splits the sequence, which here has one new position. Try it "
                "without <sequence_parallel>.");
  shape_.b = 1;
  shape_.s = shape_.s_local = 0;
  caches_ = model.layers().make_caches(shape_, capacity, memory_);
  if (model.embedding()) ids_ = memory_.allocate(DType::int32, {capacity, 1});
  if (head_ != nullptr) logits_ = memory_.allocate(shape_.dtype, {1, head_->vocabulary_rows()});
}

void DecodingStage::begin(std::span<const std::int32_t> tokens) {
  first_position_ += shape_.s;
  shape_.s = shape_.s_local = std::ssize(tokens);
  shape_.positions = {first_position_};
  if (!ids_) return;
  const parallel::TensorContext& context = model_.context();
  context.backend.copy_from_host(context.stream(), ConstTensorView(tokens.data(), {shape_.s, 1}),
                                 ids_.rows(0, shape_.s));
}

void DecodingStage::clear() {
  for (KeyValueCache& cache : caches_) cache.length = 0;
  first_position_ = shape_.s = shape_.s_local = 0;
}

void DecodingStage::forward(int chunk, int /*micro_batch*/, ConstTensorView input, TensorView output) {
  const LayerStack& layers = model_.layers();
  const bool last = is_last(chunk);
  const ArenaScope scope(model_.context().workspace);
  ResidualPair streams(shape_, model_.context().workspace);
  if (is_first(chunk)) {
    MicroBatch batch;
    batch.tokens = ids_.rows(0, shape_.s);
    const TensorView x = layers.layers_of(chunk) == 0 && !last ? output : streams.next();
    model_.embedding()->forward(shape_, batch, {}, x, model_.context().workspace);
    input = x;
  }
  const ConstTensorView result =
      layers.forward_cached(chunk, shape_, streams, input, last ? TensorView() : output, caches_);
  if (!last) return;
  LayerShape newest = shape_;
  newest.s = newest.s_local = 1;
  head_->logits(newest, result.rows(shape_.s - 1, 1), logits_);
}

void DecodingStage::backward_input(int /*chunk*/, int /*micro_batch*/, ConstTensorView /*output_gradient*/,
                                   TensorView /*input_gradient*/) {
  throw ShapeError("a schedule of generation has a backward");
}

void DecodingStage::backward_weight(int /*chunk*/, int /*micro_batch*/) {
  throw ShapeError("a schedule of generation has a backward");
}

}  // namespace trireme::model

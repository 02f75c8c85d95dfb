#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/model/heads/language_model_head.hpp"
#include "src/model/stage/transformer_stage.hpp"

namespace trireme::model {

/// Forward of a GPT stage in generation: one micro-batch holds the newest positions of one sequence. Keys and values of
/// earlier positions are in caches, to which each forward appends.
class DecodingStage final : public parallel::Stage {
 public:
  /// `model` must live longer. The caches hold `capacity` positions. ConfigError with sequence parallelism,
  /// and for a model that is not causal.
  DecodingStage(const TransformerStage& model, std::int64_t capacity);

  /// Sets the tokens that the executor's next run appends. They must live until it is done.
  void begin(std::span<const std::int32_t> tokens);
  /// Forgets all positions.
  void clear();
  /// Positions in the caches, those of the current run included.
  std::int64_t positions() const { return first_position_ + shape_.s; }
  /// This rank's shard of the logits of the newest position, [1, vocabulary rows] in the training type; empty unless
  /// this rank is of the last stage.
  ConstTensorView logits() const { return logits_; }

  DType boundary_dtype() const override { return model_.boundary_dtype(); }
  Shape boundary_shape(int /*micro_batch*/) const override { return {shape_.s, shape_.b, shape_.h}; }
  bool is_first(int chunk) const override { return model_.is_first(chunk); }
  bool is_last(int chunk) const override { return model_.is_last(chunk); }
  void forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) override;
  /// ShapeError: a generation's schedule has forwards only.
  void backward_input(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override;
  void backward_weight(int chunk, int micro_batch) override;

 private:
  const TransformerStage& model_;
  const LanguageModelHead* head_;  // null unless this rank is of the last stage
  LayerShape shape_;               // shape of the current run
  std::int64_t first_position_ = 0;
  Arena memory_;
  std::vector<KeyValueCache> caches_;  // one for each layer of this rank
  TensorView ids_;                     // [capacity, 1]
  TensorView logits_;
};

}  // namespace trireme::model

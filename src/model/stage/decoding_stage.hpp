#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/model/stage/transformer_stage.hpp"

namespace trireme::model {

/// Forward of a GPT stage in generation. One micro-batch holds the newest positions: all of one text, or one of each of
/// several texts. Each forward appends keys and values to caches of the earlier positions. Texts are numbered from 0;
/// each has its own length, and its results do not depend on other texts.
class DecodingStage final : public parallel::Stage {
 public:
  /// `model` must outlive it. The caches hold `capacity` positions of each of `texts` texts. `window` is the model's
  /// AttentionWindow::left. ConfigError for a model that is not causal, ShapeError with sequence parallelism (see
  /// ParallelModel::decoding_model).
  DecodingStage(const TransformerStage& model, std::int64_t texts, std::int64_t capacity, std::int64_t window);

  /// Sets the tokens, at least one, that the executor's next run appends to a text, whose length is a multiple of
  /// row_multiple.
  void begin_text(std::int64_t text, std::span<const std::int32_t> tokens);
  /// Sets the tokens that the executor's next run appends, one to each text from 0 on.
  void begin_step(std::span<const std::int32_t> tokens);
  /// Discards the positions of a text from `length` on, which is at most its length.
  void cut(std::int64_t text, std::int64_t length) { lengths_[static_cast<std::size_t>(text)] = length; }
  /// Replaces text `to` by text `from`.
  void copy_text(std::int64_t from, std::int64_t to);
  /// Positions of a text, including those of the current run.
  std::int64_t length(std::int64_t text) const { return lengths_[static_cast<std::size_t>(text)]; }
  /// This rank's shard of the logits of each text's newest position, [b, vocabulary rows] in the training type; empty
  /// except on the last stage.
  ConstTensorView logits() const { return head_ == nullptr ? ConstTensorView() : logits_.rows(0, texts_); }

  DType boundary_dtype() const override { return model_.boundary_dtype(); }
  Shape boundary_shape(int /*micro_batch*/) const override { return {shape_.s, shape_.b, shape_.h}; }
  bool is_first(int chunk) const override { return model_.is_first(chunk); }
  bool is_last(int chunk) const override { return model_.is_last(chunk); }
  void forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) override;
  /// Extents of a run are multiples of this: with folded experts, tensor ranks divide its tokens. Padding follows the
  /// true positions or texts, and leaves no trace in the caches' lengths.
  static std::int64_t row_multiple(const parallel::TensorContext& context) {
    return context.folds_experts() ? context.tensor_group.size() : 1;
  }
  /// Throws ShapeError: a generation's schedule has only forwards.
  void backward_input(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override;
  void backward_weight(int chunk, int micro_batch) override;

 private:
  /// Sets the extents of a run of `texts` texts and `positions` positions, with padding b and s, and the earlier
  /// lengths of its texts.
  void set_run(std::int64_t first_text, std::int64_t texts, std::int64_t b, std::int64_t positions, std::int64_t s);
  std::int64_t padded(std::int64_t rows) const { return (rows + multiple_ - 1) / multiple_ * multiple_; }

  const TransformerStage& model_;
  const LanguageModelHead* head_;  // null except on the last stage
  std::int64_t multiple_;          // row_multiple
  LayerShape shape_;               // shape of the current run, with padding
  std::int64_t texts_ = 0;         // texts of the run
  std::int64_t newest_ = 0;        // row of each text's newest position
  std::int64_t capacity_;
  std::int64_t window_;
  Arena memory_;                       // caches, and a layer's route of tokens to experts
  std::vector<KeyValueCache> caches_;  // one for each layer of this rank
  std::vector<std::int64_t> lengths_;  // positions of every text, including the current run
  std::vector<std::int64_t> before_;   // positions of the run's texts before it
  std::int64_t first_text_ = 0;        // first text of the run
  std::vector<std::int32_t> step_;     // host copy of step_fields_
  TensorView step_fields_;  // [4, texts]: token, position, length and first position in the window, of a run of steps
  TensorView text_ids_;     // [2 capacity]: tokens of a run of one text, and their positions if padding exceeds the
                            // model's; empty except on the first stage
  MicroBatch batch_;        // the run's tokens and positions
  TensorView logits_;
};

}  // namespace trireme::model

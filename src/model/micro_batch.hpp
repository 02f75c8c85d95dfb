#pragma once

#include <cstdint>

#include "src/tensor/tensor_view.hpp"

namespace trireme::model {

/// One micro-batch on the device, the same on every pipeline stage; s counts the rows of this context rank. Optional
/// fields that the model does not request are empty.
struct MicroBatch {
  ConstTensorView tokens;            ///< [s, b] int32
  ConstTensorView labels;            ///< [s, b] or [n] int32: token to predict; 0 if the weight is 0
  ConstTensorView loss_weights;      ///< [s b] or [n] A: weight of each prediction's loss; 0 if there is none
  ConstTensorView samples;           ///< [b] int64: number of each sample since the start of training
  ConstTensorView token_types = {};  ///< [s, b] int32, optional
  /// [s, b] int32, optional: replaces the positions in the sequence for learned positions or rotation. Dropout still
  /// depends on the position in the sequence.
  ConstTensorView positions = {};
  ConstTensorView first_visible = {};  ///< [s, b] int32, optional: AttentionProblem::first_visible
  ConstTensorView lengths = {};        ///< [b] int32, optional: positions of the full sequence before padding
  /// [b] int32 and A, optional: class of each sample, and weight of its loss; 0 if it has none. In BERT's pretraining
  /// the class is 1 if the second segment does not follow the first. For a value, the bits of it in fp32. For choices,
  /// [b / c]: the right one of each c samples. For spans, the first position.
  ConstTensorView sample_labels = {};
  ConstTensorView sample_weights = {};
  ConstTensorView span_ends = {};  ///< [b] int32, optional: last position of each sample's answer
  /// [b] int32, optional: row, in [s, b] of the full sequence, of each sample's last token before padding.
  ConstTensorView last_rows = {};
  /// Optional, for depths d = 1 ... D of AheadPrediction: the token d places after each position [D, s, b] int32, the
  /// token d places after its label, and the weight of that one's loss [D, s b] A; 0 beyond the end of the sample, or
  /// of the position's document if samples delimit those.
  ConstTensorView tokens_ahead = {};
  ConstTensorView labels_ahead = {};
  ConstTensorView ahead_weights = {};
  /// Optional: only n of the s b rows predict a token. `predictions` [n] int32 are these rows, in [s, b], or -1 for an
  /// unused prediction, of weight 0. `prediction_numbers` [s, b] int32 are the inverse: the number of each row's
  /// prediction, or -1.
  ConstTensorView predictions = {};
  ConstTensorView prediction_numbers = {};
  /// As loss_weights, and [b] A: gradient of each token's and sample's unweighted loss, and [D, s b] of those ahead. If
  /// empty, they are computed from the weights and the mode.
  ConstTensorView loss_gradient = {};
  ConstTensorView sample_loss_gradient = {};
  ConstTensorView ahead_loss_gradient = {};
  /// As loss_weights, optional: results of the last stage's forward for each prediction, the same on every tensor rank:
  /// the weighted loss, and the number of tokens more likely than the label.
  TensorView token_losses = {};
  TensorView rivals = {};
  /// [s b or n, vocabulary rows] T, optional: result of the last stage's forward, this tensor rank's shard of the
  /// logits.
  TensorView logits = {};
};

/// Mode in which a stage runs its micro-batches.
struct StageMode {
  bool backward = false;        ///< a backward follows each forward
  bool limits_experts = false;  ///< an expert computes at most its capacity: in training and its loss evaluations
  double hidden_dropout = 0;
  double attention_dropout = 0;
  double router_jitter = 0;  ///< RouterJitter::eps
  std::uint64_t seed = 0;
  double loss_gradient = 1;  ///< gradient of the weighted token loss sum: loss scale / counted tokens
  /// Gradient of the mean losses of a micro-batch, which routers alone have: loss scale / micro-batches. 1 without
  /// them: graphs are recorded again when it changes.
  double mean_gradient = 1;
  double sample_loss_gradient = 1;  ///< gradient of the weighted sample loss sum: loss scale / counted samples
  /// Gradient of the sum of each depth ahead: loss scale x loss factor / depths / counted tokens.
  double ahead_loss_gradient = 1;
};

}  // namespace trireme::model

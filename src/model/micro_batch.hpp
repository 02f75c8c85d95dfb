#pragma once

#include <cstdint>

#include "src/tensor/tensor_view.hpp"

namespace trireme::model {

/// One micro-batch on the device, as every stage of a pipeline gets it; s are the rows of this context rank. Optional
/// fields that the model does not request are empty.
struct MicroBatch {
  ConstTensorView tokens;            ///< [s, b] int32
  ConstTensorView labels;            ///< [s, b] int32: token to predict; 0 if the weight is 0
  ConstTensorView loss_weights;      ///< [s b] A: weight of each position's loss; 0 if nothing is predicted
  ConstTensorView samples;           ///< [b] int64: number of each sample since the start of training
  ConstTensorView token_types = {};  ///< [s, b] int32, optional
  /// [s, b] int32, optional: positions instead of those in the sequence, for the table of learned positions or the
  /// angles of rotation. The dropout of a position depends on the sequence alone.
  ConstTensorView positions = {};
  ConstTensorView first_visible = {};  ///< [s, b] int32, optional: AttentionProblem::first_visible
  ConstTensorView lengths = {};        ///< [b] int32, optional: positions of the full sequence before the padding
  /// [b] int32 and A, optional: class of each sample, and weight of its loss; 0 if it has none. BERT's class is 1
  /// where the second segment does not follow the first. Of choices, [b / c]: the right one of each c samples. Of
  /// spans, the first position.
  ConstTensorView sample_labels = {};
  ConstTensorView sample_weights = {};
  ConstTensorView span_ends = {};  ///< [b] int32, optional: last position of each sample's answer
  /// [b] int32, optional: row, in [s, b] of the full sequence, of each sample's last token before the padding.
  ConstTensorView last_rows = {};
  /// [s b] and [b] A: gradient of each token's and sample's unweighted loss. Where empty, the head makes it of the
  /// weights and the mode.
  ConstTensorView loss_gradient = {};
  ConstTensorView sample_loss_gradient = {};
  /// [s b] A, optional: results of the last stage's forward for each token, the same on every tensor rank. The weighted
  /// loss, and the number of tokens preferred to the label: 0 if the label is the most likely token.
  TensorView token_losses = {};
  TensorView rivals = {};
  /// [s b, vocabulary rows] T, optional: result of the last stage's forward, this tensor rank's shard of the logits.
  TensorView logits = {};
};

/// Mode in which a stage runs its micro-batches.
struct StageMode {
  bool backward = false;  ///< a backward follows each forward
  double hidden_dropout = 0;
  double attention_dropout = 0;
  std::uint64_t seed = 0;
  double loss_gradient = 1;         ///< gradient of the sum of weighted token losses: loss scale / tokens that count
  double sample_loss_gradient = 1;  ///< gradient of the sum of weighted sample losses: loss scale / samples that count
};

}  // namespace trireme::model

#pragma once

#include <vector>

#include "src/model/heads/token_prediction.hpp"
#include "src/model/stage/input_embedding.hpp"
#include "src/model/stage/layer_stack.hpp"

namespace trireme::model {

/// Multi-token prediction (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2), on the last stage in training. With h_0
/// the normed result of the model's last layer, t_i the tokens and [u; w] the concatenation, depth d = 1 ... D computes
///   h_d(i) = norm(layer([norm(embedding(t_(i + d))); norm(h_(d-1)(i))] W^T))
/// and predicts t_(i + d + 1) by the model's output matrix. The losses of a depth are summed with the weights
/// MicroBatch::ahead_weights.
class AheadPrediction {
 public:
  /// State of one micro-batch between forward and backward, by depth.
  struct SavedDepth {
    TensorView embedded;  // [s_local, b, h]
    InputEmbedding::Saved embedding;
    ConstTensorView hidden;
    NormStatistics of_embedded, of_hidden, of_output;
    TensorView joined;  // [local rows, 2 h]
    LayerStack::Saved layers;
    ConstTensorView output;
    TokenPrediction::Saved tokens;
  };
  using Saved = std::vector<SavedDepth>;

  /// Adds for each depth mtp.N.embedding_ln.*, mtp.N.hidden_ln.*, mtp.N.proj.weight [h, 2 h], the layer
  /// h.(layers + N).* and mtp.N.ln.*, with N counted from 0.
  static void declare(ParameterList& list, const ModelConfig& config);
  /// Takes these parameters, the token table and the output matrix. `activations` must outlive it.
  AheadPrediction(const parallel::TensorContext& context, const parallel::VocabularyPartition& vocabulary,
                  const parallel::ParameterBuffer& parameters, const ModelConfig& config, const StageShard& shard,
                  const Recomputation& recomputation, std::int64_t loss_chunks, ActivationStore& activations);

  /// Adds the losses to the sums, unless chunks leave that to backward. `pass` is the last chunk's, without its
  /// streams; x = h_0 [s_local, b, h] must outlive the result.
  Saved forward(const LayerStack::Pass& pass, const MicroBatch& batch, const StageMode& mode, ConstTensorView x);
  /// Returns dx, the gradient of h_0, in the work space; accumulates the parameters' gradients and frees what forward
  /// kept.
  ConstTensorView backward(const LayerStack::Pass& pass, const MicroBatch& batch, const StageMode& mode, Saved& saved);

  const LayerStack& layers() const { return layers_; }
  /// sum [1] fp64 = the sum of losses of all depths since the last call. Stream-ordered.
  void take_loss_sum(TensorView sum) { tokens_.take_loss_sum(sum); }

 private:
  /// Parts of a depth besides its layer.
  struct Depth {
    InputEmbedding embedding;
    Norm embedding_norm, hidden_norm, norm;
    ReplicatedLinear projection;
  };
  /// The micro-batch as depth `index` sees it, and the mode.
  MicroBatch batch_of(const MicroBatch& batch, std::size_t index) const;
  static StageMode mode_of(StageMode mode) {
    mode.loss_gradient = mode.ahead_loss_gradient;
    return mode;
  }
  /// Copies a matrix [local rows, h] to (or from) the left or right half of `joined`.
  void copy_half(const LayerShape& shape, ConstTensorView from, int half, TensorView joined) const;
  void take_half(const LayerShape& shape, ConstTensorView joined, int half, TensorView to) const;

  parallel::TensorContext context_;
  std::vector<Depth> depths_;
  parallel::NoParameterHooks hooks_;  // the parameters belong to the head's unit
  LayerStack layers_;                 // one chunk a depth
  TokenPrediction tokens_;
};

}  // namespace trireme::model

#pragma once

#include <string>

#include "src/model/blocks/column_activation.hpp"
#include "src/model/blocks/layer_shape.hpp"
#include "src/model/parameter_list.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/linear.hpp"

namespace trireme::model {

/// Feed-forward block of a layer: y = F(x) = act(x W_fc^T + b_fc) W_proj^T, both [s_local, b, h]; W_fc is
/// column-parallel, W_proj row-parallel. The residual form adds the output bias, if any. Either `act` is an elementwise
/// activation, or the columns are halves, gate and up, and act = silu(gate) up or gelu(gate) up (SwiGLU, GeGLU: Shazeer
/// 2020, arXiv:2002.05202), which is cheap: backward always recomputes it.
class FeedForward {
 public:
  /// State of one micro-batch between forward and backward.
  struct Saved {
    ConstTensorView input;   ///< matrix of x
    TensorView expanded;     ///< x W_fc^T + b_fc: [s b, f_local], gated [s b, 2 f_local]
    TensorView activated;    ///< [s b, f_local]; empty where backward recomputes it or no gradient reads it
    Fp8Copy activated_copy;  ///< in the memory of `activated`; if it is made, that is not
  };
  /// Gradients that backward_weight reads.
  struct Gradients {
    TensorView output;  ///< [s_local, b, h], of y
    TensorView expanded;
  };

  /// Adds the parameters `prefix`.* of a block of `width` columns.
  static void declare(ParameterList& list, const ModelConfig& config, std::int64_t width, const std::string& prefix);
  /// Takes these parameters.
  FeedForward(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
              const std::string& prefix, const ModelConfig& config);

  /// `selective` recomputation keeps less.
  Saved make_saved(const LayerShape& shape, bool selective, Arena& arena) const;
  Gradients make_gradients(const LayerShape& shape, Arena& arena) const;

  /// Overwrites y; x must outlive `saved`. An empty y only fills `saved`.
  void forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const;
  /// The same for a chunk of rows, without the sum over the tensor group: overwrites `term`, this rank's term of y.
  void forward_chunk(parallel::RowChunk chunk, parallel::TensorContext::Gathering& x, Saved& saved,
                     TensorView term) const;
  /// Computes dx from gradients.output, overwritten, and fills the rest of `gradients`. Gradients of weights whose
  /// input is recomputed are accumulated here even if `weights` is later.
  void backward_input(const LayerShape& shape, const Saved& saved, const Gradients& gradients, TensorView dx,
                      parallel::WeightGradient weights) const;
  /// First half of backward_input, from the gathered gradients.output: fills gradients.expanded chunk by chunk, calls
  /// `filled`, and then accumulates the gradient of a weight.
  void backward_projection(parallel::TensorContext::Gathering& doutput, const Saved& saved, const Gradients& gradients,
                           parallel::WeightGradient weights, const std::function<void()>& filled) const;
  /// Second half: computes dx by way of `term` and `input`, and returns its sums in flight
  /// (ColumnParallelLinear::backward_input).
  parallel::ChunkWorks backward_expansion(const LayerShape& shape, const Saved& saved, const Gradients& gradients,
                                          TensorView dx, parallel::WeightGradient weights, TensorView term,
                                          parallel::TensorContext::Gathering* input) const;
  /// Accumulates the weight gradients that backward_input left.
  void backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const;
  /// Moves the gradients that backward_weight reads to tensors of `saved` that are no longer read, and the gradient of
  /// the output to `unread`, which has the residual stream's shape.
  void keep_for_weights(const Saved& saved, Gradients& gradients, TensorView unread) const;

 private:
  /// Computes act(expanded), [rows, f_local] in the work space.
  TensorView activate(TensorView expanded) const;
  /// Accumulates the gradient of the projection's weight from the gathered `doutput` and its copy.
  void accumulate_projection(ConstTensorView doutput, const Saved& saved, Fp8Copy* copy) const;
  /// Returns whether the activation runs where its result is rounded to FP8: GELU (cuda/kernels/fp8.cu).
  bool rounds_activation() const { return is_gelu() && projection_.computes_sources(); }
  /// The same of its backward.
  bool rounds_gradient(parallel::WeightGradient weights) const {
    return is_gelu() && weights == parallel::WeightGradient::now && expansion_.computes_sources();
  }
  bool is_gelu() const {
    const Activation function = activation_.function;
    return !activation_.gated && (function == Activation::gelu_tanh || function == Activation::gelu_erf);
  }
  /// Copies `gradient` to the tensor `to` of its size and redirects it there.
  void move(TensorView& gradient, TensorView to) const;

  parallel::TensorContext context_;
  std::int64_t columns_;  // f_local
  parallel::ColumnParallelLinear expansion_;
  parallel::RowParallelLinear projection_;
  ColumnActivation activation_;
};

}  // namespace trireme::model

#pragma once

#include "src/model/layers/layer_shape.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/linear.hpp"

namespace trireme::model {

/// The feed-forward block: y = activation(x W_fc^T + b_fc) W_proj^T, without the second bias; W_fc column-parallel,
/// W_proj row-parallel. With SwiGLU the first product has two halves, gate and up, each split over the tensor ranks,
/// and the activation is silu(gate) up. It is cheap: only the halves are kept, and backward recomputes it.
class Mlp {
 public:
  /// Inputs of backward. With SwiGLU or selective recomputation backward recomputes `activated`.
  struct Saved {
    ConstTensorView input;
    TensorView pre_activation;  ///< [s, b, f_local], with SwiGLU [s, b, 2, f_local]
    TensorView activated;       ///< [s, b, f_local], or empty
    static Saved allocate(const LayerShape& shape, bool selective, Arena& arena);
  };
  /// Gradients that backward_weight needs.
  struct Gradients {
    TensorView output;  ///< [s_local, b, h]
    TensorView pre_activation;
    static Gradients allocate(const LayerShape& shape, Arena& arena);
  };

  /// Takes the parameters `prefix`.fc.* and `prefix`.proj.weight.
  Mlp(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix,
      const ModelConfig& config);

  /// y [s_local, b, h], overwritten; x must live as long as `saved`. Where y is empty only `saved` is made.
  void forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const;
  /// Computes dx from gradients.output, overwritten, and fills the rest of `gradients`. Where `activated` is
  /// recomputed, the projection's weight gets its gradient here even where the others are left for later.
  void backward_input(const LayerShape& shape, const Saved& saved, Gradients& gradients, TensorView dx,
                      parallel::WeightGradient weights) const;
  void backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const;

 private:
  /// The first product, or its gradient, as a matrix.
  static TensorView pre_activation(const LayerShape& shape, TensorView tensor) {
    return tensor.reshape({shape.rows(), shape.expansion_columns()});
  }
  /// The second product's input, a matrix: kept, or made in the work space.
  TensorView activated(const LayerShape& shape, const Saved& saved) const;

  parallel::TensorContext context_;
  parallel::ColumnParallelLinear expansion_;
  parallel::RowParallelLinear projection_;
  Activation activation_;
};

}  // namespace trireme::model

#pragma once

#include <string>

#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::model {

/// Linear layer replicated on every rank of the tensor group: y = activation(x W^T + b). Each rank computes its own
/// rows of the residual stream.
class Dense {
 public:
  /// Takes the parameters `prefix`.weight [out, in] and `prefix`.bias [out].
  Dense(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix)
      : context_(context),
        weight_(parameters.at(prefix + ".weight").value),
        bias_(parameters.at(prefix + ".bias").value),
        weight_gradient_(parameters.at(prefix + ".weight").gradient),
        bias_gradient_(parameters.at(prefix + ".bias").gradient) {}

  std::int64_t outputs() const { return weight_.shape()[0]; }

  /// x [n, in]; overwrites y and, if there is an activation, pre_activation, both [n, out].
  void forward(ConstTensorView x, Activation activation, TensorView pre_activation, TensorView y) const {
    context_.backend.gemm().linear(context_.stream(), x, weight_, bias_, activation, pre_activation, y);
  }
  /// Accumulates the gradients of W and b from dy [n, out], the gradient before the activation. dx = dy W, overwritten,
  /// times activation'(pre_activation) if x = activation(pre_activation) comes from the layer below.
  void backward(ConstTensorView dy, ConstTensorView x, Activation activation, ConstTensorView pre_activation,
                TensorView dx) const {
    GemmKernels& gemm = context_.backend.gemm();
    gemm.linear_backward_weight(context_.stream(), dy, x, weight_gradient_, bias_gradient_);
    gemm.linear_backward_input(context_.stream(), dy, weight_, activation, pre_activation, dx);
  }

 private:
  parallel::TensorContext context_;
  TensorView weight_, bias_, weight_gradient_, bias_gradient_;
};

}  // namespace trireme::model

#pragma once

#include <string>

#include "src/backend/kernels/norm.hpp"
#include "src/model/parameter_list.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::model {

/// Value of a parameter that the model may lack: then empty.
inline TensorView value_of(const parallel::Parameter* parameter) { return parameter ? parameter->value : TensorView(); }
inline TensorView gradient_of(const parallel::Parameter* parameter) {
  return parameter ? parameter->gradient : TensorView();
}

/// A bias that an operation after its product adds, and its gradient; empty in models without it.
struct OutputBias {
  OutputBias(const parallel::ParameterBuffer& parameters, const std::string& name)
      : value(value_of(parameters.find(name))), gradient(gradient_of(parameters.find(name))) {}
  TensorView value, gradient;
};

/// Normalisation of the rows of a tensor: the model's LayerNorm or RMSNorm (NormKernels).
class Norm {
 public:
  /// Adds `prefix`.weight [width], and of LayerNorm `prefix`.bias. With `of_heads` the rows are heads, of which each
  /// tensor rank has some; else those of the residual stream.
  static void declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, std::int64_t width,
                      bool of_heads = false);

  Norm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix,
       const ModelConfig& config);

  /// Allocates the statistics of `rows` rows for training in `dtype`.
  NormStatistics make_statistics(std::int64_t rows, DType dtype, Arena& arena) const;
  /// y = norm(x); overwrites y and `statistics`.
  void forward(ConstTensorView x, TensorView y, const NormStatistics& statistics) const;
  /// sum = residual + dropout(x + bias), y = norm(sum); overwrites sum, y and `statistics`.
  void forward_sum(ConstTensorView x, ConstTensorView bias, ConstTensorView residual, const Dropout& dropout,
                   TensorView sum, TensorView y, const NormStatistics& statistics) const;
  /// dx = dresidual, if any, + the gradient of x from dy; dx is overwritten and may be dy or dresidual. Accumulates the
  /// gradients of weight and bias.
  void backward(ConstTensorView dy, ConstTensorView x, const NormStatistics& statistics, ConstTensorView dresidual,
                TensorView dx) const;

 private:
  parallel::TensorContext context_;
  bool has_mean_;
  double epsilon_;
  NormWeight weight_;
  TensorView bias_;
  TensorView weight_gradient_;
  TensorView bias_gradient_;
};

}  // namespace trireme::model

#include "src/model/layers/mlp.hpp"

namespace trireme::model {

using parallel::WeightGradient;

Mlp::Saved Mlp::Saved::allocate(const LayerShape& shape, bool selective, Arena& arena) {
  Saved saved;
  saved.pre_activation = shape.allocate(arena, shape.expansion_columns());
  if (!shape.swiglu && !selective) saved.activated = shape.allocate(arena, shape.f_local);
  return saved;
}

Mlp::Gradients Mlp::Gradients::allocate(const LayerShape& shape, Arena& arena) {
  Gradients gradients;
  gradients.output = shape.allocate_residual(arena);
  gradients.pre_activation = shape.allocate(arena, shape.expansion_columns());
  return gradients;
}

Mlp::Mlp(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix,
         const ModelConfig& config)
    : context_(context),
      expansion_(context, parameters.at(prefix + ".fc.weight"), parameters.find(prefix + ".fc.bias")),
      projection_(context, parameters.at(prefix + ".proj.weight")),
      activation_(config.swiglu ? Activation::none : config.activation) {}

TensorView Mlp::activated(const LayerShape& shape, const Saved& saved) const {
  const Shape matrix{shape.rows(), shape.f_local};
  if (saved.activated) return saved.activated.reshape(matrix);
  const TensorView result = context_.workspace.allocate(shape.dtype, matrix);
  const TensorView pre = pre_activation(shape, saved.pre_activation);
  if (shape.swiglu) {
    context_.backend.elementwise().swiglu(context_.stream(), pre, result);
  } else {
    context_.backend.elementwise().activate(context_.stream(), activation_, pre, result);
  }
  return result;
}

void Mlp::forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  const TensorView pre = pre_activation(shape, saved.pre_activation);
  TensorView result;
  if (shape.swiglu) {
    expansion_.forward(shape.as_rows(x), activation_, {}, pre);
    if (y) result = activated(shape, saved);
  } else {
    const Shape matrix{shape.rows(), shape.f_local};
    result = saved.activated ? saved.activated.reshape(matrix) : context_.workspace.allocate(shape.dtype, matrix);
    expansion_.forward(shape.as_rows(x), activation_, pre, result);
  }
  if (y) projection_.forward(result, shape.as_rows(y));
}

void Mlp::backward_input(const LayerShape& shape, const Saved& saved, Gradients& gradients, TensorView dx,
                         WeightGradient weights) const {
  const TensorView pre = pre_activation(shape, saved.pre_activation);
  const TensorView dpre = pre_activation(shape, gradients.pre_activation);
  const ConstTensorView dy = shape.as_rows(gradients.output);
  {
    const ArenaScope scope(context_.workspace);
    const WeightGradient of_projection = saved.activated ? weights : WeightGradient::now;
    const ConstTensorView x = of_projection == WeightGradient::now ? activated(shape, saved) : ConstTensorView();
    if (shape.swiglu) {
      const TensorView dactivated = context_.workspace.allocate(shape.dtype, {shape.rows(), shape.f_local});
      projection_.backward_input(dy, x, activation_, {}, dactivated, of_projection);
      context_.backend.elementwise().swiglu_backward(context_.stream(), dactivated, pre, dpre);
    } else {
      projection_.backward_input(dy, x, activation_, pre, dpre, of_projection);
    }
  }
  expansion_.backward_input(dpre, shape.as_rows(saved.input), shape.as_rows(dx), weights);
}

void Mlp::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  if (saved.activated) projection_.backward_weight(shape.as_rows(gradients.output), activated(shape, saved));
  expansion_.backward_weight(pre_activation(shape, gradients.pre_activation), shape.as_rows(saved.input));
}

}  // namespace trireme::model

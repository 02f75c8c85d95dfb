#include "src/model/mlp.hpp"

namespace trireme::model {

Mlp::Saved Mlp::Saved::allocate(const LayerShape& shape, Arena& arena) {
  Saved saved;
  saved.pre_activation = shape.allocate(arena, shape.f_local);
  saved.activated = shape.allocate(arena, shape.f_local);
  return saved;
}

Mlp::Mlp(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters, const std::string& prefix,
         Activation activation)
    : expansion_(context, parameters.at(prefix + ".fc.weight"), &parameters.at(prefix + ".fc.bias")),
      projection_(context, parameters.at(prefix + ".proj.weight")),
      activation_(activation) {}

void Mlp::forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const {
  const std::int64_t n = shape.rows();
  saved.input = x;
  expansion_.forward(shape.as_rows(x), activation_, saved.pre_activation.reshape({n, shape.f_local}),
                     saved.activated.reshape({n, shape.f_local}));
  projection_.forward(saved.activated.reshape({n, shape.f_local}), shape.as_rows(y));
}

Mlp::Gradients Mlp::backward_input(const LayerShape& shape, ConstTensorView dy, const Saved& saved, Arena& arena,
                                   TensorView dx, parallel::WeightGradient weights) const {
  const std::int64_t n = shape.rows();
  const Gradients gradients{dy, shape.allocate(arena, shape.f_local)};
  const TensorView dpre = gradients.pre_activation.reshape({n, shape.f_local});
  projection_.backward_input(shape.as_rows(dy), saved.activated.reshape({n, shape.f_local}), activation_,
                             saved.pre_activation.reshape({n, shape.f_local}), dpre, weights);
  expansion_.backward_input(dpre, shape.as_rows(saved.input), shape.as_rows(dx), weights);
  return gradients;
}

void Mlp::backward_weight(const LayerShape& shape, const Saved& saved, const Gradients& gradients) const {
  const std::int64_t n = shape.rows();
  projection_.backward_weight(shape.as_rows(gradients.output), saved.activated.reshape({n, shape.f_local}));
  expansion_.backward_weight(gradients.pre_activation.reshape({n, shape.f_local}), shape.as_rows(saved.input));
}

}  // namespace trireme::model

#include "src/model/blocks/residual_form.hpp"

namespace trireme::model {

void ResidualForm::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, int branch) {
  Norm::declare(list, config, prefix + (branch == 1 ? ".ln_1" : ".ln_2"), config.hidden);
}

std::unique_ptr<ResidualForm> ResidualForm::make(const parallel::TensorContext& context,
                                                 const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                                 const ModelConfig& config) {
  if (config.post_norm()) return std::make_unique<PostNorm>(context, parameters, prefix, config);
  return std::make_unique<PreNorm>(context, parameters, prefix, config);
}

ResidualForm::ResidualForm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                           const std::string& prefix, const ModelConfig& config)
    : context_(context),
      norm_1_(context, parameters, prefix + ".ln_1", config),
      norm_2_(context, parameters, prefix + ".ln_2", config) {}

ResidualForm::Saved ResidualForm::make_saved(const LayerShape& shape, Arena& arena) const {
  Saved saved;
  saved.normed_1 = shape.allocate_residual(arena);
  saved.statistics_1 = norm_1_.make_statistics(shape.local_rows(), shape.dtype, arena);
  saved.middle = shape.allocate_residual(arena);
  saved.second = shape.allocate_residual(arena);
  saved.statistics_2 = norm_2_.make_statistics(shape.local_rows(), shape.dtype, arena);
  return saved;
}

void ResidualForm::add(ConstTensorView x, const Branch& branch, ConstTensorView residual, TensorView y) const {
  context_.backend.elementwise().bias_dropout_add(context_.stream(), x, branch.bias, residual, branch.dropout, y);
}

void ResidualForm::backward_branch(const BranchGradient& branch, ConstTensorView dsum, TensorView dx) const {
  context_.backend.elementwise().bias_dropout_add_backward(context_.stream(), dsum, branch.dropout, branch.output,
                                                           branch.bias_gradient);
  branch.run(dx);
}

}  // namespace trireme::model

#include "src/model/blocks/residual_form.hpp"

namespace trireme::model {
namespace {

/// middle = x + dropout(F_1(norm_1(x)) + b_1),  y = middle + dropout(F_2(norm_2(middle)) + b_2) (Radford et al. 2019).
class PreNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;

  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, TensorView y) const override {
    const ArenaScope scope(context_.workspace);
    const TensorView branch = shape.allocate_residual(context_.workspace);
    saved.input = x;
    norm_1_.forward(x, saved.normed_1, saved.statistics_1);
    attention.run(saved.normed_1, branch);
    norm_2_.forward_sum(branch, attention.bias, x, attention.dropout, saved.middle, saved.second, saved.statistics_2);
    feed_forward.run(saved.second, y ? branch : TensorView());
    if (!y) return;
    context_.backend.elementwise().bias_dropout_add(context_.stream(), branch, feed_forward.bias, saved.middle,
                                                    feed_forward.dropout, y);
  }

  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const override {
    const ArenaScope scope(context_.workspace);
    const TensorView dmiddle = shape.allocate_residual(context_.workspace);
    backward_branch(feed_forward, dy, dmiddle);
    norm_2_.backward(dmiddle, saved.middle, saved.statistics_2, dy, dmiddle);
    backward_branch(attention, dmiddle, dx);
    norm_1_.backward(dx, saved.input, saved.statistics_1, dmiddle, dx);
  }
};

/// y = x + dropout(F_1(norm_1(x)) + b_1) + dropout(F_2(norm_2(x)) + b_2) (Wang, Komatsuzaki 2021: GPT-J). The norms may
/// be one.
class Parallel final : public ResidualForm {
 public:
  Parallel(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
           const std::string& prefix, const ModelConfig& config)
      : ResidualForm(context, parameters, prefix, config), shared_(config.shared_norm) {}

  Saved make_saved(const LayerShape& shape, Arena& arena) const override {
    if (!shared_) return ResidualForm::make_saved(shape, arena);
    Saved saved;
    saved.normed_1 = saved.second = shape.allocate_residual(arena);
    saved.statistics_1 = norm_1_.make_statistics(shape.local_rows(), shape.dtype, arena);
    saved.middle = shape.allocate_residual(arena);
    return saved;
  }

  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, TensorView y) const override {
    ElementwiseKernels& elementwise = context_.backend.elementwise();
    const ArenaScope scope(context_.workspace);
    const TensorView branch = y ? shape.allocate_residual(context_.workspace) : TensorView();
    saved.input = x;
    norm_1_.forward(x, saved.normed_1, saved.statistics_1);
    if (!shared_) norm_2_.forward(x, saved.second, saved.statistics_2);
    attention.run(saved.normed_1, branch);
    if (y) {
      elementwise.bias_dropout_add(context_.stream(), branch, attention.bias, x, attention.dropout, saved.middle);
    }
    feed_forward.run(saved.second, branch);
    if (y) {
      elementwise.bias_dropout_add(context_.stream(), branch, feed_forward.bias, saved.middle, feed_forward.dropout, y);
    }
  }

  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const override {
    const ArenaScope scope(context_.workspace);
    const TensorView dnormed = shape.allocate_residual(context_.workspace);
    backward_branch(feed_forward, dy, dnormed);
    backward_branch(attention, dy, dx);
    if (shared_) {
      context_.backend.elementwise().add(context_.stream(), dnormed, dx);
    } else {
      norm_2_.backward(dnormed, saved.input, saved.statistics_2, dy, dnormed);
    }
    norm_1_.backward(dx, saved.input, saved.statistics_1, shared_ ? dy : dnormed, dx);
  }

 private:
  bool shared_;
};

/// normed_1 = norm_1(x + dropout(F_1(x) + b_1)),  y = norm_2(normed_1 + dropout(F_2(normed_1) + b_2)) (Vaswani et al.
/// 2017, arXiv:1706.03762).
class PostNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;

  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, TensorView y) const override {
    const ArenaScope scope(context_.workspace);
    const TensorView branch = shape.allocate_residual(context_.workspace);
    saved.input = x;
    attention.run(x, branch);
    norm_1_.forward_sum(branch, attention.bias, x, attention.dropout, saved.middle, saved.normed_1, saved.statistics_1);
    feed_forward.run(saved.normed_1, branch);
    if (!y) y = shape.allocate_residual(context_.workspace);  // backward needs the second sum, which the norm computes
    norm_2_.forward_sum(branch, feed_forward.bias, saved.normed_1, feed_forward.dropout, saved.second, y,
                        saved.statistics_2);
  }

  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const override {
    ElementwiseKernels& elementwise = context_.backend.elementwise();
    const ArenaScope scope(context_.workspace);
    const TensorView dmiddle = shape.allocate_residual(context_.workspace);
    const TensorView dsum = shape.allocate_residual(context_.workspace);
    norm_2_.backward(dy, saved.second, saved.statistics_2, {}, dsum);
    backward_branch(feed_forward, dsum, dmiddle);
    elementwise.add(context_.stream(), dsum, dmiddle);
    norm_1_.backward(dmiddle, saved.middle, saved.statistics_1, {}, dmiddle);
    backward_branch(attention, dmiddle, dx);
    elementwise.add(context_.stream(), dmiddle, dx);
  }
};

/// middle = x + dropout(norm_1(F_1(x) + b_1)),  y = middle + dropout(norm_2(F_2(middle) + b_2)) (OLMo Team 2024,
/// arXiv:2501.00656).
class PostBranchNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;

  TensorView unread_by_weights(const Saved& saved) const override { return saved.second; }

  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, TensorView y) const override {
    saved.input = x;
    add(shape, x, attention, norm_1_, saved.normed_1, saved.statistics_1, saved.middle);
    add(shape, saved.middle, feed_forward, norm_2_, saved.second, saved.statistics_2, y);
  }

  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const override {
    ElementwiseKernels& elementwise = context_.backend.elementwise();
    const ArenaScope scope(context_.workspace);
    const TensorView dmiddle = shape.allocate_residual(context_.workspace);
    backward_normed(feed_forward, dy, norm_2_, saved.second, saved.statistics_2, dmiddle);
    elementwise.add(context_.stream(), dy, dmiddle);
    backward_normed(attention, dmiddle, norm_1_, saved.normed_1, saved.statistics_1, dx);
    elementwise.add(context_.stream(), dmiddle, dx);
  }

 private:
  /// y = x + dropout(norm(F(x) + b)). An empty y is not computed.
  void add(const LayerShape& shape, ConstTensorView x, const Branch& branch, const Norm& norm, TensorView result,
           const NormStatistics& statistics, TensorView y) const {
    const ArenaScope scope(context_.workspace);
    const TensorView normed = shape.allocate_residual(context_.workspace);
    run_normed(branch, x, norm, result, statistics, normed);
    if (y) context_.backend.elementwise().bias_dropout_add(context_.stream(), normed, {}, x, branch.dropout, y);
  }
};

/// middle = x + dropout(out_1(F_1(norm_1(x)) + b_1)),  y = middle + dropout(out_2(F_2(norm_2(middle)) + b_2)), with
/// further norms out_1 and out_2 (Ding et al. 2021, arXiv:2105.13290; Gemma Team 2024, arXiv:2408.00118).
class SandwichNorm final : public ResidualForm {
 public:
  SandwichNorm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
               const std::string& prefix, const ModelConfig& config)
      : ResidualForm(context, parameters, prefix, config),
        out_1_(context, parameters, prefix + ".out_ln_1", config),
        out_2_(context, parameters, prefix + ".out_ln_2", config) {}

  Saved make_saved(const LayerShape& shape, Arena& arena) const override {
    Saved saved = ResidualForm::make_saved(shape, arena);
    saved.result_1 = shape.allocate_residual(arena);
    saved.result_statistics_1 = out_1_.make_statistics(shape.local_rows(), shape.dtype, arena);
    saved.result_2 = shape.allocate_residual(arena);
    saved.result_statistics_2 = out_2_.make_statistics(shape.local_rows(), shape.dtype, arena);
    return saved;
  }

  void forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
               Saved& saved, TensorView y) const override {
    const ArenaScope scope(context_.workspace);
    const TensorView normed = shape.allocate_residual(context_.workspace);
    saved.input = x;
    norm_1_.forward(x, saved.normed_1, saved.statistics_1);
    run_normed(attention, saved.normed_1, out_1_, saved.result_1, saved.result_statistics_1, normed);
    norm_2_.forward_sum(normed, {}, x, attention.dropout, saved.middle, saved.second, saved.statistics_2);
    run_normed(feed_forward, saved.second, out_2_, saved.result_2, saved.result_statistics_2, normed);
    if (!y) return;
    context_.backend.elementwise().bias_dropout_add(context_.stream(), normed, {}, saved.middle, feed_forward.dropout,
                                                    y);
  }

  void backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const override {
    const ArenaScope scope(context_.workspace);
    const TensorView dmiddle = shape.allocate_residual(context_.workspace);
    backward_normed(feed_forward, dy, out_2_, saved.result_2, saved.result_statistics_2, dmiddle);
    norm_2_.backward(dmiddle, saved.middle, saved.statistics_2, dy, dmiddle);
    backward_normed(attention, dmiddle, out_1_, saved.result_1, saved.result_statistics_1, dx);
    norm_1_.backward(dx, saved.input, saved.statistics_1, dmiddle, dx);
  }

 private:
  Norm out_1_, out_2_;
};

}  // namespace

void ResidualForm::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, int branch) {
  if (branch == 1 || !config.shared_norm) {
    Norm::declare(list, config, prefix + (branch == 1 ? ".ln_1" : ".ln_2"), config.hidden);
  }
  if (config.sandwich_norm) Norm::declare(list, config, fmt::format("{}.out_ln_{}", prefix, branch), config.hidden);
}

std::unique_ptr<ResidualForm> ResidualForm::make(const parallel::TensorContext& context,
                                                 const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                                 const ModelConfig& config) {
  if (config.post_norm()) return std::make_unique<PostNorm>(context, parameters, prefix, config);
  if (config.post_branch_norm) return std::make_unique<PostBranchNorm>(context, parameters, prefix, config);
  if (config.sandwich_norm) return std::make_unique<SandwichNorm>(context, parameters, prefix, config);
  if (config.parallel_residual) return std::make_unique<Parallel>(context, parameters, prefix, config);
  return std::make_unique<PreNorm>(context, parameters, prefix, config);
}

ResidualForm::ResidualForm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                           const std::string& prefix, const ModelConfig& config)
    : context_(context),
      norm_1_(context, parameters, prefix + ".ln_1", config),
      norm_2_(context, parameters, prefix + (config.shared_norm ? ".ln_1" : ".ln_2"), config) {}

ResidualForm::Saved ResidualForm::make_saved(const LayerShape& shape, Arena& arena) const {
  Saved saved;
  saved.normed_1 = shape.allocate_residual(arena);
  saved.statistics_1 = norm_1_.make_statistics(shape.local_rows(), shape.dtype, arena);
  saved.middle = shape.allocate_residual(arena);
  saved.second = shape.allocate_residual(arena);
  saved.statistics_2 = norm_2_.make_statistics(shape.local_rows(), shape.dtype, arena);
  return saved;
}

void ResidualForm::backward_branch(const BranchGradient& branch, ConstTensorView dsum, TensorView dx) const {
  context_.backend.elementwise().bias_dropout_add_backward(context_.stream(), dsum, branch.dropout, branch.output,
                                                           branch.bias_gradient);
  branch.run(dx);
}

void ResidualForm::run_normed(const Branch& branch, ConstTensorView x, const Norm& norm, TensorView result,
                              const NormStatistics& statistics, TensorView normed) const {
  branch.run(x, result);
  if (branch.bias) {
    ElementwiseKernels& elementwise = context_.backend.elementwise();
    elementwise.fill(context_.stream(), 0, normed);
    elementwise.bias_dropout_add(context_.stream(), result, branch.bias, normed, {}, result);
  }
  norm.forward(result, normed, statistics);
}

void ResidualForm::backward_normed(const BranchGradient& branch, ConstTensorView dsum, const Norm& norm,
                                   ConstTensorView result, const NormStatistics& statistics, TensorView dx) const {
  ElementwiseKernels& elementwise = context_.backend.elementwise();
  ConstTensorView dnormed = dsum;
  if (branch.dropout.enabled()) {
    elementwise.bias_dropout_add_backward(context_.stream(), dsum, branch.dropout, branch.output, {});
    dnormed = branch.output;
  }
  norm.backward(dnormed, result, statistics, {}, branch.output);
  if (branch.bias_gradient) {
    elementwise.bias_dropout_add_backward(context_.stream(), branch.output, {}, branch.output, branch.bias_gradient);
  }
  branch.run(dx);
}

}  // namespace trireme::model

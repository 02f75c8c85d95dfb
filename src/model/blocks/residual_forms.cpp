#include "src/model/blocks/residual_form.hpp"

namespace trireme::model {
namespace {

/// middle = x + dropout(F_1(norm_1(x)) + b_1),  y = middle + dropout(F_2(norm_2(middle)) + b_2) (Radford et al. 2019).
class PreNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;

 private:
  void prepare(const LayerShape&, Forward& f) const override {
    f.attention_input = f.saved.normed_1;
    f.feed_forward_input = f.saved.second;
    f.attention.value = f.scratch;
    if (f.y) f.feed_forward.value = f.scratch;
  }

  const Norm* input_norm() const override { return &norm_1_; }
  void connect(const Forward& f) const override {
    norm_2_.forward_sum(f.attention.value, f.attention.bias, f.saved.input, f.attention.dropout, f.saved.middle,
                        f.saved.second, f.saved.statistics_2);
  }
  void leave(const Forward& f, const InputNorm* next) const override {
    if (f.y) add_term(f.feed_forward, f.saved.middle, f.y, next);
  }

  void enter_backward(const Backward& b) const override { backward_term(b.feed_forward, b.dy); }
  void connect_backward(const Backward& b) const override {
    const TensorView dmiddle = b.dfeed_forward;
    norm_2_.backward(dmiddle, b.saved.middle, b.saved.statistics_2, b.dy, dmiddle);
    backward_term(b.attention, dmiddle);
  }
  void leave_backward(const Backward& b) const override {
    norm_1_.backward(b.dx, b.saved.input, b.saved.statistics_1, b.dfeed_forward, b.dx);
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

 private:
  void prepare(const LayerShape&, Forward& f) const override {
    f.attention_input = f.saved.normed_1;
    f.feed_forward_input = f.saved.second;
    if (f.y) f.attention.value = f.feed_forward.value = f.scratch;
  }

  const Norm* input_norm() const override { return &norm_1_; }
  void enter(const Forward& f) const override {
    if (!shared_) norm_2_.forward(f.saved.input, f.saved.second, f.saved.statistics_2);
  }
  void connect(const Forward& f) const override {
    if (f.y) add_term(f.attention, f.saved.input, f.saved.middle);
  }
  void leave(const Forward& f, const InputNorm* next) const override {
    if (f.y) add_term(f.feed_forward, f.saved.middle, f.y, next);
  }

  void enter_backward(const Backward& b) const override { backward_term(b.feed_forward, b.dy); }
  void connect_backward(const Backward& b) const override { backward_term(b.attention, b.dy); }
  void leave_backward(const Backward& b) const override {
    const TensorView dnormed = b.dfeed_forward;
    if (shared_) {
      context_.backend.elementwise().add(context_.stream(), dnormed, b.dx);
    } else {
      norm_2_.backward(dnormed, b.saved.input, b.saved.statistics_2, b.dy, dnormed);
    }
    norm_1_.backward(b.dx, b.saved.input, b.saved.statistics_1, shared_ ? b.dy : dnormed, b.dx);
  }

  bool shared_;
};

/// normed_1 = norm_1(x + dropout(F_1(x) + b_1)),  y = norm_2(normed_1 + dropout(F_2(normed_1) + b_2)) (Vaswani et al.
/// 2017, arXiv:1706.03762).
class PostNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;

 private:
  void prepare(const LayerShape& shape, Forward& f) const override {
    f.attention_input = f.saved.input;
    f.feed_forward_input = f.saved.normed_1;
    f.attention.value = f.feed_forward.value = f.scratch;
    if (!f.y)
      f.y = shape.allocate_residual(context_.workspace);  // backward needs the second sum, which the norm computes
  }

  void connect(const Forward& f) const override {
    norm_1_.forward_sum(f.attention.value, f.attention.bias, f.saved.input, f.attention.dropout, f.saved.middle,
                        f.saved.normed_1, f.saved.statistics_1);
  }
  void leave(const Forward& f, const InputNorm*) const override {
    norm_2_.forward_sum(f.feed_forward.value, f.feed_forward.bias, f.saved.normed_1, f.feed_forward.dropout,
                        f.saved.second, f.y, f.saved.statistics_2);
  }

  bool has_gradient_scratch() const override { return true; }
  void enter_backward(const Backward& b) const override {
    const TensorView dsum = b.scratch;
    norm_2_.backward(b.dy, b.saved.second, b.saved.statistics_2, {}, dsum);
    backward_term(b.feed_forward, dsum);
  }
  void connect_backward(const Backward& b) const override {
    const TensorView dmiddle = b.dfeed_forward;
    context_.backend.elementwise().add(context_.stream(), b.scratch, dmiddle);
    norm_1_.backward(dmiddle, b.saved.middle, b.saved.statistics_1, {}, dmiddle);
    backward_term(b.attention, dmiddle);
  }
  void leave_backward(const Backward& b) const override {
    context_.backend.elementwise().add(context_.stream(), b.dfeed_forward, b.dx);
  }
};

/// middle = x + dropout(norm_1(F_1(x) + b_1)),  y = middle + dropout(norm_2(F_2(middle) + b_2)) (OLMo Team 2024,
/// arXiv:2501.00656).
class PostBranchNorm final : public ResidualForm {
 public:
  using ResidualForm::ResidualForm;

  TensorView unread_by_weights(const Saved& saved) const override { return saved.second; }

 private:
  void prepare(const LayerShape&, Forward& f) const override {
    f.attention_input = f.saved.input;
    f.feed_forward_input = f.saved.middle;
    f.attention.value = f.saved.normed_1;
    f.feed_forward.value = f.saved.second;
  }

  void connect(const Forward& f) const override {
    norm_result(f.attention, norm_1_, f.saved.statistics_1, f.scratch);
    add_term({f.scratch, {}, f.attention.dropout}, f.saved.input, f.saved.middle);
  }
  void leave(const Forward& f, const InputNorm*) const override {
    norm_result(f.feed_forward, norm_2_, f.saved.statistics_2, f.scratch);
    if (f.y) add_term({f.scratch, {}, f.feed_forward.dropout}, f.saved.middle, f.y);
  }

  void enter_backward(const Backward& b) const override {
    backward_normed(b.feed_forward, b.dy, norm_2_, b.saved.second, b.saved.statistics_2);
  }
  void connect_backward(const Backward& b) const override {
    const TensorView dmiddle = b.dfeed_forward;
    context_.backend.elementwise().add(context_.stream(), b.dy, dmiddle);
    backward_normed(b.attention, dmiddle, norm_1_, b.saved.normed_1, b.saved.statistics_1);
  }
  void leave_backward(const Backward& b) const override {
    context_.backend.elementwise().add(context_.stream(), b.dfeed_forward, b.dx);
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

 private:
  void prepare(const LayerShape&, Forward& f) const override {
    f.attention_input = f.saved.normed_1;
    f.feed_forward_input = f.saved.second;
    f.attention.value = f.saved.result_1;
    f.feed_forward.value = f.saved.result_2;
  }

  const Norm* input_norm() const override { return &norm_1_; }
  void connect(const Forward& f) const override {
    norm_result(f.attention, out_1_, f.saved.result_statistics_1, f.scratch);
    norm_2_.forward_sum(f.scratch, {}, f.saved.input, f.attention.dropout, f.saved.middle, f.saved.second,
                        f.saved.statistics_2);
  }
  void leave(const Forward& f, const InputNorm* next) const override {
    norm_result(f.feed_forward, out_2_, f.saved.result_statistics_2, f.scratch);
    if (f.y) add_term({f.scratch, {}, f.feed_forward.dropout}, f.saved.middle, f.y, next);
  }

  void enter_backward(const Backward& b) const override {
    backward_normed(b.feed_forward, b.dy, out_2_, b.saved.result_2, b.saved.result_statistics_2);
  }
  void connect_backward(const Backward& b) const override {
    const TensorView dmiddle = b.dfeed_forward;
    norm_2_.backward(dmiddle, b.saved.middle, b.saved.statistics_2, b.dy, dmiddle);
    backward_normed(b.attention, dmiddle, out_1_, b.saved.result_1, b.saved.result_statistics_1);
  }
  void leave_backward(const Backward& b) const override {
    norm_1_.backward(b.dx, b.saved.input, b.saved.statistics_1, b.dfeed_forward, b.dx);
  }

  Norm out_1_, out_2_;
};

}  // namespace

std::unique_ptr<ResidualForm> ResidualForm::make(const parallel::TensorContext& context,
                                                 const parallel::ParameterBuffer& parameters, const std::string& prefix,
                                                 const ModelConfig& config) {
  if (config.post_norm()) return std::make_unique<PostNorm>(context, parameters, prefix, config);
  if (config.post_branch_norm) return std::make_unique<PostBranchNorm>(context, parameters, prefix, config);
  if (config.sandwich_norm) return std::make_unique<SandwichNorm>(context, parameters, prefix, config);
  if (config.parallel_residual) return std::make_unique<Parallel>(context, parameters, prefix, config);
  return std::make_unique<PreNorm>(context, parameters, prefix, config);
}

}  // namespace trireme::model

#include "src/model/blocks/residual_form.hpp"

namespace trireme::model {

void PreNorm::forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
                      Saved& saved, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  const TensorView branch = shape.allocate_residual(context_.workspace);
  saved.input = x;
  norm_1_.forward(x, saved.normed_1, saved.statistics_1);
  attention.run(saved.normed_1, branch);
  norm_2_.forward_sum(branch, attention.bias, x, attention.dropout, saved.middle, saved.second, saved.statistics_2);
  feed_forward.run(saved.second, y ? branch : TensorView());
  if (y) add(branch, feed_forward, saved.middle, y);
}

void PreNorm::backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                       const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const {
  const ArenaScope scope(context_.workspace);
  const TensorView dmiddle = shape.allocate_residual(context_.workspace);
  backward_branch(feed_forward, dy, dmiddle);
  norm_2_.backward(dmiddle, saved.middle, saved.statistics_2, dy, dmiddle);
  backward_branch(attention, dmiddle, dx);
  norm_1_.backward(dx, saved.input, saved.statistics_1, dmiddle, dx);
}

}  // namespace trireme::model

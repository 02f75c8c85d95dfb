#include "src/model/blocks/residual_form.hpp"

namespace trireme::model {

void PostNorm::forward(const LayerShape& shape, ConstTensorView x, const Branch& attention, const Branch& feed_forward,
                       Saved& saved, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  const TensorView branch = shape.allocate_residual(context_.workspace);
  saved.input = x;
  attention.run(x, branch);
  norm_1_.forward_sum(branch, attention.bias, x, attention.dropout, saved.middle, saved.normed_1, saved.statistics_1);
  feed_forward.run(saved.normed_1, branch);
  if (!y) y = shape.allocate_residual(context_.workspace);  // backward reads the sum before it
  norm_2_.forward_sum(branch, feed_forward.bias, saved.normed_1, feed_forward.dropout, saved.second, y,
                      saved.statistics_2);
}

void PostNorm::backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                        const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const {
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

}  // namespace trireme::model

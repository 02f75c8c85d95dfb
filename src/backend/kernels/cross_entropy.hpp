#pragma once

#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// The columns of the logits on this rank: column c is class first_class + c of the vocabulary; columns from `classes`
/// on are padding and ignored.
struct VocabularyShard {
  std::int64_t first_class = 0;
  std::int64_t classes = 0;
};

/// Steps of a softmax cross entropy whose classes are split over ranks, with a maximum and a sum over the tensor group
/// in between. logits [n, columns] T; targets [n] int32 (class numbers of the full vocabulary); statistics [n] A. loss
/// = log(sum_exp) + maximum - target_logit. Stream-ordered, deterministic.
class CrossEntropyKernels : public KernelFamily<CrossEntropyKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// In one pass over the logits: maximum[i] = largest logit of row i among this rank's classes (minus infinity if it
  /// has none); sum_exp[i] = sum of exp(logit - maximum[i]) over them; target_logit[i] = the target's logit, or 0 if
  /// another rank holds it. Overwrites.
  virtual void statistics(Stream& stream, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets,
                          TensorView maximum, TensorView sum_exp, TensorView target_logit) {
    pass_on(&CrossEntropyKernels::statistics, stream, {KernelKind::cross_entropy, bytes_of({logits})}, logits, shard,
            targets, maximum, sum_exp, target_logit);
  }

  /// sum_exp[i] *= exp(own_maximum[i] - maximum[i]): one rank's sums, relative to the largest logit of all ranks
  /// instead of its own. All [n] A.
  virtual void rescale(Stream& stream, ConstTensorView own_maximum, ConstTensorView maximum, TensorView sum_exp) {
    pass_on(&CrossEntropyKernels::rescale, stream,
            {KernelKind::cross_entropy, bytes_of({own_maximum, maximum, sum_exp, sum_exp})}, own_maximum, maximum,
            sum_exp);
  }

  /// losses[i] = weights[i] (log(sum_exp[i]) + maximum[i] - target_logit[i]); all [n] A; 0 if the weight is 0.
  /// `losses` may be the same memory as target_logit. Overwrites.
  virtual void losses(Stream& stream, ConstTensorView maximum, ConstTensorView sum_exp, ConstTensorView target_logit,
                      ConstTensorView weights, TensorView losses) {
    pass_on(&CrossEntropyKernels::losses, stream,
            {KernelKind::cross_entropy, bytes_of({maximum, sum_exp, target_logit, weights, losses})}, maximum, sum_exp,
            target_logit, weights, losses);
  }

  /// rivals[i] = number of this rank's classes, other than the target of row i, that a prediction prefers to it or that
  /// are NaN: their logit is larger than target_logit[i], or equal while their class is lower. The target is thus the
  /// most likely class, the lowest of equal ones, if the sum over ranks is 0. Exact in every type: target_logit [n] A
  /// is the sum over ranks of that of `statistics`. rivals [n] A. Overwrites.
  virtual void rivals(Stream& stream, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets,
                      ConstTensorView target_logit, TensorView rivals) {
    pass_on(&CrossEntropyKernels::rivals, stream, {KernelKind::cross_entropy, bytes_of({logits})}, logits, shard,
            targets, target_logit, rivals);
  }

  /// logits = (exp(logits - maximum) / sum_exp - [class == target]) loss_gradient, in place: the logits' gradient. If
  /// `soft_cap` is above 0, the logits have that cap (ElementwiseKernels::soft_cap), and the gradient is that of the
  /// logits before it: times 1 - (logits / soft_cap)^2. loss_gradient [n] A. Padding columns become 0.
  virtual void backward(Stream& stream, VocabularyShard shard, ConstTensorView maximum, ConstTensorView sum_exp,
                        ConstTensorView targets, ConstTensorView loss_gradient, double soft_cap, TensorView logits) {
    pass_on(&CrossEntropyKernels::backward, stream, {KernelKind::cross_entropy, bytes_of({logits, logits})}, shard,
            maximum, sum_exp, targets, loss_gradient, soft_cap, logits);
  }

  /// `statistics`, `losses` and `backward` at once, for a rank that has all classes: losses[i] = weights[i] (log sum
  /// exp(logits) - target_logit), and logits = their gradient in place. losses, weights, loss_gradient [n] A.
  /// Overwrites losses.
  virtual void losses_and_gradient(Stream& stream, VocabularyShard shard, ConstTensorView targets,
                                   ConstTensorView weights, ConstTensorView loss_gradient, double soft_cap,
                                   TensorView losses, TensorView logits) {
    // cuda/kernels/cross_entropy.cu keeps a row in half of a multiprocessor's shared memory, on H100; others are read
    // twice.
    const double row_bytes = static_cast<double>(logits.shape().back()) * static_cast<double>(size_of(logits.dtype()));
    const double again = row_bytes <= 113 << 10 ? 0 : bytes_of({logits});
    pass_on(&CrossEntropyKernels::losses_and_gradient, stream,
            {KernelKind::cross_entropy, bytes_of({logits, logits, weights, loss_gradient, losses}) + again}, shard,
            targets, weights, loss_gradient, soft_cap, losses, logits);
  }
};

}  // namespace trireme

#include "src/parallel/tensor/vocabulary.hpp"

#include <algorithm>

namespace trireme::parallel {

VocabularyPartition::VocabularyPartition(std::int64_t size, int tensor_rank, int tensor_size, std::int64_t multiple,
                                         std::int64_t padded_size)
    : size_(size), padded_size_(padded_size) {
  TRIREME_CHECK(size >= 1 && multiple >= 1, ConfigError,
                "a vocabulary of {} tokens padded to a multiple of {}: both must be at least 1", size, multiple);
  if (padded_size_ == 0) {
    const std::int64_t unit = multiple * tensor_size;
    padded_size_ = (size + unit - 1) / unit * unit;
  }
  TRIREME_CHECK(padded_size_ >= size && padded_size_ % tensor_size == 0, ConfigError,
                "<padded_vocab_size> {} must be at least the vocabulary's {} and a multiple of the {} tensor ranks",
                padded_size_, size, tensor_size);
  rows_ = padded_size_ / tensor_size;
  first_ = rows_ * tensor_rank;
  true_rows_ = std::clamp<std::int64_t>(size - first_, 0, rows_);
}

VocabularyParallelEmbedding::VocabularyParallelEmbedding(const TensorContext& context,
                                                         const VocabularyPartition& partition, const Parameter& table)
    : context_(context),
      first_row_(partition.first()),
      table_(table.value),
      table_gradient_(table.gradient),
      sum_(table.sum) {}

void VocabularyParallelEmbedding::forward(ConstTensorView ids, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  const TensorView term = context_.term_of(y);
  context_.backend.embedding().lookup(context_.stream(), ids, table_, first_row_, term);
  context_.sum_into(y, term).wait(context_.stream());
}

void VocabularyParallelEmbedding::backward(ConstTensorView ids, ConstTensorView dy) const {
  const ArenaScope scope(context_.workspace);
  // An output layer may have deferred the gradient of a shared table.
  if (sum_.next() == ProductSum::overwrite) {
    context_.backend.elementwise().fill(context_.stream(), 0, table_gradient_);
  }
  context_.backend.embedding().lookup_backward(context_.stream(), ids, context_.gather_now(dy), first_row_,
                                               table_gradient_);
}

void VocabularyParallelCrossEntropy::forward(ConstTensorView logits, ConstTensorView targets, ConstTensorView weights,
                                             const Saved& saved, TensorView losses, TensorView rivals) const {
  CrossEntropyKernels& kernels = context_.backend.cross_entropy();
  Stream& stream = context_.stream();
  const std::int64_t n = losses.numel();
  const ArenaScope scope(context_.workspace);
  // Both sums are in one message: [sum of exponentials | target logit].
  const TensorView sums = context_.workspace.allocate(losses.dtype(), {2, n});
  const TensorView target_logit = sums.flat(n, n);

  if (context_.tensor_group.size() == 1) {
    kernels.statistics(stream, logits, shard_, targets, saved.maximum, sums.flat(0, n), target_logit);
  } else {
    // `losses` temporarily holds this rank's own maxima.
    kernels.statistics(stream, logits, shard_, targets, losses, sums.flat(0, n), target_logit);
    context_.backend.elementwise().convert(stream, losses, saved.maximum);
    context_.tensor_group.all_reduce(stream, saved.maximum, ReduceOp::max).wait(stream);
    kernels.rescale(stream, losses, saved.maximum, sums.flat(0, n));
  }
  context_.all_reduce(sums);
  context_.backend.elementwise().convert(stream, sums.flat(0, n), saved.sum_exponentials);
  if (rivals) {
    kernels.rivals(stream, logits, shard_, targets, target_logit, rivals);
    context_.all_reduce(rivals);
  }
  kernels.losses(stream, saved.maximum, saved.sum_exponentials, target_logit, weights, losses);
}

void VocabularyParallelCrossEntropy::backward(TensorView logits, ConstTensorView targets, ConstTensorView loss_gradient,
                                              const Saved& saved) const {
  context_.backend.cross_entropy().backward(context_.stream(), shard_, saved.maximum, saved.sum_exponentials, targets,
                                            loss_gradient, soft_cap_, logits);
}

}  // namespace trireme::parallel

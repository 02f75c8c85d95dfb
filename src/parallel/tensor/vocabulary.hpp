#pragma once

#include <cstdint>

#include "src/parallel/parameter.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::parallel {

/// Partition of a vocabulary over a tensor group: padded to a multiple of t times `multiple`, and split into equal
/// ranges of rows. Padding is a property of the grid: it is never stored, initialised or decayed, and takes no part in
/// the softmax.
class VocabularyPartition {
 public:
  /// `padded_size` 0: the smallest multiple of `multiple` x `tensor_size` that holds `size`. Throws ConfigError for a
  /// padded size that is smaller than the vocabulary or does not divide.
  VocabularyPartition(std::int64_t size, int tensor_rank, int tensor_size, std::int64_t multiple = 128,
                      std::int64_t padded_size = 0);

  std::int64_t size() const { return size_; }
  std::int64_t padded_size() const { return padded_size_; }
  /// This rank's rows, padding included.
  std::int64_t rows() const { return rows_; }
  /// Row 0 of this rank in the full vocabulary.
  std::int64_t first() const { return first_; }
  /// Rows of this rank that are true tokens.
  std::int64_t true_rows() const { return true_rows_; }

 private:
  std::int64_t size_;
  std::int64_t padded_size_;
  std::int64_t rows_;
  std::int64_t first_;
  std::int64_t true_rows_;
};

/// Token embedding whose table is split by rows: y = table[ids], summed over the tensor group. One rank holds each row.
class VocabularyParallelEmbedding {
 public:
  VocabularyParallelEmbedding(const TensorContext& context, const VocabularyPartition& partition,
                              const Parameter& table);
  /// ids [n] int32; y [n, h], overwritten, complete on every rank, or with sequence parallelism this rank's [n / t, h].
  void forward(ConstTensorView ids, TensorView y) const;
  /// Returns whether the table has a gradient.
  bool trains() const { return static_cast<bool>(table_gradient_); }
  /// Accumulates the table's gradient from dy, which has y's shape.
  void backward(ConstTensorView ids, ConstTensorView dy) const;

 private:
  TensorContext context_;
  std::int64_t first_row_;
  TensorView table_;
  TensorView table_gradient_;
  GradientSum sum_;
};

/// Softmax cross entropy of logits whose classes are split over the tensor group. The logits are never gathered: ranks
/// exchange one maximum and two sums a row.
class VocabularyParallelCrossEntropy {
 public:
  /// Inputs of backward beside the logits; [n] each, in the accumulation type.
  struct Saved {
    TensorView maximum;
    TensorView sum_exponentials;
  };

  /// `soft_cap` is that of the logits, or 0: CrossEntropyKernels::backward.
  VocabularyParallelCrossEntropy(const TensorContext& context, const VocabularyPartition& partition,
                                 double soft_cap = 0)
      : context_(context), shard_{partition.first(), partition.true_rows()}, soft_cap_(soft_cap) {}

  /// losses[i] = weights[i] (log sum exp(logits[i]) - logits[i][targets[i]]), the same on every rank. logits [n, rows]
  /// T; targets [n] int32; weights, losses [n] A. Overwrites losses and saved, and `rivals` [n] A, if given: the number
  /// of classes preferred to the target (CrossEntropyKernels::rivals), on every rank.
  void forward(ConstTensorView logits, ConstTensorView targets, ConstTensorView weights, const Saved& saved,
               TensorView losses, TensorView rivals = {}) const;
  /// Returns whether this rank has all classes, whose losses and gradients `forward_backward` computes at once.
  bool is_whole() const { return context_.tensor_group.size() == 1; }
  /// `forward`, and `backward` of the losses' gradients; needs is_whole().
  void forward_backward(TensorView logits, ConstTensorView targets, ConstTensorView weights,
                        ConstTensorView loss_gradient, TensorView losses) const {
    context_.backend.cross_entropy().losses_and_gradient(context_.stream(), shard_, targets, weights, loss_gradient,
                                                         soft_cap_, losses, logits);
  }
  /// logits = gradient of the sum of loss_gradient[i] times row i's loss, in place, by the logits before their cap.
  void backward(TensorView logits, ConstTensorView targets, ConstTensorView loss_gradient, const Saved& saved) const;

 private:
  TensorContext context_;
  VocabularyShard shard_;
  double soft_cap_;
};

}  // namespace trireme::parallel

#pragma once

#include "src/backend/kernels/dropout.hpp"
#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

/// Token and position embeddings. T the training type, A its accumulation type. Stream-ordered, deterministic.
class EmbeddingKernels {
 public:
  virtual ~EmbeddingKernels() = default;

  /// y[i] = table[ids[i] - first_row], or 0 where another rank holds the row.
  /// ids [n] int32; table [rows, h] T: rows first_row .. first_row + rows of the whole; y [n, h] T. Overwrites.
  virtual void lookup(Stream& stream, ConstTensorView ids, ConstTensorView table, std::int64_t first_row,
                      TensorView y) = 0;

  /// dtable[ids[i] - first_row] += dy[i], in the order of i for each row. dy [n, h] T; dtable [rows, h] A. Accumulates.
  virtual void lookup_backward(Stream& stream, ConstTensorView ids, ConstTensorView dy, std::int64_t first_row,
                               TensorView dtable) = 0;

  /// x = dropout(x + table[positions[p]]) in place; p is the index of the first dimension. x [s, b, h] T; table
  /// [max_positions, h] T, or empty: x = dropout(x). Dropout masks depend on `positions` too.
  virtual void add_positions(Stream& stream, ConstTensorView table, const Positions& positions, const Dropout& dropout,
                             TensorView x) = 0;

  /// dx = dropout mask applied to dy (overwrites; may be the same memory);
  /// dtable[positions[p]] += sum of dx over samples, [max_positions, h] A, or empty. dy, dx [s, b, h] T.
  virtual void add_positions_backward(Stream& stream, ConstTensorView dy, const Positions& positions,
                                      const Dropout& dropout, TensorView dx, TensorView dtable) = 0;
};

}  // namespace trireme

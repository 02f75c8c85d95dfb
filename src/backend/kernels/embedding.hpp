#pragma once

#include <algorithm>

#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// Token and position embeddings. T the training type, A its accumulation type. Stream-ordered, deterministic.
class EmbeddingKernels : public KernelFamily<EmbeddingKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// y[i] = table[ids[i] - first_row], or 0 if another rank holds the row.
  /// ids [n] int32; table [rows, h] T: rows first_row .. first_row + rows of the full table; y [n, h] T. Overwrites.
  virtual void lookup(Stream& stream, ConstTensorView ids, ConstTensorView table, std::int64_t first_row,
                      TensorView y) {
    pass_on(&EmbeddingKernels::lookup, stream, {KernelKind::embedding, bytes_of({ids, y, y})}, ids, table, first_row,
            y);
  }

  /// dtable[ids[i] - first_row] += dy[i], in the order of i for each row. dy [n, h] T; dtable [rows, h] A. Accumulates.
  virtual void lookup_backward(Stream& stream, ConstTensorView ids, ConstTensorView dy, std::int64_t first_row,
                               TensorView dtable) {
    // At most one row of the table for each id is read and written.
    const double row = bytes_of({dtable}) / static_cast<double>(dtable.shape()[0]);
    const double rows = static_cast<double>(std::min(ids.numel(), dtable.shape()[0]));
    pass_on(&EmbeddingKernels::lookup_backward, stream, {KernelKind::embedding, bytes_of({ids, dy}) + 2 * rows * row},
            ids, dy, first_row, dtable);
  }

  /// x = dropout(x + table[positions[p]]) in place; p is the index of the first dimension. x [s, b, h] T; table
  /// [max_positions, h] T, or empty: x = dropout(x). Dropout masks depend on `positions` too.
  virtual void add_positions(Stream& stream, ConstTensorView table, const Positions& positions, const Dropout& dropout,
                             TensorView x) {
    const bool idle = !table && !dropout.enabled();
    pass_on(&EmbeddingKernels::add_positions, stream,
            {KernelKind::embedding, idle ? 0 : bytes_of({x, x}), idle ? 0 : 1}, table, positions, dropout, x);
  }

  /// dx = dropout mask applied to dy (overwrites; may be the same memory);
  /// dtable[positions[p]] += sum of dx over samples, [max_positions, h] A, or empty. dy, dx [s, b, h] T.
  virtual void add_positions_backward(Stream& stream, ConstTensorView dy, const Positions& positions,
                                      const Dropout& dropout, TensorView dx, TensorView dtable) {
    pass_on(&EmbeddingKernels::add_positions_backward, stream,
            {KernelKind::embedding, bytes_of({dy, dx, dtable, dtable})}, dy, positions, dropout, dx, dtable);
  }
};

}  // namespace trireme

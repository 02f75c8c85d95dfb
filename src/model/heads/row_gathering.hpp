#pragma once

#include <algorithm>
#include <cstdint>

#include "src/model/blocks/layer_shape.hpp"
#include "src/parallel/tensor/tensor_context.hpp"

namespace trireme::model {

/// Calls `take(row, position, count)` for each stretch of this rank's rows of the residual stream whose positions
/// follow one another: `count` of them, from row `row` on.
template <class Take>
void for_each_stretch(const LayerShape& shape, int tensor_rank, const Take& take) {
  const Positions positions = shape.residual_positions(tensor_rank);
  for (std::int64_t row = 0; row < shape.s_local;) {
    std::int64_t count = 1;
    while (row + count < shape.s_local && positions[row + count] == positions[row] + count) ++count;
    take(row, positions[row], count);
    row += count;
  }
}

/// Sums `data` over the ranks that share a sequence: those of the tensor group, with sequence parallelism, and of the
/// context group. Collective.
inline void sum_over_sequence(const parallel::TensorContext& context, const LayerShape& shape, TensorView data) {
  Stream& stream = context.stream();
  if (shape.s_local != shape.s) context.all_reduce(data);
  if (context.context_group != nullptr) context.context_group->all_reduce(stream, data, ReduceOp::sum).wait(stream);
}

/// Gathers rows of a matrix that is divided along the sequence: y[i] = x[ids[i]] on every rank, where x [s, n] has its
/// positions on the ranks of the tensor group, with sequence parallelism, and of the context group. ids [m] int32 count
/// elements of [s, n / columns]; x is this rank's [s_local, n]; y [m, columns], overwritten. Collective.
inline void gather_rows(const parallel::TensorContext& context, const LayerShape& shape, ConstTensorView ids,
                        ConstTensorView x, TensorView y) {
  const std::int64_t columns = y.shape()[1], per_position = x.numel() / shape.s_local;
  Backend& backend = context.backend;
  Stream& stream = context.stream();
  const ArenaScope scope(context.workspace);
  const TensorView stretch_rows = context.workspace.allocate(y.dtype(), y.shape());
  bool first = true;
  for_each_stretch(
      shape, context.tensor_group.rank(), [&](std::int64_t row, std::int64_t position, std::int64_t count) {
        const std::int64_t each = per_position / columns;
        const ConstTensorView table = x.flat(row * per_position, count * per_position).reshape({count * each, columns});
        backend.embedding().lookup(stream, ids, table, position * each, first ? y : stretch_rows);
        if (!first) backend.elementwise().add(stream, stretch_rows, y);
        first = false;
      });
  sum_over_sequence(context, shape, y);
}

/// Gradient of `gather_rows`: dx[ids[i]] = sum of dy[i], 0 for rows that were not gathered. dy [m, columns] is the same
/// on every rank; dx, this rank's [s_local, n], is overwritten.
inline void scatter_rows(const parallel::TensorContext& context, const LayerShape& shape, ConstTensorView ids,
                         ConstTensorView dy, TensorView dx) {
  const std::int64_t columns = dy.shape()[1], per_position = dx.numel() / shape.s_local;
  Backend& backend = context.backend;
  Stream& stream = context.stream();
  const ArenaScope scope(context.workspace);
  const TensorView sum = context.workspace.allocate(accumulation_type(dx.dtype()), dx.shape());
  backend.elementwise().fill(stream, 0, sum);
  for_each_stretch(
      shape, context.tensor_group.rank(), [&](std::int64_t row, std::int64_t position, std::int64_t count) {
        const std::int64_t each = per_position / columns;
        const TensorView table = sum.flat(row * per_position, count * per_position).reshape({count * each, columns});
        backend.embedding().lookup_backward(stream, ids, dy, position * each, table);
      });
  backend.elementwise().convert(stream, sum, dx);
}

}  // namespace trireme::model

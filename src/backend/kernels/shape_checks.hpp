#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/cross_entropy.hpp"
#include "src/backend/kernels/elementwise.hpp"
#include "src/backend/kernels/embedding.hpp"
#include "src/backend/kernels/gemm.hpp"
#include "src/backend/kernels/norm.hpp"
#include "src/backend/kernels/optimizer.hpp"
#include "src/backend/kernels/reduce.hpp"
#include "src/backend/kernels/rotary.hpp"

// Checks of the shapes and types in the kernels' declarations, in one place: every backend calls these first. They
// throw ShapeError, which names the kernel and the tensor.
namespace trireme {

namespace detail {
inline void check_type(std::string_view where, std::string_view name, ConstTensorView tensor, DType dtype) {
  TRIREME_CHECK(tensor.dtype() == dtype, ShapeError, "{}: {} is {}, not {}", where, name, name_of(tensor.dtype()),
                name_of(dtype));
}
/// A matrix [rows, columns]; the rows may be spread over several dimensions.
inline void check_matrix(std::string_view where, std::string_view name, ConstTensorView tensor, std::int64_t rows,
                         std::int64_t columns, DType dtype) {
  TRIREME_CHECK(tensor.shape().rank() >= 2 && tensor.shape().back() == columns && rows_of(tensor.shape()) == rows,
                ShapeError, "{}: {} is {}, not [{}, {}]", where, name, to_string(tensor.shape()), rows, columns);
  check_type(where, name, tensor, dtype);
}
inline void check_size(std::string_view where, std::string_view name, ConstTensorView tensor, std::int64_t size,
                       DType dtype) {
  TRIREME_CHECK(tensor.numel() == size, ShapeError, "{}: {} is {}, not of {} elements", where, name,
                to_string(tensor.shape()), size);
  check_type(where, name, tensor, dtype);
}
inline void check_is_matrix(std::string_view where, std::string_view name, ConstTensorView tensor) {
  TRIREME_CHECK(tensor.shape().rank() >= 2, ShapeError, "{}: {} is {}, not a matrix", where, name,
                to_string(tensor.shape()));
}
inline void check_dropout(std::string_view where, const Dropout& dropout, ConstTensorView x) {
  TRIREME_CHECK(!dropout.enabled() || x.shape().rank() == 3, ShapeError, "{}: dropout needs [s, b, h], not {}", where,
                to_string(x.shape()));
}
}  // namespace detail

inline void check_linear(ConstTensorView x, ConstTensorView w, ConstTensorView bias, ConstTensorView pre_activation,
                         ConstTensorView y) {
  constexpr std::string_view where = "linear";
  detail::check_is_matrix(where, "x", x);
  detail::check_is_matrix(where, "w", w);
  const std::int64_t n = rows_of(x.shape()), in = x.shape().back(), out = rows_of(w.shape());
  detail::check_matrix(where, "w", w, out, in, x.dtype());
  detail::check_matrix(where, "y", y, n, out, x.dtype());
  if (bias) detail::check_size(where, "bias", bias, out, x.dtype());
  if (pre_activation) detail::check_matrix(where, "pre_activation", pre_activation, n, out, x.dtype());
}

inline void check_linear_backward_input(ConstTensorView dy, ConstTensorView w, Activation activation,
                                        ConstTensorView pre_activation, ConstTensorView dx) {
  constexpr std::string_view where = "linear_backward_input";
  detail::check_is_matrix(where, "dy", dy);
  detail::check_is_matrix(where, "w", w);
  const std::int64_t n = rows_of(dy.shape()), out = dy.shape().back(), in = w.shape().back();
  detail::check_matrix(where, "w", w, out, in, dy.dtype());
  detail::check_matrix(where, "dx", dx, n, in, dy.dtype());
  if (activation != Activation::none) {
    detail::check_matrix(where, "pre_activation", pre_activation, n, in, dy.dtype());
  }
}

inline void check_batched(const BatchedProduct& product, ConstTensorView a, ConstTensorView b, ConstTensorView c,
                          ConstTensorView d) {
  constexpr std::string_view where = "batched";
  const auto check = [&](std::string_view name, ConstTensorView tensor, const Shape& shape) {
    TRIREME_CHECK(tensor.shape() == shape, ShapeError, "{}: {} is {}, not {}", where, name, to_string(tensor.shape()),
                  to_string(shape));
    detail::check_type(where, name, tensor, d.dtype());
  };
  TRIREME_CHECK(a.shape().rank() == 3 && d.shape().rank() == 3, ShapeError, "{}: a is {} and d {}, not both batches",
                where, to_string(a.shape()), to_string(d.shape()));
  const std::int64_t batch = d.shape()[0], m = d.shape()[1], n = d.shape()[2];
  const std::int64_t k = a.shape()[product.a_transposed ? 1 : 2];
  TRIREME_CHECK(k > 0, ShapeError, "{}: a {} has no terms", where, to_string(a.shape()));
  check("a", a, product.a_transposed ? Shape{batch, k, m} : Shape{batch, m, k});
  check("b", b, product.b_transposed ? Shape{batch, n, k} : Shape{batch, k, n});
  if (product.beta != 0) check("c", c, d.shape());
}

inline void check_linear_backward_weight(ConstTensorView dy, ConstTensorView x, ConstTensorView dw,
                                         ConstTensorView dbias) {
  constexpr std::string_view where = "linear_backward_weight";
  detail::check_is_matrix(where, "dy", dy);
  detail::check_is_matrix(where, "x", x);
  const std::int64_t n = rows_of(dy.shape()), out = dy.shape().back(), in = x.shape().back();
  const DType accumulation = accumulation_type(dy.dtype());
  detail::check_matrix(where, "x", x, n, in, dy.dtype());
  detail::check_matrix(where, "dw", dw, out, in, accumulation);
  if (dbias) detail::check_size(where, "dbias", dbias, out, accumulation);
}

/// Groups of the rows of `x`, each with one of `weights` matrices.
inline void check_groups(std::string_view where, std::span<const std::int64_t> rows, ConstTensorView x,
                         std::size_t weights) {
  detail::check_is_matrix(where, "the tensor of all rows", x);
  std::int64_t sum = 0;
  for (const std::int64_t count : rows) {
    TRIREME_CHECK(count >= 0, ShapeError, "{}: a group of {} rows", where, count);
    sum += count;
  }
  TRIREME_CHECK(rows.size() == weights && sum == rows_of(x.shape()), ShapeError,
                "{}: {} groups of {} rows together, for {} rows and {} weights", where, rows.size(), sum,
                rows_of(x.shape()), weights);
}

/// Same number of elements; types may differ.
inline void check_same_size(std::string_view where, ConstTensorView x, ConstTensorView y) {
  TRIREME_CHECK(x.numel() == y.numel(), ShapeError, "{}: {} does not fit {}", where, to_string(x.shape()),
                to_string(y.shape()));
}

inline void check_activate(ConstTensorView x, ConstTensorView y) {
  detail::check_size("activate", "x", x, y.numel(), y.dtype());
}

inline void check_activate_backward(ConstTensorView dy, ConstTensorView x, ConstTensorView dx) {
  detail::check_size("activate_backward", "dy", dy, dx.numel(), dx.dtype());
  detail::check_size("activate_backward", "x", x, dx.numel(), dx.dtype());
}

/// `where` is add or multiply.
inline void check_alike(std::string_view where, ConstTensorView x, ConstTensorView y) {
  detail::check_size(where, "x", x, y.numel(), y.dtype());
}

inline void check_divide_by_norms(ConstTensorView squares, ConstTensorView x, ConstTensorView y) {
  check_alike("divide_by_norms", x, y);
  detail::check_type("divide_by_norms", "squares", squares, DType::fp64);
  TRIREME_CHECK(squares.numel() > 0 && y.numel() % squares.numel() == 0, ShapeError,
                "divide_by_norms: {} numbers do not divide into {} parts", y.numel(), squares.numel());
}

inline void check_bias_dropout_add(ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                                   const Dropout& dropout, ConstTensorView sum) {
  constexpr std::string_view where = "bias_dropout_add";
  detail::check_is_matrix(where, "x", x);
  detail::check_dropout(where, dropout, x);
  detail::check_size(where, "residual", residual, x.numel(), x.dtype());
  detail::check_size(where, "sum", sum, x.numel(), x.dtype());
  if (bias) detail::check_size(where, "bias", bias, x.shape().back(), x.dtype());
}

inline void check_bias_dropout_add_backward(ConstTensorView dsum, const Dropout& dropout, ConstTensorView dx,
                                            ConstTensorView dbias) {
  constexpr std::string_view where = "bias_dropout_add_backward";
  detail::check_is_matrix(where, "dsum", dsum);
  detail::check_dropout(where, dropout, dsum);
  detail::check_size(where, "dx", dx, dsum.numel(), dsum.dtype());
  if (dbias) detail::check_size(where, "dbias", dbias, dsum.shape().back(), accumulation_type(dsum.dtype()));
}

inline void check_soft_cap(double cap) {
  TRIREME_CHECK(cap > 0, ShapeError, "soft_cap: a cap of {} is not above 0", cap);
}

/// y, or its gradient, [n, f]; tensors of gate and up [n, 2 f].
inline void check_glu(std::string_view where, Activation activation, ConstTensorView y,
                      std::initializer_list<ConstTensorView> gate_up) {
  TRIREME_CHECK(activation == Activation::silu || activation == Activation::gelu_tanh, ShapeError,
                "{}: gates are activated by silu or gelu_tanh", where);
  detail::check_is_matrix(where, "y", y);
  for (const ConstTensorView& tensor : gate_up) {
    detail::check_matrix(where, "gate_up", tensor, rows_of(y.shape()), 2 * y.shape().back(), y.dtype());
  }
}

namespace detail {
inline void check_update(std::string_view where, ConstTensorView gradient, ConstTensorView w, ConstTensorView rounded) {
  TRIREME_CHECK(w.dtype() == accumulation_type(w.dtype()), ShapeError, "{}: master weights are fp32 or fp64, not {}",
                where, name_of(w.dtype()));
  check_size(where, "gradient", gradient, w.numel(), w.dtype());
  if (rounded) {
    check_size(where, "rounded", rounded, w.numel(), rounded.dtype());
    TRIREME_CHECK(accumulation_type(rounded.dtype()) == w.dtype(), ShapeError, "{}: {} weights have no {} masters",
                  where, name_of(rounded.dtype()), name_of(w.dtype()));
  }
}
}  // namespace detail

inline void check_ranges(std::string_view where, const UpdateRanges& ranges) {
  if (!ranges.table) return;
  detail::check_type(where, "ranges", ranges.table, DType::int64);
  TRIREME_CHECK(ranges.table.shape().back() == UpdateRanges::columns, ShapeError, "{}: ranges are {}, not [n, {}]",
                where, to_string(ranges.table.shape()), int{UpdateRanges::columns});
}

namespace detail {
/// Moments are as large as the weights, unless ranges say where they are.
inline void check_moment(std::string_view where, std::string_view name, ConstTensorView moment,
                         const UpdateRanges& ranges, ConstTensorView w, DType dtype) {
  if (!ranges.table) return check_size(where, name, moment, w.numel(), dtype);
  check_type(where, name, moment, dtype);
  check_ranges(where, ranges);
}
}  // namespace detail

inline void check_decide(ConstTensorView losses, ConstTensorView of_groups, ConstTensorView norm,
                         ConstTensorView factor) {
  constexpr std::string_view where = "decide";
  detail::check_type(where, "losses", losses, DType::fp64);
  detail::check_type(where, "of_groups", of_groups, DType::fp64);
  TRIREME_CHECK(of_groups.numel() >= 1, ShapeError, "{}: of_groups is empty", where);
  detail::check_size(where, "norm", norm, 1, DType::fp64);
  detail::check_size(where, "factor", factor, 1, DType::fp64);
}

inline void check_adamw(const AdamWStep& step, const UpdateRanges& ranges, ConstTensorView gradient, ConstTensorView w,
                        ConstTensorView m, ConstTensorView v, ConstTensorView rounded) {
  constexpr std::string_view where = "adamw";
  TRIREME_CHECK(step.update >= 1, ShapeError, "{}: updates count from 1, not {}", where, step.update);
  detail::check_update(where, gradient, w, rounded);
  for (const auto& [name, moment] : {std::pair{"m", m}, {"v", v}}) {
    const bool narrow = w.dtype() == DType::fp32 && moment.dtype() == DType::bf16;
    detail::check_moment(where, name, moment, ranges, w, narrow ? DType::bf16 : w.dtype());
  }
}

inline void check_sgd(const UpdateRanges& ranges, ConstTensorView gradient, ConstTensorView w, ConstTensorView m,
                      ConstTensorView rounded) {
  detail::check_update("sgd", gradient, w, rounded);
  detail::check_moment("sgd", "m", m, ranges, w, w.dtype());
}

inline void check_blend(ConstTensorView x, ConstTensorView y, ConstTensorView rounded) {
  constexpr std::string_view where = "blend";
  const bool narrow = y.dtype() == DType::fp32 && x.dtype() == DType::bf16;
  detail::check_size(where, "x", x, y.numel(), narrow ? DType::bf16 : y.dtype());
  if (!rounded) return;
  check_same_size(where, rounded, y);
  detail::check_type(where, "y", y, accumulation_type(rounded.dtype()));
}

inline void check_reduction(std::string_view where, ConstTensorView result) {
  detail::check_size(where, "result", result, 1, DType::fp64);
}
inline void check_powers(ConstTensorView result, int power) {
  check_reduction("sum_powers", result);
  TRIREME_CHECK(power >= 1, ShapeError, "sum_powers: the power {} must be at least 1", power);
}

namespace detail {
inline void check_norm(std::string_view where, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                       ConstTensorView y, const NormStatistics& statistics) {
  TRIREME_CHECK(static_cast<bool>(bias) == static_cast<bool>(statistics.mean), ShapeError,
                "{}: layer normalisation has a mean and a bias, RMSNorm neither", where);
  check_is_matrix(where, "x", x);
  const std::int64_t n = rows_of(x.shape()), h = x.shape().back();
  check_size(where, "weight", weight, h, x.dtype());
  if (bias) check_size(where, "bias", bias, h, x.dtype());
  check_size(where, "y", y, n * h, x.dtype());
  if (statistics.mean) check_size(where, "mean", statistics.mean, n, accumulation_type(x.dtype()));
  check_size(where, "reciprocal_deviation", statistics.reciprocal_deviation, n, accumulation_type(x.dtype()));
}
}  // namespace detail

inline void check_normalise(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, ConstTensorView y,
                            const NormStatistics& statistics) {
  detail::check_norm("normalise", x, weight, bias, y, statistics);
}

inline void check_normalise_backward(ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                                     const NormStatistics& statistics, ConstTensorView residual_gradient,
                                     ConstTensorView dx, ConstTensorView dweight, ConstTensorView dbias) {
  constexpr std::string_view where = "normalise_backward";
  detail::check_norm(where, x, weight, dbias ? weight : ConstTensorView(), dx, statistics);
  detail::check_size(where, "dy", dy, x.numel(), x.dtype());
  if (residual_gradient) detail::check_size(where, "residual_gradient", residual_gradient, x.numel(), x.dtype());
  detail::check_size(where, "dweight", dweight, x.shape().back(), accumulation_type(x.dtype()));
  if (dbias) detail::check_size(where, "dbias", dbias, x.shape().back(), accumulation_type(x.dtype()));
}

inline void check_bias_dropout_add_norm(ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                                        const Dropout& dropout, ConstTensorView weight, ConstTensorView norm_bias,
                                        ConstTensorView sum, ConstTensorView y, const NormStatistics& statistics) {
  constexpr std::string_view where = "bias_dropout_add_norm";
  detail::check_norm(where, x, weight, norm_bias, y, statistics);
  detail::check_dropout(where, dropout, x);
  if (bias) detail::check_size(where, "bias", bias, x.shape().back(), x.dtype());
  detail::check_size(where, "residual", residual, x.numel(), x.dtype());
  detail::check_size(where, "sum", sum, x.numel(), x.dtype());
}

inline void check_lookup(ConstTensorView ids, ConstTensorView table, ConstTensorView y) {
  constexpr std::string_view where = "lookup";
  detail::check_type(where, "ids", ids, DType::int32);
  detail::check_is_matrix(where, "table", table);
  detail::check_matrix(where, "y", y, ids.numel(), table.shape().back(), table.dtype());
}

inline void check_lookup_backward(ConstTensorView ids, ConstTensorView dy, ConstTensorView dtable) {
  constexpr std::string_view where = "lookup_backward";
  detail::check_type(where, "ids", ids, DType::int32);
  detail::check_is_matrix(where, "dtable", dtable);
  detail::check_matrix(where, "dy", dy, ids.numel(), dtable.shape().back(), dy.dtype());
  detail::check_type(where, "dtable", dtable, accumulation_type(dy.dtype()));
}

inline void check_add_positions(std::string_view where, ConstTensorView table, const Positions& positions, DType dtype,
                                ConstTensorView x) {
  TRIREME_CHECK(x.shape().rank() == 3, ShapeError, "{}: {} is not [s, b, h]", where, to_string(x.shape()));
  if (!table) return;
  // The last rows of both pieces.
  const std::int64_t rows = x.shape()[0], split = std::min(rows, positions.split);
  const std::int64_t min_position = std::min(positions[0], split < rows ? positions.second : 0);
  const std::int64_t max_position = std::max(positions[split - 1], positions[rows - 1]);
  TRIREME_CHECK(table.shape().rank() == 2 && table.shape()[1] == x.shape()[2] && min_position >= 0 &&
                    max_position < table.shape()[0],
                ShapeError, "{}: positions {} to {} of {} for hidden states {}", where, min_position, max_position,
                to_string(table.shape()), to_string(x.shape()));
  detail::check_type(where, "positions", table, dtype);
}

inline void check_add_positions_backward(ConstTensorView dy, const Positions& positions, ConstTensorView dx,
                                         ConstTensorView dtable) {
  constexpr std::string_view where = "add_positions_backward";
  check_add_positions(where, dtable, positions, accumulation_type(dy.dtype()), dy);
  detail::check_size(where, "dx", dx, dy.numel(), dy.dtype());
}

/// `statistics` are tensors [n] A; all but the logits.
inline void check_cross_entropy(std::string_view where, ConstTensorView logits, VocabularyShard shard,
                                std::initializer_list<ConstTensorView> statistics) {
  detail::check_is_matrix(where, "logits", logits);
  TRIREME_CHECK(shard.classes >= 0 && shard.classes <= logits.shape().back(), ShapeError, "{}: {} classes in logits {}",
                where, shard.classes, to_string(logits.shape()));
  for (const ConstTensorView& tensor : statistics) {
    detail::check_size(where, "a statistic of the rows", tensor, rows_of(logits.shape()),
                       accumulation_type(logits.dtype()));
  }
}
inline void check_rescale(ConstTensorView own_maximum, ConstTensorView maximum, ConstTensorView sum_exp) {
  for (const ConstTensorView& tensor : {own_maximum, maximum}) {
    detail::check_size("rescale", "a maximum of the rows", tensor, sum_exp.numel(), sum_exp.dtype());
  }
}
inline void check_targets(std::string_view where, ConstTensorView logits, ConstTensorView targets) {
  detail::check_size(where, "targets", targets, rows_of(logits.shape()), DType::int32);
}

/// `heads` are q, k, v and other inputs; `results` the tensors to overwrite or merge; `statistics` log_sum_exp and
/// row_dot.
inline void check_attention(std::string_view where, const AttentionProblem& problem,
                            std::initializer_list<ConstTensorView> heads,
                            std::initializer_list<ConstTensorView> results,
                            std::initializer_list<ConstTensorView> statistics) {
  TRIREME_CHECK(problem.kv_heads > 0 && problem.heads % problem.kv_heads == 0 && problem.head_dim > 0, ShapeError,
                "{}: {} heads of {} with {} heads of keys and values", where, problem.heads, problem.head_dim,
                problem.kv_heads);
  TRIREME_CHECK(problem.soft_cap >= 0, ShapeError, "{}: a soft cap of {}", where, problem.soft_cap);
  TRIREME_CHECK(problem.alibi_heads == 0 || (problem.first_head + problem.heads <= problem.alibi_heads &&
                                             (problem.causal || (problem.queries <= 1 && problem.first_key == 0))),
                ShapeError, "{}: biases of {} heads for heads {} to {}, {} queries{}", where, problem.alibi_heads,
                problem.first_head, problem.first_head + problem.heads, problem.queries,
                problem.causal ? "" : " without a causal mask");
  const DType dtype = heads.begin()->dtype();
  for (const ConstTensorView& tensor : heads) detail::check_type(where, "a tensor of heads", tensor, dtype);
  const DType result = problem.results == AttentionResults::merge ? accumulation_type(dtype) : dtype;
  for (const ConstTensorView& tensor : results) detail::check_type(where, "a result", tensor, result);
  for (const ConstTensorView& tensor : statistics) {
    detail::check_size(where, "a statistic of the rows", tensor, problem.batch * problem.heads * problem.queries,
                       accumulation_type(dtype));
  }
}

inline void check_copy_heads(const ConstHeads& from, const Heads& to) {
  const DType a = from.data.dtype(), b = to.data.dtype();
  TRIREME_CHECK(a == b || a == accumulation_type(b) || b == accumulation_type(a), ShapeError,
                "copy_heads: from {} to {}: one must be the other or its accumulation type", name_of(a), name_of(b));
}

inline void check_rotate(const RotaryEmbedding& rotary, const RotaryHeads& x) {
  TRIREME_CHECK(
      rotary.channels >= 2 && rotary.channels % 2 == 0 && rotary.channels <= x.data.head_stride && rotary.base > 0,
      ShapeError, "rotate: {} channels of heads {} apart, base {}: an even number of channels, a positive base",
      rotary.channels, x.data.head_stride, rotary.base);
  TRIREME_CHECK(x.rows >= 0 && x.batch >= 0 && x.heads >= 0 && x.positions.first >= 0 && x.positions.split >= 1 &&
                    x.positions.second >= 0,
                ShapeError, "rotate: {} rows from positions {} and {}, {} samples, {} heads", x.rows, x.positions.first,
                x.positions.second, x.batch, x.heads);
}

}  // namespace trireme

#pragma once

#include <string_view>

#include "src/backend/kernels/elementwise.hpp"
#include "src/backend/kernels/gemm.hpp"
#include "src/backend/kernels/optimizer.hpp"
#include "src/backend/kernels/reduce.hpp"

// What the kernels' declarations say about shapes and types, in one place: every backend calls these first. They throw
// ShapeError, which names the kernel and the tensor.
namespace trireme {

/// The product of all extents but the last: the rows of a tensor seen as a matrix.
inline std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

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

/// Same number of elements; types may differ.
inline void check_same_size(std::string_view where, ConstTensorView x, ConstTensorView y) {
  TRIREME_CHECK(x.numel() == y.numel(), ShapeError, "{}: {} does not fit {}", where, to_string(x.shape()),
                to_string(y.shape()));
}

inline void check_add(ConstTensorView x, ConstTensorView y) { detail::check_size("add", "x", x, y.numel(), y.dtype()); }

inline void check_bias_dropout_add(ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                                   const Dropout& dropout, ConstTensorView sum) {
  constexpr std::string_view where = "bias_dropout_add";
  detail::check_is_matrix(where, "x", x);
  TRIREME_CHECK(!dropout.enabled() || x.shape().rank() == 3, ShapeError, "{}: dropout needs [s, b, h], not {}", where,
                to_string(x.shape()));
  detail::check_size(where, "residual", residual, x.numel(), x.dtype());
  detail::check_size(where, "sum", sum, x.numel(), x.dtype());
  if (bias) detail::check_size(where, "bias", bias, x.shape().back(), x.dtype());
}

inline void check_bias_dropout_add_backward(ConstTensorView dsum, const Dropout& dropout, ConstTensorView dx,
                                            ConstTensorView dbias) {
  constexpr std::string_view where = "bias_dropout_add_backward";
  detail::check_is_matrix(where, "dsum", dsum);
  TRIREME_CHECK(!dropout.enabled() || dsum.shape().rank() == 3, ShapeError, "{}: dropout needs [s, b, h], not {}",
                where, to_string(dsum.shape()));
  detail::check_size(where, "dx", dx, dsum.numel(), dsum.dtype());
  if (dbias) detail::check_size(where, "dbias", dbias, dsum.shape().back(), accumulation_type(dsum.dtype()));
}

inline void check_adamw(const AdamWStep& step, ConstTensorView gradient, ConstTensorView w, ConstTensorView m,
                        ConstTensorView v, ConstTensorView rounded) {
  constexpr std::string_view where = "adamw";
  TRIREME_CHECK(w.dtype() == accumulation_type(w.dtype()), ShapeError, "{}: master weights are fp32 or fp64, not {}",
                where, name_of(w.dtype()));
  TRIREME_CHECK(step.update >= 1, ShapeError, "{}: updates count from 1, not {}", where, step.update);
  detail::check_size(where, "gradient", gradient, w.numel(), w.dtype());
  detail::check_size(where, "m", m, w.numel(), w.dtype());
  detail::check_size(where, "v", v, w.numel(), w.dtype());
  if (rounded) {
    detail::check_size(where, "rounded", rounded, w.numel(), rounded.dtype());
    TRIREME_CHECK(accumulation_type(rounded.dtype()) == w.dtype(), ShapeError, "{}: {} weights have no {} masters",
                  where, name_of(rounded.dtype()), name_of(w.dtype()));
  }
}

inline void check_reduction(std::string_view where, ConstTensorView result) {
  detail::check_size(where, "result", result, 1, DType::fp64);
}

}  // namespace trireme

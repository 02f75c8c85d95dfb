#pragma once

#include <limits>

#include "src/backend/kernels/experts.hpp"
#include "src/backend/kernels/shape_checks.hpp"

// Checks of the shapes, types and sizes in the declarations of ExpertKernels, as in shape_checks.hpp.
namespace trireme {

namespace detail {
/// Choices [n, k] of experts.
inline void check_choices(std::string_view where, ConstTensorView experts) {
  check_is_matrix(where, "experts", experts);
  check_type(where, "experts", experts, DType::int32);
  TRIREME_CHECK(experts.numel() <= std::numeric_limits<std::int32_t>::max(), ShapeError,
                "{}: {} choices of experts do not fit into int32", where, experts.numel());
}

inline void check_router(std::string_view where, const RouterProblem& problem, ConstTensorView logits,
                         ConstTensorView experts, ConstTensorView weights) {
  check_is_matrix(where, "logits", logits);
  const std::int64_t n = rows_of(logits.shape()), count = logits.shape().back(), k = problem.per_token;
  TRIREME_CHECK(count >= 1 && count <= max_routed_experts, ShapeError, "{}: {} experts: 1 to {} are possible", where,
                count, max_routed_experts);
  TRIREME_CHECK(k >= 1 && k <= count, ShapeError, "{}: a token chooses 1 to {} experts, not {}", where, count, k);
  TRIREME_CHECK(problem.groups >= 1 && count % problem.groups == 0, ShapeError,
                "{}: {} groups do not divide {} experts", where, problem.groups, count);
  const std::int64_t per_token = problem.groups_per_token;
  TRIREME_CHECK(per_token >= 1 && per_token <= problem.groups && k % per_token == 0, ShapeError,
                "{}: {} groups per token: at most {}, dividing the {} experts per token", where, per_token,
                problem.groups, k);
  TRIREME_CHECK(per_token * (count / problem.groups) >= k, ShapeError, "{}: {} groups of {} experts have fewer than {}",
                where, per_token, count / problem.groups, k);
  TRIREME_CHECK(problem.segments >= 1 && n % problem.segments == 0, ShapeError, "{}: {} segments do not divide {} rows",
                where, problem.segments, n);
  check_choices(where, experts);
  check_matrix(where, "experts", experts, n, k, DType::int32);
  check_matrix(where, "weights or their gradients", weights, n, k, accumulation_type(logits.dtype()));
}
}  // namespace detail

inline void check_route(const RouterProblem& problem, ConstTensorView logits, ConstTensorView bias,
                        ConstTensorView experts, ConstTensorView weights, ConstTensorView counts, ConstTensorView sums,
                        ConstTensorView token_sums) {
  constexpr std::string_view where = "route";
  detail::check_router(where, problem, logits, experts, weights);
  TRIREME_CHECK(static_cast<bool>(counts) == static_cast<bool>(sums), ShapeError,
                "{}: counts and sums are computed together", where);
  const DType accumulation = accumulation_type(logits.dtype());
  const std::int64_t size = problem.segments * logits.shape().back();
  TRIREME_CHECK(!bias || problem.score == RouterScore::sigmoid, ShapeError, "{}: a bias needs sigmoid scores", where);
  if (bias) detail::check_size(where, "bias", bias, logits.shape().back(), accumulation);
  if (counts) {
    detail::check_size(where, "counts", counts, size, accumulation);
    detail::check_size(where, "sums", sums, size, accumulation);
  }
  if (token_sums) detail::check_size(where, "token_sums", token_sums, 2, accumulation);
}

inline void check_route_backward(const RouterProblem& problem, ConstTensorView logits, ConstTensorView experts,
                                 ConstTensorView dweights, const BalanceGradient& balance, ConstTensorView dlogits) {
  constexpr std::string_view where = "route_backward";
  detail::check_router(where, problem, logits, experts, dweights);
  const std::int64_t count = logits.shape().back();
  if (balance.counts) {
    detail::check_size(where, "counts", balance.counts, problem.segments * count, accumulation_type(logits.dtype()));
  }
  detail::check_matrix(where, "dlogits", dlogits, rows_of(logits.shape()), count, logits.dtype());
}

inline void check_limit_load(ConstTensorView experts, ConstTensorView weights, std::int64_t count,
                             std::int64_t capacity, ConstTensorView kept) {
  constexpr std::string_view where = "limit_load";
  detail::check_choices(where, experts);
  const std::int64_t n = rows_of(experts.shape()), k = experts.shape().back();
  TRIREME_CHECK(count >= 1 && count <= max_routed_experts && capacity >= 0, ShapeError,
                "{}: {} experts of capacity {}: 1 to {} experts, a capacity of 0 or more", where, count, capacity,
                max_routed_experts);
  detail::check_matrix(where, "weights", weights, n, k, accumulation_type(weights.dtype()));
  detail::check_matrix(where, "kept", kept, n, k, DType::int32);
}

inline void check_sort(ConstTensorView experts, std::int64_t first, std::int64_t room, ConstTensorView rows_of_expert,
                       ConstTensorView row_of, ConstTensorView slot_of, ConstTensorView token_of) {
  constexpr std::string_view where = "sort";
  detail::check_choices(where, experts);
  const std::int64_t here = rows_of_expert.numel();
  TRIREME_CHECK(first >= 0 && here >= 1 && first + here <= max_routed_experts, ShapeError,
                "{}: {} experts from {}: at least 1 here, at most {} in all", where, here, first, max_routed_experts);
  detail::check_type(where, "rows_of_expert", rows_of_expert, DType::int32);
  detail::check_matrix(where, "row_of", row_of, rows_of(experts.shape()), experts.shape().back(), DType::int32);
  TRIREME_CHECK(room >= 0 && room * here <= std::numeric_limits<std::int32_t>::max(), ShapeError,
                "{}: {} experts with room for {} rows each: rows are counted from 0 in int32", where, here, room);
  const std::int64_t rows = room > 0 ? room * here : experts.numel();
  detail::check_size(where, "slot_of", slot_of, rows, DType::int32);
  detail::check_size(where, "token_of", token_of, rows, DType::int32);
}

inline void check_add_load(std::int64_t count, ConstTensorView chosen, ConstTensorView kept, ConstTensorView counts,
                           ConstTensorView sums, ConstTensorView token_sums, ConstTensorView load) {
  constexpr std::string_view where = "add_load";
  detail::check_choices(where, chosen);
  detail::check_size(where, "kept", kept, chosen.numel(), DType::int32);
  const DType accumulation = accumulation_type(load.dtype());
  TRIREME_CHECK(static_cast<bool>(counts) == static_cast<bool>(sums), ShapeError, "{}: counts and sums come together",
                where);
  if (counts) {
    detail::check_size(where, "counts", counts, sums.numel(), accumulation);
    detail::check_type(where, "sums", sums, accumulation);
  }
  detail::check_size(where, "token_sums", token_sums, 2, accumulation);
  detail::check_size(where, "load", load, 2 * count + 3, accumulation);
}

inline void check_sum_rows(ConstTensorView y, ConstTensorView row_of, ConstTensorView x) {
  constexpr std::string_view where = "sum_rows";
  detail::check_choices(where, row_of);
  detail::check_is_matrix(where, "x", x);
  detail::check_is_matrix(where, "y", y);
  detail::check_matrix(where, "x", x, rows_of(row_of.shape()), y.shape().back(), y.dtype());
}

namespace detail {
inline void check_slots(std::string_view where, ConstTensorView x, ConstTensorView weights, ConstTensorView slot_of) {
  check_is_matrix(where, "x", x);
  check_type(where, "slot_of", slot_of, DType::int32);
  TRIREME_CHECK(slot_of.numel() >= rows_of(x.shape()), ShapeError, "{}: {} slots for {} rows", where, slot_of.numel(),
                rows_of(x.shape()));
  check_type(where, "weights", weights, accumulation_type(x.dtype()));
}
}  // namespace detail

inline void check_jitter(const RouterJitter& noise, ConstTensorView x, ConstTensorView y) {
  TRIREME_CHECK(x.shape().rank() == 3, ShapeError, "jitter: x has {} dimensions, not 3: [s, b, h]", x.shape().rank());
  detail::check_size("jitter", "y", y, x.numel(), x.dtype());
  TRIREME_CHECK(noise.random.samples != nullptr, ShapeError, "jitter: the numbers of the samples are missing");
}

inline void check_scale_rows(ConstTensorView x, ConstTensorView weights, ConstTensorView slot_of, ConstTensorView y) {
  constexpr std::string_view where = "scale_rows";
  detail::check_slots(where, x, weights, slot_of);
  detail::check_matrix(where, "y", y, rows_of(x.shape()), x.shape().back(), x.dtype());
}

inline void check_scale_rows_backward(ConstTensorView dy, ConstTensorView x, ConstTensorView weights,
                                      ConstTensorView slot_of, ConstTensorView dx, ConstTensorView dweights) {
  constexpr std::string_view where = "scale_rows_backward";
  detail::check_slots(where, x, weights, slot_of);
  detail::check_matrix(where, "dy", dy, rows_of(x.shape()), x.shape().back(), x.dtype());
  detail::check_matrix(where, "dx", dx, rows_of(x.shape()), x.shape().back(), x.dtype());
  detail::check_size(where, "dweights", dweights, weights.numel(), weights.dtype());
}

}  // namespace trireme

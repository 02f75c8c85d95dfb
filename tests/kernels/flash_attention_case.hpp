#pragma once

#include "cuda/kernels/families.hpp"
#include "src/backend/kernels/warp_groups.hpp"
#include "tests/backend/given_attention.hpp"

namespace trireme::test {

/// Computes attention and its gradients on tensor cores. With `draws_twice` both passes of backward draw dropout's
/// masks, as where they would take too much memory; `by_groups` are the kernels of warp groups.
inline AttentionTensors compute(const GivenAttention& t, bool draws_twice = false, bool by_groups = false) {
  Backend& b = t.b;
  const Tensor out = t.like(t.q, t.dtype), dq = t.like(t.q, t.dtype);
  const Tensor dk = t.like(t.k, t.dtype), dv = t.like(t.k, t.dtype);
  const Tensor lse = t.statistics(), row_dot = t.statistics();
  const Heads q = t.queries(t.q), k = t.keys(t.k), v = t.keys(t.v), dout = t.queries(t.dout);
  EXPECT_TRUE(cuda::takes_flash_attention(t.problem, {q, k, v, dout, t.queries(out), t.queries(dq), t.keys(dk)}));
  b.attention().attention(b.compute_stream(), t.problem, q, k, v, t.queries(out), lse);
  b.attention().attention_backward(b.compute_stream(), t.problem, dout, q, k, v, t.queries(out), lse, row_dot,
                                   t.queries(dq), t.keys(dk), t.keys(dv));
  if (draws_twice) {  // the sums over dout out are there
    for (const Tensor* gradient : {&dq, &dk, &dv}) b.elementwise().fill(b.compute_stream(), 1e4, *gradient);
    if (by_groups) {
      cuda::warp_group_query_gradient(b.compute_stream(), t.problem, dout, q, k, v, lse, row_dot, t.queries(dq),
                                      nullptr);
      cuda::warp_group_key_gradient(b.compute_stream(), t.problem, dout, q, k, v, lse, row_dot, t.keys(dk), t.keys(dv),
                                    nullptr);
    } else {
      cuda::flash_attention_backward(b.compute_stream(), t.problem, dout, q, k, v, lse, row_dot, t.queries(dq),
                                     t.keys(dk), t.keys(dv), nullptr);
    }
  }
  AttentionTensors result;
  result.out = values_of(b, out);
  result.log_sum_exp = values_of(b, lse);
  result.dq = values_of(b, dq);
  result.dk = values_of(b, dk);
  result.dv = values_of(b, dv);
  return result;
}

}  // namespace trireme::test

#pragma once

#include <gtest/gtest.h>

#include "cuda/kernels/families.hpp"
#include "tests/backend/attention_cases.hpp"

namespace trireme::test {

/// A problem of attention with random inputs on a backend. Padding is not a number.
class GivenAttention {
 public:
  GivenAttention(Backend& backend, DType dtype, const AttentionCase& shape, std::uint64_t seed)
      : b(backend),
        dtype(dtype),
        q(random_tensor(b, dtype, {shape.queries, shape.batch, shape.heads, shape.head_dim}, seed, -3, 3)),
        k(random_tensor(b, dtype, {shape.keys, shape.batch, shape.kv_heads, shape.head_dim}, seed + 1, -3, 3)),
        v(random_tensor(b, dtype, {shape.keys, shape.batch, shape.kv_heads, shape.head_dim}, seed + 2)),
        dout(random_tensor(b, dtype, {shape.queries, shape.batch, shape.heads, shape.head_dim}, seed + 3)),
        lengths_(shape.lengths),
        first_visible_(shape.documents.empty()
                           ? std::vector<std::int32_t>()
                           : first_visible_of(shape.documents, shape.keys - shape.queries, shape.queries)),
        samples_(b, DType::int64, {shape.batch}) {
    for (std::int64_t i = 0; i < shape.batch; ++i) numbers_.push_back((std::int64_t{3} << 32) + 5 * i);
    b.copy_from_host(b.compute_stream(), ConstTensorView(numbers_.data(), {shape.batch}), samples_);
    b.compute_stream().synchronize();
    if (!shape.lengths.empty()) {
      lengths_on_device_ = make_tensor(b, {shape.batch}, lengths_);
    }
    first_visible_on_device_ = make_tensor(b, {std::ssize(first_visible_)}, first_visible_);
    problem = problem_of(shape);
    if (!first_visible_.empty()) problem.first_visible = first_visible_on_device_.view().as<std::int32_t>();
    if (!shape.causal || shape.keys < shape.queries) problem.first_query = 0;
    problem.lengths = lengths_.empty() ? nullptr : lengths_on_device_.view().as<std::int32_t>();
    problem.dropout.samples = samples_.view().as<std::int64_t>();
    AttentionTensors t = inputs();
    poison_padding(on_host(), t);
    q = make_tensor(b, dtype, q.view().shape(), t.q);
    k = make_tensor(b, dtype, k.view().shape(), t.k);
    v = make_tensor(b, dtype, v.view().shape(), t.v);
    dout = make_tensor(b, dtype, dout.view().shape(), t.dout);
  }
  AttentionTensors reference() const {
    AttentionTensors t = inputs();
    reference_attention(on_host(), t);
    return t;
  }
  void reference_backward(AttentionTensors& t) const { reference_attention_backward(on_host(), t); }

  /// The problem with its lengths, first visible keys and samples on the host.
  AttentionProblem on_host() const {
    AttentionProblem p = problem;
    p.dropout.samples = numbers_.data();
    if (!lengths_.empty()) p.lengths = lengths_.data();
    if (!first_visible_.empty()) p.first_visible = first_visible_.data();
    return p;
  }
  Heads queries(TensorView x) const { return heads_of(x, problem.heads); }
  Heads keys(TensorView x) const { return heads_of(x, problem.kv_heads); }
  Tensor like(const Tensor& x, DType type) const { return poisoned_tensor(b, type, x.view().shape()); }
  Tensor statistics() const { return poisoned_tensor(b, DType::fp32, {problem.batch, problem.heads, problem.queries}); }

  Backend& b;
  DType dtype;
  AttentionProblem problem;
  Tensor q, k, v, dout;

 private:
  AttentionTensors inputs() const {
    AttentionTensors t;
    t.q = values_of(b, q);
    t.k = values_of(b, k);
    t.v = values_of(b, v);
    t.dout = values_of(b, dout);
    return t;
  }
  Heads heads_of(TensorView x, std::int64_t count) const {
    const std::int64_t d = problem.head_dim;
    return {x, problem.batch * count * d, count * d, d};
  }
  std::vector<std::int64_t> numbers_;
  std::vector<std::int32_t> lengths_, first_visible_;
  Tensor samples_, lengths_on_device_, first_visible_on_device_;
};

/// Everything that attention computes.
inline AttentionTensors compute(const GivenAttention& t) {
  Backend& b = t.b;
  const Tensor out = t.like(t.q, t.dtype), dq = t.like(t.q, t.dtype);
  const Tensor dk = t.like(t.k, t.dtype), dv = t.like(t.k, t.dtype);
  const Tensor lse = t.statistics(), row_dot = t.statistics();
  const Heads q = t.queries(t.q), k = t.keys(t.k), v = t.keys(t.v), dout = t.queries(t.dout);
  EXPECT_TRUE(cuda::takes_flash_attention(t.problem, {q, k, v, dout, t.queries(out), t.queries(dq), t.keys(dk)}));
  b.attention().attention(b.compute_stream(), t.problem, q, k, v, t.queries(out), lse);
  b.attention().attention_backward(b.compute_stream(), t.problem, dout, q, k, v, t.queries(out), lse, row_dot,
                                   t.queries(dq), t.keys(dk), t.keys(dv));
  AttentionTensors result;
  result.out = values_of(b, out);
  result.log_sum_exp = values_of(b, lse);
  result.dq = values_of(b, dq);
  result.dk = values_of(b, dk);
  result.dv = values_of(b, dv);
  return result;
}

}  // namespace trireme::test

#pragma once

#include <cmath>
#include <gpu/device.cuh>

#include "src/backend/kernels/attention.hpp"

namespace trireme::cuda {

/// One head of one sample: row i is data + i stride.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;
};
/// All heads of all samples.
template <class T>
struct AllHeads {
  T* data;
  std::int64_t position_stride, sample_stride, head_stride;
  __device__ Rows<T> at(std::int64_t sample, std::int64_t head) const {
    return {data + sample * sample_stride + head * head_stride, position_stride};
  }
};
template <class T, class View>
AllHeads<T> all_heads(const HeadsOf<View>& heads) {
  return {heads.data.template as<std::remove_const_t<T>>(), heads.position_stride, heads.sample_stride,
          heads.head_stride};
}

/// Positions from key 0 to query 0.
__device__ inline std::int64_t positions_between(const AttentionProblem& problem) {
  return problem.first_query - problem.first_key;
}

/// ALiBi's biases of a head's scores of one sample; 0 without them.
template <class A>
struct HeadBias {
  A slope;
  int origin;  ///< query 0 counted from key 0
  __device__ HeadBias(const AttentionProblem& problem, std::int64_t sample, std::int64_t head)
      : slope(problem.alibi_heads == 0 ? A{0} : std::exp2(problem.alibi_exponent<A>(head))),
        origin(problem.alibi_heads == 0 ? 0 : static_cast<int>(problem.alibi_origin(sample))) {}
  __device__ A operator()(std::int64_t query, std::int64_t key) const {
    return slope * static_cast<A>(static_cast<int>(key - query) - origin);
  }
};

/// Scaled score after the soft cap, if any.
template <class A>
__device__ A capped(const AttentionProblem& problem, A score) {
  const A cap = static_cast<A>(problem.soft_cap);
  return cap > 0 ? cap * std::tanh(score / cap) : score;
}

template <class T>
struct BackwardInputs {
  AllHeads<const T> q, k, v, dout;
  const Accumulation<T>* log_sum_exp;
  const Accumulation<T>* row_dot;
  std::uint32_t* masks;  ///< masks of dropout (kept_mask_bytes) from the query gradient to the key gradient; or null
};

}  // namespace trireme::cuda

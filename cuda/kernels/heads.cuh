#pragma once

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

/// Inputs of the backward kernels.
template <class T>
struct BackwardInputs {
  AllHeads<const T> q, k, v, dout;
  const Accumulation<T>* log_sum_exp;
  const Accumulation<T>* row_dot;
};

}  // namespace trireme::cuda

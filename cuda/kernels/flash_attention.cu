#include "cuda/kernels/families.hpp"

#include <initializer_list>

#include "cuda/kernels/flash_forward.cuh"

namespace trireme::cuda {
namespace {

/// Row tiles of a warp. Two of them share each fragment of keys and values: at 96 channels reads of shared memory take
/// longest. Then queries stay in shared memory, for lack of registers.
template <int d>
constexpr int row_tiles = d == 96 ? 2 : 1;
template <int d>
constexpr int forward_threads = query_threads / row_tiles<d>;
template <int d>
constexpr std::size_t forward_shared_bytes = query_shared_bytes<d> + (row_tiles<d> - 1) * key_stage<d> * sizeof(bf16);

template <class T, int d>
__global__ void __launch_bounds__(forward_threads<d>, d >= 128 ? 1 : 2)
    flash_attention_kernel(AttentionProblem problem, AllHeads<const T> q, AllHeads<const T> k, AllHeads<const T> v,
                           AllHeads<T> out, AllHeads<float> joined, float* log_sum_exp) {
  constexpr int rows = row_tiles<d>, threads = forward_threads<d>;
  const int warp = threadIdx.x / warp_threads;
  const QueryCoordinates coordinates(problem);
  const std::int64_t sample = coordinates.sample, kv_head = coordinates.head / (problem.heads / problem.kv_heads);
  const HeadDropout dropout(problem, sample, coordinates.head);
  const HeadBias<float> bias = bias_before_scale(problem, sample, coordinates.head);
  const Rows<const T> all_keys = k.at(sample, kv_head), all_values = v.at(sample, kv_head);
  const int first = coordinates.begin + warp * rows * warp_rows;
  const int keys_of_sample = static_cast<int>(problem.keys_of(sample));
  const int queries_of_sample = static_cast<int>(problem.queries_of(sample));
  const int sure = visible_keys(problem, keys_of_sample, first);
  const int last = visible_keys_of_rows(problem, queries_of_sample, keys_of_sample, first, rows * warp_rows);
  const int end = visible_keys_of_rows(problem, queries_of_sample, keys_of_sample, coordinates.begin, query_rows);
  const int first_tile = first_key_tile(problem, sample, coordinates.begin);
  const float scale = static_cast<float>(problem.scale) * log2_e;
  T* stages = gpu::dynamic_shared<T>();
  // With one row tile the block's queries pass through the stage not used by the first keys.
  T* own = stages + (rows == 1 ? 1 - first_tile / key_tile % 2 : rows) * key_stage<d>;

  copy_tile<d, query_rows, threads>(q.at(sample, coordinates.head), coordinates.begin, queries_of_sample, own);
  gpu::commit_copies();
  const auto copy = [&](int begin) {
    // With two row tiles there are too few registers to keep the addresses of the thread's copies.
    const int thread = rows == 1 ? threadIdx.x : gpu::forgotten(threadIdx.x);
    copy_keys<d, threads>(all_keys, all_values, begin, end, stages, thread);
  };
  if (first_tile < end) copy(first_tile);
  gpu::commit_copies();
  gpu::wait_for_copies<1>();
  __syncthreads();
  std::uint32_t queries[d / 16][rows][4];
  const auto load_queries = [&](int step) {
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      load_left<d>(own + (warp * rows + m) * warp_rows * row_stride<d>, step, queries[step][m]);
    }
  };
  if constexpr (rows == 1) {
#pragma unroll
    for (int step = 0; step < d / 16; ++step) load_queries(step);
    __syncthreads();  // their stage is free
  }

  float sum[rows][d / 8][4]{}, maximum[rows][2], total[rows][2]{};
  for (float(&of_tile)[2] : maximum) of_tile[0] = of_tile[1] = minus_infinity;
  for (int begin = first_tile; begin < end; begin += key_tile) {
    if (begin + key_tile < end) copy(begin + key_tile);
    gpu::commit_copies();
    gpu::wait_for_copies<1>();
    __syncthreads();
    if (begin < last && first_key(problem, sample, first) < begin + key_tile) {
      const T* keys = stages + begin / key_tile % 2 * key_stage<d>;
      const T* values = keys + key_tile * row_stride<d>;
      float score[rows][key_tile / 8][4]{};
      std::uint32_t probability[key_tile / 16][rows][4];
#pragma unroll
      for (int step = 0; step < d / 16; ++step) {
        if constexpr (rows > 1) load_queries(step);
        multiply_rows<d>(queries[step], keys, step, score);
      }
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        weigh<T, d>(problem, sample, dropout, bias, scale, sure, last, first + m * warp_rows, begin, m, score[m],
                    maximum[m], total[m], sum[m], probability);
      }
#pragma unroll
      for (int step = 0; step < key_tile / 16; ++step) multiply_columns<d>(probability[step], values, step, sum);
    }
    __syncthreads();
  }

#pragma unroll
  for (int m = 0; m < rows; ++m) {
    store_attention<T, d>(problem, sample, coordinates.head, first + m * warp_rows, maximum[m], total[m], sum[m],
                          stages + warp * warp_rows * row_stride<d>, out, joined, log_sum_exp);
  }
}

}  // namespace

bool takes_flash_attention(const AttentionProblem& problem, std::initializer_list<ConstHeads> tensors) {
  const auto aligned = [](std::int64_t elements, DType dtype) {
    return elements * static_cast<std::int64_t>(size_of(dtype)) % 16 == 0;
  };
  for (const ConstHeads& heads : tensors) {
    const DType dtype = heads.data.dtype();
    if (heads.position_stride * static_cast<std::int64_t>(size_of(dtype)) >> 32 != 0) return false;
    if (reinterpret_cast<std::uintptr_t>(heads.data.data()) % 16 != 0 || !aligned(heads.position_stride, dtype) ||
        !aligned(heads.sample_stride, dtype) || !aligned(heads.head_stride, dtype)) {
      return false;
    }
  }
  return has_flash_attention(tensors.begin()->data.dtype(), problem.head_dim, problem.soft_cap > 0) &&
         problem.scale > 0 && (!problem.dropout.enabled() || problem.first_key % 8 == 0);
}

void flash_attention(Stream& stream, const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k,
                     const ConstHeads& v, const Heads& out, TensorView log_sum_exp) {
  dispatch(q.data.dtype(), problem.head_dim, [&]<class T, int d>() {
    gpu::launch(stream,
                {"flash_attention", tiles_of(problem.queries, query_rows) * problem.heads * problem.batch,
                 forward_threads<d>, forward_shared_bytes<d>},
                flash_attention_kernel<T, d>, problem, all_heads<const T>(q), all_heads<const T>(k),
                all_heads<const T>(v), written<T>(problem, out), written<float>(problem, out), log_sum_exp.as<float>());
  });
}

}  // namespace trireme::cuda

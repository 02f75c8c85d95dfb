#include "cuda/kernels/flash_attention.hpp"

#include <initializer_list>

#include "cuda/kernels/flash_blocks.cuh"

namespace trireme::cuda {
namespace {

template <class T, int d>
__global__ void __launch_bounds__(query_threads, d == 64 ? 2 : 1)
    flash_attention_kernel(AttentionProblem problem, AllHeads<const T> q, AllHeads<const T> k, AllHeads<const T> v,
                           AllHeads<T> out, AllHeads<float> joined, float* log_sum_exp) {
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const QueryPlace place(problem);
  const std::int64_t sample = place.sample, kv_head = place.head / (problem.heads / problem.kv_heads);
  const HeadDropout dropout(problem, sample, place.head);
  const Rows<const T> all_keys = k.at(sample, kv_head), all_values = v.at(sample, kv_head);
  const int first = place.begin + warp * warp_rows;
  const int sure = visible_keys(problem, first), last = visible_keys(problem, first + warp_rows - 1);
  const int seen[2] = {visible_keys(problem, first + lane / 4), visible_keys(problem, first + lane / 4 + 8)};
  const int tiles = static_cast<int>(tiles_of(visible_keys(problem, place.begin + query_rows - 1), key_tile));
  const float scale = static_cast<float>(problem.scale) * log2_e;
  T* stages = gpu::dynamic_shared<T>();

  copy_tile<d, query_rows, query_threads>(q.at(sample, place.head), place.begin, problem.queries,
                                          stages + key_stage<d>);
  gpu::commit_copies();
  if (tiles > 0) copy_keys<d>(all_keys, all_values, 0, problem.keys, stages);
  gpu::commit_copies();
  gpu::wait_for_copies<1>();
  __syncthreads();
  std::uint32_t left[d / 16][4];
  load_own_rows<d>(stages + key_stage<d>, left);
  __syncthreads();

  float sum[d / 8][4]{};
  float maximum[2] = {minus_infinity, minus_infinity}, total[2] = {0, 0};
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) copy_keys<d>(all_keys, all_values, tile + 1, problem.keys, stages);
    gpu::commit_copies();
    gpu::wait_for_copies<1>();
    __syncthreads();
    const int begin = tile * key_tile;
    if (begin < last) {
      const T* keys = stages + tile % 2 * key_stage<d>;
      const T* values = keys + key_tile * row_stride<d>;
      float score[key_tile / 8][4]{};
#pragma unroll
      for (int step = 0; step < d / 16; ++step) multiply_rows<d>(left[step], keys, step, score);
      if (begin + key_tile > sure) {
#pragma unroll
        for (int j = 0; j < key_tile / 8; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (begin + 8 * j + 2 * (lane % 4) + i % 2 >= seen[i / 2]) score[j][i] = minus_infinity;
          }
        }
      }
      float rescale[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = maximum[half];
#pragma unroll
        for (int j = 0; j < key_tile / 8; ++j) {
          largest = Maximum<float>{}(largest, Maximum<float>{}(score[j][2 * half], score[j][2 * half + 1]));
        }
        largest = combine_row<Maximum<float>>(largest);
        // Of the difference, not as one fused x * scale - shift: 1 where the largest stays what it was.
        const float subtracted = largest == minus_infinity ? 0 : largest, shift = subtracted * scale;
        rescale[half] = gpu::fast_exp2((maximum[half] - subtracted) * scale);
        maximum[half] = largest;
        float added = 0;
#pragma unroll
        for (int j = 0; j < key_tile / 8; ++j) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            score[j][i] = gpu::fast_exp2(score[j][i] * scale - shift);
            added += score[j][i];
          }
        }
        total[half] = total[half] * rescale[half] + added;
      }
      // Largest scores change seldom after the first tiles.
      if (__ballot_sync(all_lanes, rescale[0] != 1 || rescale[1] != 1) != 0) {
#pragma unroll
        for (int j = 0; j < d / 8; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[j][i] *= rescale[i / 2];
        }
      }
      std::uint32_t probability[key_tile / 16][4];
#pragma unroll
      for (int step = 0; step < key_tile / 16; ++step) pack_left<T>(score, step, probability[step]);
      if (problem.dropout.enabled()) {
        const std::uint32_t drawn = draw_rows(dropout, problem.first_query + first, (problem.first_key + begin) / 8);
#pragma unroll
        for (int i = 0; i < key_tile / 16; ++i) {
          const int part = i / 2, half = i % 2;
          const std::uint32_t pairs = pairs_of_row(drawn, part, half);
#pragma unroll
          for (int j = 0; j < 4; ++j) probability[2 * part + j / 2][2 * (j % 2) + half] &= kept_mask(pairs, 4 * j);
        }
      }
#pragma unroll
      for (int step = 0; step < key_tile / 16; ++step) multiply_columns<d>(probability[step], values, step, sum);
    }
    __syncthreads();
  }

  const bool merge = problem.results == AttentionResults::merge;
  float* statistics = log_sum_exp + (sample * problem.heads + place.head) * problem.queries;
  float kept[2] = {0, 0}, lse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + lane / 4 + 8 * half;
    const float denominator = combine_row<Plus<float>>(total[half]);
    float factor = denominator == 0 ? 0 : problem.dropout.scale / denominator;
    lse[half] = maximum[half] * static_cast<float>(problem.scale) + std::log(denominator);
    if (merge && query < problem.queries) {
      const float before = statistics[query], largest = Maximum<float>{}(before, lse[half]);
      if (before != minus_infinity || lse[half] != minus_infinity) {
        const float both = largest + std::log(std::exp(before - largest) + std::exp(lse[half] - largest));
        kept[half] = std::exp(before - both);
        factor *= std::exp(lse[half] - both);
        lse[half] = both;
      }
    }
#pragma unroll
    for (int j = 0; j < d / 8; ++j) {
      sum[j][2 * half] *= factor;
      sum[j][2 * half + 1] *= factor;
    }
  }
  __syncwarp();  // all lanes have read the statistics
  for (int half = 0; half < 2; ++half) {
    const int query = first + lane / 4 + 8 * half;
    if (lane % 4 == 0 && query < problem.queries) statistics[query] = lse[half];
  }
  if (merge)
    join_sums<d>(sum, kept, first, problem.queries, joined.at(sample, place.head));
  else
    store_sums<d>(sum, first, problem.queries, stages + warp * warp_rows * row_stride<d>, out.at(sample, place.head));
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
  const DType dtype = tensors.begin()->data.dtype();
  return (dtype == DType::bf16 || dtype == DType::fp16) &&
         (problem.head_dim == 64 || problem.head_dim == 96 || problem.head_dim == 128) && problem.scale > 0 &&
         (!problem.dropout.enabled() || problem.first_key % 8 == 0);
}

void flash_attention(Stream& stream, const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k,
                     const ConstHeads& v, const Heads& out, TensorView log_sum_exp) {
  dispatch(q.data.dtype(), problem.head_dim, [&]<class T, int d>() {
    gpu::launch(stream,
                {"flash_attention", tiles_of(problem.queries, query_rows) * problem.heads * problem.batch,
                 query_threads, query_shared_bytes<d>},
                flash_attention_kernel<T, d>, problem, all_heads<const T>(q), all_heads<const T>(k),
                all_heads<const T>(v), written<T>(problem, out), written<float>(problem, out), log_sum_exp.as<float>());
  });
}

}  // namespace trireme::cuda

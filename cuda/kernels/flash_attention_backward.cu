#include "cuda/kernels/families.hpp"
#include "cuda/kernels/flash_gradients.cuh"

namespace trireme::cuda {
namespace {

/// Sizes of the kernel whose blocks own keys.
constexpr int key_warps = 4, key_threads = key_warps * warp_threads, key_rows = key_warps * warp_rows;
constexpr int query_tile = 32;
template <int d>
constexpr int query_stage = 2 * query_tile* row_stride<d>;

/// Where the gradients of a block's queries stay in shared memory, behind the stages, for lack of registers.
template <int d>
constexpr bool reloads_gradients = d > 128;
template <int d>
constexpr std::size_t query_gradient_shared_bytes = query_shared_bytes<d> +
                                                    (reloads_gradients<d> ? key_stage<d> * sizeof(bf16) : 0);

/// dq = scale sum over keys of dscore k.
template <class T, int d>
__global__ void __launch_bounds__(query_threads, 1)
    flash_query_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<T> dq,
                                AllHeads<float> joined) {
  constexpr int columns = gradient_columns;
  const int warp = threadIdx.x / warp_threads;
  const QueryCoordinates coordinates(problem);
  const std::int64_t sample = coordinates.sample, kv_head = coordinates.head / (problem.heads / problem.kv_heads);
  const HeadDropout dropout(problem, sample, coordinates.head);
  const HeadMasks masks(in.masks, problem, sample, coordinates.head);
  const HeadBias<float> bias = bias_before_scale(problem, sample, coordinates.head);
  const Rows<const T> all_keys = in.k.at(sample, kv_head), all_values = in.v.at(sample, kv_head);
  const int first = coordinates.begin + warp * warp_rows;
  const int keys_of_sample = static_cast<int>(problem.keys_of(sample));
  const int queries_of_sample = static_cast<int>(problem.queries_of(sample));
  const int sure = visible_keys(problem, keys_of_sample, first);
  const int last = visible_keys_of_rows(problem, queries_of_sample, keys_of_sample, first, warp_rows);
  const int end = visible_keys_of_rows(problem, queries_of_sample, keys_of_sample, coordinates.begin, query_rows);
  const int first_tile = first_key_tile(problem, sample, coordinates.begin);
  const float scale = static_cast<float>(problem.scale) * log2_e;
  const std::int64_t statistics = (sample * problem.heads + coordinates.head) * problem.queries;
  float lse[2], row_dot[2];
  load_statistics(in, statistics, first, queries_of_sample, lse, row_dot);
  T* stages = gpu::dynamic_shared<T>();
  T* own_gradients = stages + (reloads_gradients<d> ? 2 : 1) * key_stage<d>;

  copy_tile<d, query_rows, query_threads>(in.q.at(sample, coordinates.head), coordinates.begin, queries_of_sample,
                                          stages);
  copy_tile<d, query_rows, query_threads>(in.dout.at(sample, coordinates.head), coordinates.begin, queries_of_sample,
                                          own_gradients);
  gpu::commit_copies();
  gpu::wait_for_copies<0>();
  __syncthreads();
  std::uint32_t queries[d / 16][4], gradients[d / 16][4];
  load_own_rows<d>(stages, queries);
  if constexpr (!reloads_gradients<d>) load_own_rows<d>(own_gradients, gradients);
  __syncthreads();
  const auto copy = [&](int begin) {
    // With 192 channels there are too few registers to keep the addresses of the thread's copies.
    const int thread = reloads_gradients<d> ? gpu::forgotten(threadIdx.x) : threadIdx.x;
    copy_keys<d, query_threads>(all_keys, all_values, begin, end, stages, thread);
  };
  if (first_tile < end) copy(first_tile);
  gpu::commit_copies();

  float sum[d / 8][4]{};
  for (int tile = first_tile; tile < end; tile += key_tile) {
    if (tile + key_tile < end) copy(tile + key_tile);
    gpu::commit_copies();
    gpu::wait_for_copies<1>();
    __syncthreads();
    std::uint32_t drawn = 0;
    if (problem.dropout.enabled() && tile < last) {
      drawn = draw_rows(dropout, problem.first_query + first, (problem.first_key + tile) / 8);
      if constexpr (!reloads_gradients<d>) masks.store_rows(first, tile, drawn);
    }
    for (int begin = tile; begin < tile + key_tile && begin < last; begin += columns) {
      if (first_key(problem, sample, first) >= begin + columns) continue;
      const T* keys = stages + tile / key_tile % 2 * key_stage<d> + begin % key_tile * row_stride<d>;
      const T* values = keys + key_tile * row_stride<d>;
      float score[columns / 8][4]{}, dprobability[columns / 8][4]{};
#pragma unroll
      for (int step = 0; step < d / 16; ++step) {
        multiply_rows<d>(queries[step], keys, step, score);
        if constexpr (reloads_gradients<d>) {
          load_left<d>(own_gradients + warp * warp_rows * row_stride<d>, step, gradients[step]);
        }
        multiply_rows<d>(gradients[step], values, step, dprobability);
      }
      score_gradients(problem, sample, bias, scale, sure, keys_of_sample, first, begin, drawn, lse, row_dot, score,
                      dprobability);
#pragma unroll
      for (int step = 0; step < columns / 16; ++step) {
        std::uint32_t dscore[4];
        pack_left<T>(score, step, dscore);
        multiply_columns<d>(dscore, keys, step, sum);
      }
    }
    __syncthreads();
  }
  store_query_gradients<T, d>(problem, sample, coordinates.head, first, sum, stages + warp * warp_rows * row_stride<d>,
                              dq, joined);
}

/// dk = scale sum over queries of dscore q, dv = sum over queries of the dropped probability dout, over the query heads
/// that share the keys. Computes dk, dv, or both, whose sums take d registers of a thread.
template <class T, int d, bool of_keys, bool of_values>
__global__ void __launch_bounds__(key_threads, d == 64 ? 3 : 2)
    flash_key_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<T> dk, AllHeads<T> dv,
                              AllHeads<float> joined_k, AllHeads<float> joined_v) {
  const int warp = threadIdx.x / warp_threads;
  const std::int64_t key_blocks = tiles_of(problem.keys, key_rows);
  const std::int64_t sample = blockIdx.x / key_blocks / problem.kv_heads;
  const std::int64_t kv_head = blockIdx.x / key_blocks % problem.kv_heads;
  const int block_begin = static_cast<int>(blockIdx.x % key_blocks) * key_rows, first = block_begin + warp * warp_rows;
  const std::int64_t heads_per_kv_head = problem.heads / problem.kv_heads;
  const int keys = static_cast<int>(problem.keys_of(sample)), queries = static_cast<int>(problem.queries_of(sample));
  // Query i attends to the keys up to i + between.
  const int between = static_cast<int>(positions_between(problem));
  const int first_query = problem.causal && block_begin > between ? block_begin - between : 0;
  const int first_tile = first_query / query_tile;
  const int all_tiles = end_of_query_tiles(problem, sample, first_tile, static_cast<int>(tiles_of(queries, query_tile)),
                                           query_tile, block_begin + key_rows);
  const bool seen = block_begin < keys && first_tile < all_tiles;
  const int first_head = static_cast<int>(kv_head * heads_per_kv_head),
            end_head = seen ? first_head + static_cast<int>(heads_per_kv_head) : first_head;
  const float scale = static_cast<float>(problem.scale) * log2_e;
  T* own_k = gpu::dynamic_shared<T>();
  T* own_v = own_k + key_rows * row_stride<d>;
  T* stages = own_v + key_rows * row_stride<d>;
  auto* statistics = reinterpret_cast<TileStatistics<query_tile>*>(stages + 2 * query_stage<d>);
  const T* warp_k = own_k + warp * warp_rows * row_stride<d>;
  const T* warp_v = own_v + warp * warp_rows * row_stride<d>;

  const auto copy_queries = [&](int head, int tile, int stage) {
    const int begin = tile * query_tile;
    T* to = stages + stage * query_stage<d>;
    copy_tile<d, query_tile, key_threads>(in.q.at(sample, head), begin, queries, to);
    copy_tile<d, query_tile, key_threads>(in.dout.at(sample, head), begin, queries, to + query_tile * row_stride<d>);
    load_tile_statistics(problem, in, sample, head, begin, queries, threadIdx.x, statistics[stage]);
  };

  float sum_k[d / 8][4]{}, sum_v[d / 8][4]{};
  if (first_head < end_head) {
    copy_tile<d, key_rows, key_threads>(in.k.at(sample, kv_head), block_begin, keys, own_k);
    if constexpr (of_keys) copy_tile<d, key_rows, key_threads>(in.v.at(sample, kv_head), block_begin, keys, own_v);
    copy_queries(first_head, first_tile, 0);
    gpu::commit_copies();
  }
  int stage = 0;
  for (int head = first_head; head < end_head; ++head) {
    const HeadDropout dropout(problem, sample, head);
    const HeadMasks masks(d > 128 ? nullptr : in.masks, problem, sample, head);
    for (int tile = first_tile; tile < all_tiles; ++tile, stage ^= 1) {
      const bool more = tile + 1 < all_tiles;
      if (more || head + 1 < end_head) copy_queries(more ? head : head + 1, more ? tile + 1 : first_tile, stage ^ 1);
      gpu::commit_copies();
      gpu::wait_for_copies<1>();
      __syncthreads();
      const int begin = tile * query_tile;
      const TileStatistics<query_tile>& of = statistics[stage];
      if (first < keys && (!problem.causal || begin + query_tile - 1 + between >= first) &&
          of.first_key[0] < first + warp_rows) {
        const T* q_rows = stages + stage * query_stage<d>;
        const T* gradients = q_rows + query_tile * row_stride<d>;
        float score[query_tile / 8][4]{}, probability[query_tile / 8][4]{};
#pragma unroll
        for (int step = 0; step < d / 16; ++step) {
          std::uint32_t own[4];
          load_left<d>(warp_k, step, own);
          multiply_rows<d>(own, q_rows, step, score);
          if constexpr (of_keys) {
            load_left<d>(warp_v, step, own);
            multiply_rows<d>(own, gradients, step, probability);
          }
        }
        key_score_gradients(problem, sample, head, dropout, masks, scale, between, first, begin, of.at(0), score,
                            probability);
#pragma unroll
        for (int step = 0; step < query_tile / 16; ++step) {
          std::uint32_t own[4];
          if constexpr (of_values) {
            pack_left<T>(probability, step, own);
            multiply_columns<d>(own, gradients, step, sum_v);
          }
          if constexpr (of_keys) {
            pack_left<T>(score, step, own);
            multiply_columns<d>(own, q_rows, step, sum_k);
          }
        }
      }
      __syncthreads();
    }
  }
  if constexpr (of_keys) {
    store_key_gradients<T, d>(problem, sample, kv_head, first, keys, static_cast<float>(problem.scale), sum_k,
                              own_k + warp * warp_rows * row_stride<d>, dk, joined_k);
  }
  if constexpr (of_values) {
    store_key_gradients<T, d>(problem, sample, kv_head, first, keys, problem.dropout.scale, sum_v,
                              own_v + warp * warp_rows * row_stride<d>, dv, joined_v);
  }
}

template <int d>
constexpr std::size_t key_shared_bytes = (2 * key_rows * row_stride<d> + 2 * query_stage<d>)*sizeof(bf16) +
                                         2 * sizeof(TileStatistics<query_tile>);

}  // namespace

std::size_t flash_attention_shared_bytes(std::int64_t head_dim) {
  std::size_t bytes = 0;  // need of the gradients: the forward kernel needs less than the greater
  dispatch(DType::bf16, head_dim,
           [&]<class T, int d>() { bytes = std::max(query_gradient_shared_bytes<d>, key_shared_bytes<d>); });
  return bytes;
}

void flash_attention_backward(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                              const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                              ConstTensorView log_sum_exp, ConstTensorView row_dot, const Heads& dq, const Heads& dk,
                              const Heads& dv, std::uint32_t* masks) {
  dispatch(q.data.dtype(), problem.head_dim, [&]<class T, int d>() {
    const BackwardInputs<T> in{all_heads<const T>(q),
                               all_heads<const T>(k),
                               all_heads<const T>(v),
                               all_heads<const T>(dout),
                               log_sum_exp.as<float>(),
                               row_dot.as<float>(),
                               masks};
    gpu::launch(stream,
                {"flash_query_gradient", tiles_of(problem.queries, query_rows) * problem.heads * problem.batch,
                 query_threads, query_gradient_shared_bytes<d>},
                flash_query_gradient_kernel<T, d>, problem, in, written<T>(problem, dq), written<float>(problem, dq));
    const auto launch_keys = [&]<bool of_keys, bool of_values>() {
      gpu::launch(stream,
                  {"flash_key_gradient", tiles_of(problem.keys, key_rows) * problem.kv_heads * problem.batch,
                   key_threads, key_shared_bytes<d>},
                  flash_key_gradient_kernel<T, d, of_keys, of_values>, problem, in, written<T>(problem, dk),
                  written<T>(problem, dv), written<float>(problem, dk), written<float>(problem, dv));
    };
    if constexpr (d > 128) {  // too few registers for the sums of both
      launch_keys.template operator()<true, false>();
      launch_keys.template operator()<false, true>();
    } else {
      launch_keys.template operator()<true, true>();
    }
  });
}

}  // namespace trireme::cuda

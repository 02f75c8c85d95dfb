#include "cuda/kernels/flash_attention.hpp"

#include <initializer_list>

#include "cuda/kernels/flash_tiles.cuh"

namespace trireme::cuda {
namespace {

// Tiles of the others' rows go through two stages in shared memory: one is copied while the other is worked on. Forward
// and the gradient of queries go through the keys, the gradients of keys and values through the queries: scores are
// made twice in backward, nothing is added up by two blocks, and the order of additions is fixed.

/// Of the kernels whose blocks have queries.
constexpr int query_warps = 8, query_threads = query_warps * warp_threads, query_rows = query_warps * warp_rows;
constexpr int key_tile = 64;
template <int d>
constexpr int key_stage = 2 * key_tile* row_stride<d>;
static_assert(2 * key_tile == query_rows, "a stage also takes the block's own queries");

/// Of the kernel whose blocks have keys.
constexpr int key_warps = 4, key_threads = key_warps * warp_threads, key_rows = key_warps * warp_rows;
constexpr int query_tile = 32;
template <int d>
constexpr int query_stage = 2 * query_tile* row_stride<d>;

constexpr std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) { return (rows + tile - 1) / tile; }

/// Which sample, head and rows a block has. The last rows, which see most keys, come first.
struct QueryPlace {
  std::int64_t sample, head;
  int begin;
  __device__ explicit QueryPlace(const AttentionProblem& problem) {
    const std::int64_t tiles = tiles_of(problem.queries, query_rows);
    sample = blockIdx.x / tiles / problem.heads;
    head = blockIdx.x / tiles % problem.heads;
    begin = static_cast<int>(tiles - 1 - blockIdx.x % tiles) * query_rows;
  }
};

/// A query sees the keys before this one.
__device__ int visible_keys(const AttentionProblem& problem, int query) {
  const std::int64_t seen = problem.causal ? query + places_between(problem) + 1 : problem.keys;
  if (seen <= 0) return 0;
  return static_cast<int>(seen < problem.keys ? seen : problem.keys);
}

/// Begins to copy a tile of keys and values.
template <int d, class T>
__device__ void copy_keys(const Rows<const T>& k, const Rows<const T>& v, int tile, std::int64_t keys, T* stages) {
  T* to = stages + tile % 2 * key_stage<d>;
  copy_tile<d, key_tile, query_threads>(k, tile * key_tile, keys, to);
  copy_tile<d, key_tile, query_threads>(v, tile * key_tile, keys, to + key_tile * row_stride<d>);
}
/// The warp's rows of the block's own, as left factors.
template <int d, class T>
__device__ void load_own_rows(const T* rows, std::uint32_t (&left)[d / 16][4]) {
  const int warp = threadIdx.x / warp_threads;
#pragma unroll
  for (int step = 0; step < d / 16; ++step) load_left<d>(rows + warp * warp_rows * row_stride<d>, step, left[step]);
}

template <class T, int d>
__global__ void __launch_bounds__(query_threads, d == 64 ? 2 : 1)
    flash_attention_kernel(AttentionProblem problem, AllHeads<const T> q, AllHeads<const T> k, AllHeads<const T> v,
                           AllHeads<T> out, AllHeads<float> joined, float* log_sum_exp) {
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const QueryPlace place(problem);
  const std::int64_t sample = place.sample, kv_head = place.head / (problem.heads / problem.kv_heads);
  const std::uint64_t head_key = problem.dropout.head_key(problem.first_head + place.head);
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
        const float shift = largest == minus_infinity ? 0 : largest * scale;
        rescale[half] = gpu::fast_exp2(maximum[half] * scale - shift);
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
      if (problem.dropout.enabled()) {
#pragma unroll
        for (int part = 0; part < key_tile / 32; ++part) {
          unsigned kept[4];
          draw_rows(problem.dropout, head_key, problem.dropout.samples[sample], problem.first_query + first,
                    (problem.first_key + begin) / 8 + 4 * part, kept);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              if ((kept[j] >> i & 1U) == 0) score[4 * part + j][i] = 0;
            }
          }
        }
      }
#pragma unroll
      for (int step = 0; step < key_tile / 16; ++step) {
        std::uint32_t probability[4];
        pack_left<T>(score, step, probability);
        multiply_columns<d>(probability, values, step, sum);
      }
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
      if (largest != minus_infinity) {
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

/// dq = scale sum over keys of dscore k.
template <class T, int d>
__global__ void __launch_bounds__(query_threads, 1)
    flash_query_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<T> dq,
                                AllHeads<float> joined) {
  constexpr int columns = 32;  // keys at a time, for the sake of registers
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const QueryPlace place(problem);
  const std::int64_t sample = place.sample, kv_head = place.head / (problem.heads / problem.kv_heads);
  const std::uint64_t head_key = problem.dropout.head_key(problem.first_head + place.head);
  const Rows<const T> all_keys = in.k.at(sample, kv_head), all_values = in.v.at(sample, kv_head);
  const int first = place.begin + warp * warp_rows;
  const int sure = visible_keys(problem, first), last = visible_keys(problem, first + warp_rows - 1);
  const int seen[2] = {visible_keys(problem, first + lane / 4), visible_keys(problem, first + lane / 4 + 8)};
  const int tiles = static_cast<int>(tiles_of(visible_keys(problem, place.begin + query_rows - 1), key_tile));
  const float scale = static_cast<float>(problem.scale) * log2_e;
  const std::int64_t statistics = (sample * problem.heads + place.head) * problem.queries;
  float lse[2], row_dot[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + lane / 4 + 8 * half;
    const bool there = query < problem.queries;
    lse[half] = there ? in.log_sum_exp[statistics + query] * log2_e : 0;
    row_dot[half] = there ? in.row_dot[statistics + query] : 0;
  }
  T* stages = gpu::dynamic_shared<T>();

  copy_tile<d, query_rows, query_threads>(in.q.at(sample, place.head), place.begin, problem.queries, stages);
  copy_tile<d, query_rows, query_threads>(in.dout.at(sample, place.head), place.begin, problem.queries,
                                          stages + key_stage<d>);
  gpu::commit_copies();
  gpu::wait_for_copies<0>();
  __syncthreads();
  std::uint32_t queries[d / 16][4], gradients[d / 16][4];
  load_own_rows<d>(stages, queries);
  load_own_rows<d>(stages + key_stage<d>, gradients);
  __syncthreads();
  if (tiles > 0) copy_keys<d>(all_keys, all_values, 0, problem.keys, stages);
  gpu::commit_copies();

  float sum[d / 8][4]{};
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) copy_keys<d>(all_keys, all_values, tile + 1, problem.keys, stages);
    gpu::commit_copies();
    gpu::wait_for_copies<1>();
    __syncthreads();
    for (int begin = tile * key_tile; begin < (tile + 1) * key_tile && begin < last; begin += columns) {
      const T* keys = stages + tile % 2 * key_stage<d> + begin % key_tile * row_stride<d>;
      const T* values = keys + key_tile * row_stride<d>;
      float score[columns / 8][4]{}, dprobability[columns / 8][4]{};
#pragma unroll
      for (int step = 0; step < d / 16; ++step) {
        multiply_rows<d>(queries[step], keys, step, score);
        multiply_rows<d>(gradients[step], values, step, dprobability);
      }
      if (problem.dropout.enabled()) {
        unsigned kept[4];
        draw_rows(problem.dropout, head_key, problem.dropout.samples[sample], problem.first_query + first,
                  (problem.first_key + begin) / 8, kept);
#pragma unroll
        for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            dprobability[j][i] = (kept[j] >> i & 1U) == 0 ? 0 : dprobability[j][i] * problem.dropout.scale;
          }
        }
      }
      const bool whole = begin + columns <= sure;
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool sees = whole || begin + 8 * j + 2 * (lane % 4) + i % 2 < seen[i / 2];
          const float probability = gpu::fast_exp2(score[j][i] * scale - lse[i / 2]);
          score[j][i] = sees ? probability * (dprobability[j][i] - row_dot[i / 2]) : 0;
        }
      }
#pragma unroll
      for (int step = 0; step < columns / 16; ++step) {
        std::uint32_t dscore[4];
        pack_left<T>(score, step, dscore);
        multiply_columns<d>(dscore, keys, step, sum);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < d / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j][i] *= static_cast<float>(problem.scale);
  }
  if (problem.results == AttentionResults::merge)
    join_sums<d>(sum, {1, 1}, first, problem.queries, joined.at(sample, place.head));
  else
    store_sums<d>(sum, first, problem.queries, stages + warp * warp_rows * row_stride<d>, dq.at(sample, place.head));
}

/// Of a tile's queries.
struct TileStatistics {
  float lse[query_tile], row_dot[query_tile];
};

/// dk = scale sum over queries of dscore q, dv = sum over queries of the dropped probability dout, over the query heads
/// that share the keys.
template <class T, int d>
__global__ void __launch_bounds__(key_threads, d == 64 ? 3 : 2)
    flash_key_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<T> dk, AllHeads<T> dv,
                              AllHeads<float> joined_k, AllHeads<float> joined_v) {
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const std::int64_t key_blocks = tiles_of(problem.keys, key_rows);
  const std::int64_t sample = blockIdx.x / key_blocks / problem.kv_heads;
  const std::int64_t kv_head = blockIdx.x / key_blocks % problem.kv_heads;
  const int block_begin = static_cast<int>(blockIdx.x % key_blocks) * key_rows, first = block_begin + warp * warp_rows;
  const std::int64_t group = problem.heads / problem.kv_heads;
  // Query i sees the keys up to i + between.
  const int between = static_cast<int>(places_between(problem));
  const int first_query = problem.causal && block_begin > between ? block_begin - between : 0;
  const int first_tile = first_query / query_tile;
  const int all_tiles = static_cast<int>(tiles_of(problem.queries, query_tile));
  const int tiles = first_tile < all_tiles ? all_tiles - first_tile : 0, count = static_cast<int>(group) * tiles;
  const float scale = static_cast<float>(problem.scale) * log2_e;
  T* own_k = gpu::dynamic_shared<T>();
  T* own_v = own_k + key_rows * row_stride<d>;
  T* stages = own_v + key_rows * row_stride<d>;
  auto* statistics = reinterpret_cast<TileStatistics*>(stages + 2 * query_stage<d>);
  const T* warp_k = own_k + warp * warp_rows * row_stride<d>;
  const T* warp_v = own_v + warp * warp_rows * row_stride<d>;

  const auto copy_queries = [&](int i) {
    const std::int64_t head = kv_head * group + i / tiles;
    const int begin = (first_tile + i % tiles) * query_tile;
    T* to = stages + i % 2 * query_stage<d>;
    copy_tile<d, query_tile, key_threads>(in.q.at(sample, head), begin, problem.queries, to);
    copy_tile<d, query_tile, key_threads>(in.dout.at(sample, head), begin, problem.queries,
                                          to + query_tile * row_stride<d>);
    if (threadIdx.x < query_tile) {
      const int query = begin + static_cast<int>(threadIdx.x);
      const std::int64_t at = (sample * problem.heads + head) * problem.queries + query;
      const bool there = query < problem.queries;
      statistics[i % 2].lse[threadIdx.x] = there ? in.log_sum_exp[at] * log2_e : -minus_infinity;
      statistics[i % 2].row_dot[threadIdx.x] = there ? in.row_dot[at] : 0;
    }
  };

  float sum_k[d / 8][4]{}, sum_v[d / 8][4]{};
  if (count > 0) {
    copy_tile<d, key_rows, key_threads>(in.k.at(sample, kv_head), block_begin, problem.keys, own_k);
    copy_tile<d, key_rows, key_threads>(in.v.at(sample, kv_head), block_begin, problem.keys, own_v);
    copy_queries(0);
    gpu::commit_copies();
  }
  for (int index = 0; index < count; ++index) {
    if (index + 1 < count) copy_queries(index + 1);
    gpu::commit_copies();
    gpu::wait_for_copies<1>();
    __syncthreads();
    const int begin = (first_tile + index % tiles) * query_tile;
    if (!problem.causal || begin + query_tile - 1 + between >= first) {
      const T* queries = stages + index % 2 * query_stage<d>;
      const T* gradients = queries + query_tile * row_stride<d>;
      const TileStatistics& of = statistics[index % 2];
      float score[query_tile / 8][4]{}, probability[query_tile / 8][4]{};
#pragma unroll
      for (int step = 0; step < d / 16; ++step) {
        std::uint32_t own[4];
        load_left<d>(warp_k, step, own);
        multiply_rows<d>(own, queries, step, score);
        load_left<d>(warp_v, step, own);
        multiply_rows<d>(own, gradients, step, probability);
      }
      unsigned kept[4] = {15, 15, 15, 15};
      if (problem.dropout.enabled()) {
        const std::int64_t head = kv_head * group + index / tiles;
        draw_columns(problem.dropout, problem.dropout.head_key(problem.first_head + head),
                     problem.dropout.samples[sample], problem.first_query + begin, (problem.first_key + first) / 8,
                     kept);
      }
      const bool whole = !problem.causal || begin + between >= first + warp_rows - 1;
#pragma unroll
      for (int j = 0; j < query_tile / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = 8 * j + 2 * (lane % 4) + i % 2, key = first + lane / 4 + 8 * (i / 2);
          const bool sees = whole || key <= begin + column + between, keep = (kept[j] >> i & 1U) != 0;
          const float p = sees ? gpu::fast_exp2(score[j][i] * scale - of.lse[column]) : 0;
          const float gradient = keep ? probability[j][i] * problem.dropout.scale : 0;
          score[j][i] = p * (gradient - of.row_dot[column]);
          probability[j][i] = keep ? p : 0;
        }
      }
#pragma unroll
      for (int step = 0; step < query_tile / 16; ++step) {
        std::uint32_t own[4];
        pack_left<T>(probability, step, own);
        multiply_columns<d>(own, gradients, step, sum_v);
        pack_left<T>(score, step, own);
        multiply_columns<d>(own, queries, step, sum_k);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < d / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum_k[j][i] *= static_cast<float>(problem.scale);
      sum_v[j][i] *= problem.dropout.scale;
    }
  }
  if (problem.results == AttentionResults::merge) {
    join_sums<d>(sum_k, {1, 1}, first, problem.keys, joined_k.at(sample, kv_head));
    join_sums<d>(sum_v, {1, 1}, first, problem.keys, joined_v.at(sample, kv_head));
  } else {
    store_sums<d>(sum_k, first, problem.keys, own_k + warp * warp_rows * row_stride<d>, dk.at(sample, kv_head));
    store_sums<d>(sum_v, first, problem.keys, own_v + warp * warp_rows * row_stride<d>, dv.at(sample, kv_head));
  }
}

/// Calls `function` with the type and the number of channels of a problem that takes_flash_attention.
template <class Function>
void dispatch(DType dtype, std::int64_t d, Function&& function) {
  const auto with_type = [&]<class T>() {
    if (d == 64) return function.template operator()<T, 64>();
    if (d == 96) return function.template operator()<T, 96>();
    function.template operator()<T, 128>();
  };
  if (dtype == DType::bf16)
    with_type.template operator()<bf16>();
  else
    with_type.template operator()<fp16>();
}
/// The results as those of the training type, or as sums to be joined with: one of the two.
template <class T>
AllHeads<T> written(const AttentionProblem& problem, const Heads& heads) {
  if ((problem.results == AttentionResults::merge) != std::is_same_v<T, float>) return {};
  return all_heads<T>(heads);
}

template <int d>
constexpr std::size_t query_shared_bytes = 2 * key_stage<d> * sizeof(bf16);
template <int d>
constexpr std::size_t key_shared_bytes = (2 * key_rows * row_stride<d> + 2 * query_stage<d>)*sizeof(bf16) +
                                         2 * sizeof(TileStatistics);

}  // namespace

bool takes_flash_attention(const AttentionProblem& problem, std::initializer_list<ConstHeads> tensors) {
  const auto aligned = [](std::int64_t elements, DType dtype) {
    return elements * static_cast<std::int64_t>(size_of(dtype)) % 16 == 0;
  };
  for (const ConstHeads& heads : tensors) {
    const DType dtype = heads.data.dtype();
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

void flash_attention_backward(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                              const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                              ConstTensorView log_sum_exp, ConstTensorView row_dot, const Heads& dq, const Heads& dk,
                              const Heads& dv) {
  dispatch(q.data.dtype(), problem.head_dim, [&]<class T, int d>() {
    const BackwardInputs<T> in{all_heads<const T>(q),    all_heads<const T>(k),   all_heads<const T>(v),
                               all_heads<const T>(dout), log_sum_exp.as<float>(), row_dot.as<float>()};
    gpu::launch(stream,
                {"flash_query_gradient", tiles_of(problem.queries, query_rows) * problem.heads * problem.batch,
                 query_threads, query_shared_bytes<d>},
                flash_query_gradient_kernel<T, d>, problem, in, written<T>(problem, dq), written<float>(problem, dq));
    gpu::launch(stream,
                {"flash_key_gradient", tiles_of(problem.keys, key_rows) * problem.kv_heads * problem.batch, key_threads,
                 key_shared_bytes<d>},
                flash_key_gradient_kernel<T, d>, problem, in, written<T>(problem, dk), written<T>(problem, dv),
                written<float>(problem, dk), written<float>(problem, dv));
  });
}

}  // namespace trireme::cuda

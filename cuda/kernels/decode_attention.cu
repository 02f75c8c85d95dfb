// Attention of one query of each sample, as in text generation, where memory bounds it.
#include <algorithm>
#include <limits>

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/flash_blocks.cuh"

namespace trireme::cuda {
namespace {

// Splits of the keys are separate blocks, whose results a second kernel joins (Dao et al. 2023, "Flash-Decoding"). A
// split begins at a multiple of split_keys whatever the samples' lengths and the GPU, so results do not depend on other
// samples. A block reads its keys and values once, for up to eight of the query heads that share them. A key is a
// row of lanes, each with eight channels. Streams of keys have a softmax each, so that no thread waits for another
// before the end.
constexpr int decode_threads = 128, split_keys = 128, max_block_heads = 8;

/// Rows that a lane has in flight. Products for several heads leave fewer registers.
template <class T, int heads>
constexpr int rows_ahead = sizeof(T) > 4 ? 1 : static_cast<int>((heads == 1 ? 8 : 4) / sizeof(T));

/// Weighted sum over some keys, relative to the largest of their scores, by one lane for its eight channels.
template <class A>
struct WeightedSum {
  static constexpr A infinity = std::numeric_limits<A>::infinity();
  A maximum, total, sum[8];

  __device__ static WeightedSum none() { return {-infinity, 0, {}}; }
  /// Makes the sums relative to `score` if it is larger than all before. Returns what to subtract from scores.
  __device__ A raise(A score) {
    const A largest = Maximum<A>{}(maximum, score), subtracted = largest == -infinity ? A{0} : largest;
    const A rescale = std::exp(maximum - subtracted);
    maximum = largest;
    total *= rescale;
    for (A& x : sum) x *= rescale;
    return subtracted;
  }
  /// Adds `weight` times the sums over other keys.
  __device__ void add(A weight, A of_total, const A (&of_sum)[8]) {
    total += weight * of_total;
    for (int c = 0; c < 8; ++c) sum[c] += weight * of_sum[c];
  }
  __device__ void join(const WeightedSum& other) {
    const A subtracted = raise(other.maximum);
    add(std::exp(other.maximum - subtracted), other.total, other.sum);
  }
};

template <class A, int heads>
constexpr std::size_t decode_shared_bytes = heads* decode_threads * sizeof(WeightedSum<A>);

/// Calls finish(head, sum) for each of `count` heads, with the block's streams joined in order; each lane for its
/// channels.
template <int lanes, int heads, class A, class Finish>
__device__ void join_streams(const WeightedSum<A> (&own)[heads], int count, Finish&& finish) {
  constexpr int streams = decode_threads / lanes;
  const int lane = threadIdx.x % lanes;
  WeightedSum<A>* all = gpu::dynamic_shared<WeightedSum<A>>();
  for (int head = 0; head < heads; ++head) all[head * decode_threads + threadIdx.x] = own[head];
  __syncthreads();
  for (int head = threadIdx.x / lanes; head < count; head += streams) {
    const WeightedSum<A>* of_head = all + head * decode_threads + lane;
    WeightedSum<A> joined = of_head[0];
    for (int stream = 1; stream < streams; ++stream) joined.join(of_head[stream * lanes]);
    finish(head, joined);
  }
}

/// Keys that the query of a sample attends to.
struct DecodedKeys {
  int first, end;
  __device__ DecodedKeys(const AttentionProblem& problem, std::int64_t sample)
      : first(first_key(problem, sample, 0)),
        end(visible_keys_of_rows(problem, static_cast<int>(problem.queries_of(sample)),
                                 static_cast<int>(problem.keys_of(sample)), 0, 1)) {}
};

/// splits [batch, heads, splits, lanes] = sums over the visible keys of each split; not written if it has none.
template <class T, int lanes, int heads>
__global__ void __launch_bounds__(decode_threads)
    decode_split_kernel(AttentionProblem problem, AllHeads<const T> q, AllHeads<const T> k, AllHeads<const T> v,
                        WeightedSum<Accumulation<T>>* splits) {
  using A = Accumulation<T>;
  constexpr int streams = decode_threads / lanes, rows = rows_ahead<T, heads>;
  const int group = static_cast<int>(problem.heads / problem.kv_heads);
  const std::int64_t parts = tiles_of(group, heads), all_splits = tiles_of(problem.keys, split_keys);
  // Heads of the same positions are neighbours in memory and run together.
  const std::int64_t kv_head = blockIdx.x / parts % problem.kv_heads;
  const std::int64_t split = blockIdx.x / parts / problem.kv_heads % all_splits;
  const std::int64_t sample = blockIdx.x / parts / problem.kv_heads / all_splits;
  const int first_head = static_cast<int>(blockIdx.x % parts) * heads;
  const int count = heads == 1 || group - first_head > heads ? heads : group - first_head;
  const DecodedKeys visible(problem, sample);
  const int begin = static_cast<int>(split) * split_keys, end = std::min(visible.end, begin + split_keys);
  if (begin >= end || begin + split_keys <= visible.first) return;

  const int lane = threadIdx.x % lanes, stream = threadIdx.x / lanes;
  const std::int64_t head = kv_head * group + first_head;
  const Vec8 columns = vec8_at(lane, problem.head_dim);
  A query[heads][8]{}, slope[heads];
  WeightedSum<A> own[heads];
  int origin = 0;
#pragma unroll
  for (int h = 0; h < heads; ++h) {
    own[h] = WeightedSum<A>::none();
    if (h >= count) continue;
    const HeadBias<A> bias(problem, sample, head + h);
    slope[h] = bias.slope;
    origin = bias.origin;
    load(q.at(sample, head + h).data + columns.begin, columns.size, query[h]);
    for (A& x : query[h]) x *= static_cast<A>(problem.scale);
  }

  const Rows<const T> all_keys = k.at(sample, kv_head), all_values = v.at(sample, kv_head);
  for (int step = begin; step < end; step += rows * streams) {
    PackedVec8<T> keys[rows], values[rows];
    bool sees[rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int key = step + i * streams + stream;
      sees[i] = key >= visible.first && key < end;
      keys[i].load(all_keys.data + key * all_keys.stride + columns.begin, sees[i] ? columns.size : 0);
      values[i].load(all_values.data + key * all_values.stride + columns.begin, sees[i] ? columns.size : 0);
    }
    A score[heads][rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int key = step + i * streams + stream;
      A x[8];
      keys[i].unpack(x);
#pragma unroll
      for (int h = 0; h < heads; ++h) {
        if (h >= count) continue;
        A product = 0;
        for (int c = 0; c < 8; ++c) product += query[h][c] * x[c];
        product = capped(problem, warp_combine<Plus<A>, lanes>(product)) + slope[h] * static_cast<A>(key - origin);
        score[h][i] = sees[i] ? product : -WeightedSum<A>::infinity;
      }
    }
#pragma unroll
    for (int h = 0; h < heads; ++h) {
      if (h >= count) continue;
      A largest = score[h][0];
      for (int i = 1; i < rows; ++i) largest = Maximum<A>{}(largest, score[h][i]);
      const A subtracted = own[h].raise(largest);
      for (int i = 0; i < rows; ++i) score[h][i] = std::exp(score[h][i] - subtracted);
    }
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      A x[8];
      values[i].unpack(x);
#pragma unroll
      for (int h = 0; h < heads; ++h) {
        if (h < count) own[h].add(score[h][i], 1, x);
      }
    }
  }
  join_streams<lanes>(own, count, [&](int h, const WeightedSum<A>& sum) {
    splits[((sample * problem.heads + head + h) * all_splits + split) * lanes + lane] = sum;
  });
}

/// Joins the splits of each head; a block per head.
template <class T, int lanes>
__global__ void __launch_bounds__(decode_threads)
    join_splits_kernel(AttentionProblem problem, const WeightedSum<Accumulation<T>>* splits, AllHeads<T> out,
                       Accumulation<T>* log_sum_exp) {
  using A = Accumulation<T>;
  constexpr int streams = decode_threads / lanes;
  const std::int64_t sample = blockIdx.x / problem.heads, head = blockIdx.x % problem.heads;
  const int lane = threadIdx.x % lanes;
  const DecodedKeys visible(problem, sample);
  const WeightedSum<A>* of_head = splits + blockIdx.x * tiles_of(problem.keys, split_keys) * lanes + lane;
  WeightedSum<A> own[1] = {WeightedSum<A>::none()};
  for (int split = visible.first / split_keys + static_cast<int>(threadIdx.x) / lanes; split * split_keys < visible.end;
       split += streams) {
    own[0].join(of_head[split * lanes]);
  }
  join_streams<lanes>(own, 1, [&](int, WeightedSum<A>& joined) {
    const A factor = joined.total == 0 ? A{0} : 1 / joined.total;
    const Vec8 columns = vec8_at(lane, problem.head_dim);
    for (A& x : joined.sum) x *= factor;
    store(joined.sum, columns.size, out.at(sample, head).data + columns.begin);
    if (lane == 0) log_sum_exp[blockIdx.x] = joined.maximum + std::log(joined.total);
  });
}

/// Calls `function` with the lanes that hold a row.
template <class Function>
void dispatch_lanes(std::int64_t head_dim, Function&& function) {
  if (head_dim <= 64) return function.template operator()<8>();
  if (head_dim <= 128) return function.template operator()<16>();
  function.template operator()<32>();
}

}  // namespace

bool has_decode_attention(const AttentionProblem& problem) {
  return problem.is_decoding() && problem.head_dim <= 8 * warp_threads;
}

void decode_attention(Stream& stream, const Scratch& new_scratch, const AttentionProblem& problem, const ConstHeads& q,
                      const ConstHeads& k, const ConstHeads& v, const Heads& out, TensorView log_sum_exp) {
  const std::int64_t group = problem.heads / problem.kv_heads, splits = tiles_of(problem.keys, split_keys);
  dispatch_gpu(q.data.dtype(), [&]<class T>() {
    using A = Accumulation<T>;
    dispatch_lanes(problem.head_dim, [&]<int lanes>() {
      const std::int64_t sums = problem.batch * problem.heads * splits * lanes;
      const Buffer scratch = new_scratch(stream, static_cast<std::size_t>(sums) * sizeof(WeightedSum<A>));
      auto* of_splits = reinterpret_cast<WeightedSum<A>*>(scratch.data());
      const auto attend = [&]<int heads>() {
        gpu::launch(stream,
                    {"decode_split", problem.batch * splits * problem.kv_heads * tiles_of(group, heads), decode_threads,
                     decode_shared_bytes<A, heads>},
                    decode_split_kernel<T, lanes, heads>, problem, all_heads<const T>(q), all_heads<const T>(k),
                    all_heads<const T>(v), of_splits);
      };
      if (group == 1)
        attend.template operator()<1>();
      else
        attend.template operator()<max_block_heads>();
      gpu::launch(stream, {"join_splits", problem.batch * problem.heads, decode_threads, decode_shared_bytes<A, 1>},
                  join_splits_kernel<T, lanes>, problem, of_splits, all_heads<T>(out), log_sum_exp.as<A>());
    });
  });
}

}  // namespace trireme::cuda

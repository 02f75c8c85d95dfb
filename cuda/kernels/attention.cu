#include "src/backend/kernels/attention.hpp"

#include <limits>
#include <utility>

#include "cuda/kernels/attention_tiles.cuh"
#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "src/backend/kernels/shape_checks.hpp"
#include "src/backend/kernels/warp_groups.hpp"

namespace trireme::cuda {
namespace {

template <class T, class R>
__global__ void __launch_bounds__(attention_threads)
    attention_kernel(AttentionProblem problem, AllHeads<const T> q, AllHeads<const T> k, AllHeads<const T> v,
                     AllHeads<R> out, Accumulation<T>* log_sum_exp) {
  using A = Accumulation<T>;
  constexpr A infinity = std::numeric_limits<A>::infinity();
  const int d = static_cast<int>(problem.head_dim), stride = d + 1;  // odd: no two lanes in one bank
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const BlockCoordinates block(problem.queries, problem.heads);
  const std::int64_t sample = block.sample, kv_head = block.head / (problem.heads / problem.kv_heads);
  const Extent extent(problem, sample);
  const std::int64_t keys = visible_keys(problem, extent, block);
  const std::uint64_t head_key = problem.dropout.head_key(problem.first_head + block.head);
  const HeadBias<A> bias(problem, sample, block.head);
  A* own_q = gpu::dynamic_shared<A>();
  A* own_sum = own_q + rows_of_block * d;
  A* tile_k = own_sum + rows_of_block * d;
  A* tile_v = tile_k + tile_rows * stride;
  A* score = tile_v + tile_rows * stride + warp * weights_of_warp;
  A* weight = score + attention_warps * weights_of_warp;
  load_rows(q.at(sample, block.head), block.begin, rows_of_block, extent.queries, d, d, static_cast<A>(problem.scale),
            own_q);
  for (int i = threadIdx.x; i < rows_of_block * d; i += attention_threads) own_sum[i] = 0;
  const Rows<R> result = out.at(sample, block.head);
  const bool merge = problem.results == AttentionResults::merge;
  A maximum[rows_of_warp], total[rows_of_warp];
  for (int row = 0; row < rows_of_warp; ++row) {
    maximum[row] = -infinity;
    total[row] = 0;
  }
  for (std::int64_t begin = first_tile(problem, extent, block); begin < keys; begin += tile_rows) {
    __syncthreads();
    load_rows(k.at(sample, kv_head), begin, tile_rows, keys, d, stride, A{1}, tile_k);
    load_rows(v.at(sample, kv_head), begin, tile_rows, keys, d, stride, A{1}, tile_v);
    __syncthreads();
    const std::int64_t key = begin + lane;
    for (int row = 0; row < rows_of_warp; ++row) {
      const int own = warp * rows_of_warp + row;
      const std::int64_t query = block.begin + own;
      score[row * warp_threads + lane] =
          sees(problem, extent, query, key)
              ? capped(problem, dot(own_q + own * d, tile_k + lane * stride, d)) + bias(query, key)
              : -infinity;
    }
    __syncwarp();
    A rescale[rows_of_warp];
    for (int row = 0; row < rows_of_warp; ++row) {
      const std::int64_t query = block.begin + warp * rows_of_warp + row;
      A max_score = maximum[row];
      for (int j = 0; j < tile_rows; ++j) max_score = Maximum<A>{}(max_score, score[row * warp_threads + j]);
      rescale[row] = max_score == maximum[row] ? A{1} : std::exp(maximum[row] - max_score);
      maximum[row] = max_score;
      A probability = 0;
      if (sees(problem, extent, query, key)) probability = std::exp(score[row * warp_threads + lane] - max_score);
      total[row] = total[row] * rescale[row] + probability;
      if (problem.dropout.enabled() && sees(problem, extent, query, key)) {
        probability *= dropout_factor<A>(problem, head_key, sample, query, key);
      }
      weight[row * warp_threads + lane] = probability;
    }
    __syncwarp();
    for (int row = 0; row < rows_of_warp; ++row) {
      add_weighted_rows(weight + row * warp_threads, tile_v, d, stride, rescale[row],
                        own_sum + (warp * rows_of_warp + row) * d);
    }
  }
  __syncthreads();
  for (int row = 0; row < rows_of_warp; ++row) {
    const int own = warp * rows_of_warp + row;
    const std::int64_t query = block.begin + own;
    const A sum = warp_sum(total[row]);  // each lane has summed its own keys
    A lse = maximum[row] + std::log(sum), factor = sum == 0 ? A{0} : 1 / sum, kept = 0;
    A* statistic = log_sum_exp + (sample * problem.heads + block.head) * problem.queries + query;
    if (merge && query < problem.queries) {
      const A before = *statistic, max_lse = Maximum<A>{}(before, lse);
      if (before != -infinity || lse != -infinity) {
        const A joined = max_lse + std::log(std::exp(before - max_lse) + std::exp(lse - max_lse));
        kept = std::exp(before - joined);
        factor *= std::exp(lse - joined);
        lse = joined;
      }
    }
    __syncwarp();  // all lanes have read the statistic
    if (lane == 0 && query < problem.queries) *statistic = lse;
    for (int c = lane; c < d; c += warp_threads) {
      own_sum[own * d + c] *= factor;
      if (kept != 0) own_sum[own * d + c] += kept * gpu::widen(result.data[query * result.stride + c]);
    }
  }
  __syncthreads();
  store_rows(own_sum, block.begin, problem.queries, d, result, false);
}

/// Lanes that share a row of row_dot: 128 channels.
constexpr int row_dot_lanes = 16, row_dot_rows = attention_threads / row_dot_lanes;

/// row_dot = sum of dout out over channels; 0 for padding, which is not read.
template <class T>
__global__ void __launch_bounds__(attention_threads)
    row_dot_kernel(AttentionProblem problem, AllHeads<const T> dout, AllHeads<const T> out, Accumulation<T>* row_dot) {
  using A = Accumulation<T>;
  // Lanes beyond the last row repeat it: the full warp takes part in the sum.
  const std::int64_t rows = problem.batch * problem.heads * problem.queries, own = global_thread() / row_dot_lanes;
  const std::int64_t row = own < rows ? own : rows - 1;
  const std::int64_t query = row % problem.queries, head = row / problem.queries % problem.heads;
  const std::int64_t sample = row / problem.queries / problem.heads;
  const Rows<const T> x = dout.at(sample, head), y = out.at(sample, head);
  const std::int64_t vec8s = query < problem.queries_of(sample) ? vec8s_of(problem.head_dim) : 0;
  A sum = 0;
  for (std::int64_t vec8 = threadIdx.x % row_dot_lanes; vec8 < vec8s; vec8 += row_dot_lanes) {
    const Vec8 columns = vec8_at(vec8, problem.head_dim);
    PackedVec8<T> of_x, of_y;
    of_x.load(x.data + query * x.stride + columns.begin, columns.size);
    of_y.load(y.data + query * y.stride + columns.begin, columns.size);
    A a[8], b[8];
    of_x.unpack(a);
    of_y.unpack(b);
    for (int c = 0; c < 8; ++c) sum += a[c] * b[c];
  }
  sum = warp_combine<Plus<A>, row_dot_lanes>(sum);
  if (own == row && threadIdx.x % row_dot_lanes == 0) row_dot[row] = sum;
}

/// Values for one query and one key: `probability` with dropout, and the gradient of the scaled score before its cap
/// and bias.
template <class A>
struct ScoreGradient {
  A probability = 0;
  A score = 0;
};
template <class A>
__device__ ScoreGradient<A> score_gradient(const AttentionProblem& problem, std::uint64_t head_key, std::int64_t sample,
                                           std::int64_t query, std::int64_t key, A score, A bias, A dprobability, A lse,
                                           A row_dot) {
  const A cap = static_cast<A>(problem.soft_cap), share = cap > 0 ? std::tanh(score / cap) : A{0};
  const A probability = std::exp((cap > 0 ? cap * share : score) + bias - lse);
  const A factor = problem.dropout.enabled() ? dropout_factor<A>(problem, head_key, sample, query, key) : A{1};
  return {probability * factor, probability * (dprobability * factor - row_dot) * (1 - share * share)};
}

/// dq = scale sum over keys of dscore k.
template <class T, class R>
__global__ void __launch_bounds__(attention_threads)
    query_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<R> dq) {
  using A = Accumulation<T>;
  const int d = static_cast<int>(problem.head_dim), stride = d + 1;
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const BlockCoordinates block(problem.queries, problem.heads);
  const std::int64_t sample = block.sample, kv_head = block.head / (problem.heads / problem.kv_heads);
  const Extent extent(problem, sample);
  const std::int64_t keys = visible_keys(problem, extent, block);
  const std::int64_t statistics = (sample * problem.heads + block.head) * problem.queries;
  const std::uint64_t head_key = problem.dropout.head_key(problem.first_head + block.head);
  const HeadBias<A> bias(problem, sample, block.head);
  const A scale = static_cast<A>(problem.scale);
  A* own_q = gpu::dynamic_shared<A>();
  A* own_dout = own_q + rows_of_block * d;
  A* own_sum = own_dout + rows_of_block * d;
  A* tile_k = own_sum + rows_of_block * d;
  A* tile_v = tile_k + tile_rows * stride;
  A* weight = tile_v + tile_rows * stride + warp * weights_of_warp;
  load_rows(in.q.at(sample, block.head), block.begin, rows_of_block, extent.queries, d, d, scale, own_q);
  load_rows(in.dout.at(sample, block.head), block.begin, rows_of_block, extent.queries, d, d, A{1}, own_dout);
  for (int i = threadIdx.x; i < rows_of_block * d; i += attention_threads) own_sum[i] = 0;
  for (std::int64_t begin = first_tile(problem, extent, block); begin < keys; begin += tile_rows) {
    __syncthreads();
    load_rows(in.k.at(sample, kv_head), begin, tile_rows, keys, d, stride, A{1}, tile_k);
    load_rows(in.v.at(sample, kv_head), begin, tile_rows, keys, d, stride, A{1}, tile_v);
    __syncthreads();
    const std::int64_t key = begin + lane;
    for (int row = 0; row < rows_of_warp; ++row) {
      const int own = warp * rows_of_warp + row;
      const std::int64_t query = block.begin + own;
      ScoreGradient<A> gradient;
      if (sees(problem, extent, query, key)) {
        gradient =
            score_gradient(problem, head_key, sample, query, key, dot(own_q + own * d, tile_k + lane * stride, d),
                           bias(query, key), dot(own_dout + own * d, tile_v + lane * stride, d),
                           in.log_sum_exp[statistics + query], in.row_dot[statistics + query]);
      }
      weight[row * warp_threads + lane] = gradient.score * scale;
    }
    __syncwarp();
    for (int row = 0; row < rows_of_warp; ++row) {
      add_weighted_rows(weight + row * warp_threads, tile_k, d, stride, A{1},
                        own_sum + (warp * rows_of_warp + row) * d);
    }
  }
  __syncthreads();
  store_rows(own_sum, block.begin, problem.queries, d, dq.at(sample, block.head),
             problem.results == AttentionResults::merge);
}

/// dk = scale sum over queries of dscore q, dv = sum over queries of the dropped probability dout, over the query heads
/// that share the keys.
template <class T, class R>
__global__ void __launch_bounds__(attention_threads)
    key_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<R> dk, AllHeads<R> dv) {
  using A = Accumulation<T>;
  const int d = static_cast<int>(problem.head_dim), stride = d + 1;
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  const BlockCoordinates block(problem.keys, problem.kv_heads);
  const std::int64_t sample = block.sample, heads_per_kv_head = problem.heads / problem.kv_heads;
  const Extent extent(problem, sample);
  A* own_k = gpu::dynamic_shared<A>();
  A* own_v = own_k + rows_of_block * d;
  A* sum_k = own_v + rows_of_block * d;
  A* sum_v = sum_k + rows_of_block * d;
  A* tile_q = sum_v + rows_of_block * d;
  A* tile_dout = tile_q + tile_rows * stride;
  A* score_weight = tile_dout + tile_rows * stride + warp * weights_of_warp;
  A* probability_weight = score_weight + attention_warps * weights_of_warp;
  A* tile_lse = tile_dout + tile_rows * stride + 2 * attention_warps * weights_of_warp;
  A* tile_dot = tile_lse + tile_rows;
  load_rows(in.k.at(sample, block.head), block.begin, rows_of_block, extent.keys, d, d, A{1}, own_k);
  load_rows(in.v.at(sample, block.head), block.begin, rows_of_block, extent.keys, d, d, A{1}, own_v);
  for (int i = threadIdx.x; i < rows_of_block * d; i += attention_threads) sum_k[i] = sum_v[i] = 0;
  // First query that attends to the first of the keys; there is none if all keys are padding.
  const std::int64_t first = problem.causal ? block.begin - positions_between(problem) : 0;
  const std::int64_t from = block.begin >= extent.keys ? extent.queries : first > 0 ? first / tile_rows * tile_rows : 0;
  for (std::int64_t head = block.head * heads_per_kv_head; head < (block.head + 1) * heads_per_kv_head; ++head) {
    const std::uint64_t head_key = problem.dropout.head_key(problem.first_head + head);
    const HeadBias<A> bias(problem, sample, head);
    const std::int64_t statistics = (sample * problem.heads + head) * problem.queries;
    for (std::int64_t begin = from; begin < extent.queries; begin += tile_rows) {
      if (problem.first_key_of(sample, begin) >= block.begin + rows_of_block) break;  // and so for the queries after it
      __syncthreads();
      load_rows(in.q.at(sample, head), begin, tile_rows, extent.queries, d, stride, static_cast<A>(problem.scale),
                tile_q);
      load_rows(in.dout.at(sample, head), begin, tile_rows, extent.queries, d, stride, A{1}, tile_dout);
      if (threadIdx.x < tile_rows && begin + threadIdx.x < extent.queries) {
        tile_lse[threadIdx.x] = in.log_sum_exp[statistics + begin + threadIdx.x];
        tile_dot[threadIdx.x] = in.row_dot[statistics + begin + threadIdx.x];
      }
      __syncthreads();
      const std::int64_t query = begin + lane;
      for (int row = 0; row < rows_of_warp; ++row) {
        const int own = warp * rows_of_warp + row;
        const std::int64_t key = block.begin + own;
        ScoreGradient<A> gradient;
        if (sees(problem, extent, query, key)) {
          gradient = score_gradient(problem, head_key, sample, query, key,
                                    dot(own_k + own * d, tile_q + lane * stride, d), bias(query, key),
                                    dot(own_v + own * d, tile_dout + lane * stride, d), tile_lse[lane], tile_dot[lane]);
        }
        score_weight[row * warp_threads + lane] = gradient.score;
        probability_weight[row * warp_threads + lane] = gradient.probability;
      }
      __syncwarp();
      for (int row = 0; row < rows_of_warp; ++row) {
        const int own = warp * rows_of_warp + row;
        add_weighted_rows(score_weight + row * warp_threads, tile_q, d, stride, A{1}, sum_k + own * d);
        add_weighted_rows(probability_weight + row * warp_threads, tile_dout, d, stride, A{1}, sum_v + own * d);
      }
    }
  }
  __syncthreads();
  store_rows(sum_k, block.begin, problem.keys, d, dk.at(sample, block.head),
             problem.results == AttentionResults::merge);
  store_rows(sum_v, block.begin, problem.keys, d, dv.at(sample, block.head),
             problem.results == AttentionResults::merge);
}

/// One thread per eight channels of a head.
template <class From, class To>
__global__ void __launch_bounds__(block_threads)
    copy_heads_kernel(HeadsShape shape, AllHeads<const From> from, AllHeads<To> to) {
  const std::int64_t vec8s = vec8s_of(shape.head_dim), row = global_thread() / vec8s;
  const std::int64_t head = row % shape.heads, sample = row / shape.heads % shape.batch;
  const std::int64_t position = row / shape.heads / shape.batch;
  if (position >= shape.positions) return;
  const Vec8 columns = vec8_at(global_thread() % vec8s, shape.head_dim);
  const Rows<const From> x = from.at(sample, head);
  const Rows<To> y = to.at(sample, head);
  const std::int64_t target = position + (shape.begins == nullptr ? 0 : shape.begins[sample]);
  Accumulation<From> value[8];
  load(x.data + position * x.stride + columns.begin, columns.size, value);
  store(value, columns.size, y.data + target * y.stride + columns.begin);
}

class CudaAttention final : public AttentionKernels, public WarpGroupAttention {
 public:
  CudaAttention(Scratch scratch, std::size_t max_shared_bytes, bool warp_groups)
      : scratch_(std::move(scratch)), max_shared_bytes_(max_shared_bytes), has_warp_groups_(warp_groups) {}

  std::string check_heads(DType dtype, std::int64_t head_dim, bool soft_cap) const override {
    const bool has_flash = has_flash_attention(dtype, head_dim, soft_cap);
    if (has_flash && flash_attention_shared_bytes(head_dim) <= max_shared_bytes_) return "";
    // The gradient of keys needs the most.
    const std::int64_t numbers =
        static_cast<std::int64_t>(max_shared_bytes_ / size_of(accumulation_type(dtype))) - shared_numbers(4, 0);
    const std::int64_t max_head_dim = numbers / (shared_numbers(4, 1) - shared_numbers(4, 0));
    TRIREME_CHECK(head_dim <= max_head_dim, ConfigError,
                  "attention heads have {} channels, and those of up to {} fit into the shared memory of this GPU, {} "
                  "bytes for a block: take more heads, or <backend> cpu",
                  head_dim, max_head_dim, max_shared_bytes_);
    if (size_of(dtype) > 2) return "";
    return fmt::format(
        "attention runs without tensor cores, and steps may take ten times as long: in {} only heads of 64, 96, 128 "
        "and 192 channels use tensor cores, without a soft cap, and these have {}{}",
        name_of(dtype), head_dim, soft_cap ? " and a soft cap" : "");
  }

  bool use_warp_groups(bool use) override {
    uses_warp_groups_ = use && has_warp_groups_;
    return has_warp_groups_;
  }

  void attention(Stream& stream, const AttentionProblem& problem, ConstHeads q, ConstHeads k, ConstHeads v, Heads out,
                 TensorView log_sum_exp) override {
    check_attention("attention", problem, {q.data, k.data, v.data}, {out.data}, {log_sum_exp});
    if (has_decode_attention(problem)) return decode_attention(stream, scratch_, problem, q, k, v, out, log_sum_exp);
    if (takes_flash_attention(problem, {q, k, v, out})) {
      return (by_groups(problem) ? warp_group_attention : flash_attention)(stream, problem, q, k, v, out, log_sum_exp);
    }
    dispatch_results(q.data.dtype(), problem.results, [&]<class T, class R>() {
      using A = Accumulation<T>;
      gpu::launch(stream, tiles<A>("attention", problem, problem.queries, problem.heads, 2), attention_kernel<T, R>,
                  problem, all_heads<const T>(q), all_heads<const T>(k), all_heads<const T>(v), all_heads<R>(out),
                  log_sum_exp.as<A>());
    });
  }

  void attention_backward(Stream& stream, const AttentionProblem& problem, ConstHeads dout, ConstHeads q, ConstHeads k,
                          ConstHeads v, ConstHeads out, ConstTensorView log_sum_exp, TensorView row_dot, Heads dq,
                          Heads dk, Heads dv) override {
    check_attention("attention_backward", problem, {dout.data, q.data, k.data, v.data, out.data},
                    {dq.data, dk.data, dv.data}, {log_sum_exp, row_dot});
    dispatch_results(q.data.dtype(), problem.results, [&]<class T, class R>() {
      using A = Accumulation<T>;
      const std::int64_t rows = problem.batch * problem.heads * problem.queries;
      gpu::launch(stream, {"row_dot", (rows + row_dot_rows - 1) / row_dot_rows, attention_threads}, row_dot_kernel<T>,
                  problem, all_heads<const T>(dout), all_heads<const T>(out), row_dot.as<A>());
      if (takes_flash_attention(problem, {q, k, v, dout, dq, dk, dv})) {
        Buffer memory;
        if (const std::int64_t bytes = kept_mask_bytes(problem); bytes > 0) {
          memory = scratch_(stream, static_cast<std::size_t>(bytes));
        }
        auto* masks = reinterpret_cast<std::uint32_t*>(memory.data());
        if (!by_groups(problem)) {
          return flash_attention_backward(stream, problem, dout, q, k, v, log_sum_exp, row_dot, dq, dk, dv, masks);
        }
        warp_group_query_gradient(stream, problem, dout, q, k, v, log_sum_exp, row_dot, dq, masks);
        return warp_group_key_gradient(stream, problem, dout, q, k, v, log_sum_exp, row_dot, dk, dv, masks);
      }
      const BackwardInputs<T> in{all_heads<const T>(q),
                                 all_heads<const T>(k),
                                 all_heads<const T>(v),
                                 all_heads<const T>(dout),
                                 log_sum_exp.as<A>(),
                                 row_dot.as<A>(),
                                 nullptr};
      gpu::launch(stream, tiles<A>("query_gradient", problem, problem.queries, problem.heads, 3),
                  query_gradient_kernel<T, R>, problem, in, all_heads<R>(dq));
      gpu::launch(stream, tiles<A>("key_gradient", problem, problem.keys, problem.kv_heads, 4),
                  key_gradient_kernel<T, R>, problem, in, all_heads<R>(dk), all_heads<R>(dv));
    });
  }

  void copy_heads(Stream& stream, const HeadsShape& shape, ConstHeads from, Heads to) override {
    check_copy_heads(from, to);
    const std::int64_t vec8s = shape.positions * shape.batch * shape.heads * vec8s_of(shape.head_dim);
    dispatch_gpu(from.data.dtype(), [&]<class From>() {
      dispatch_gpu(to.data.dtype(), [&]<class To>() {
        // No copies between the two 16-bit types: see check_copy_heads.
        if constexpr (std::is_same_v<From, To> || std::is_same_v<From, Accumulation<To>> ||
                      std::is_same_v<Accumulation<From>, To>) {
          gpu::launch(stream, {"copy_heads", blocks_for(vec8s), block_threads}, copy_heads_kernel<From, To>, shape,
                      all_heads<const From>(from), all_heads<To>(to));
        }
      });
    });
  }

 private:
  bool by_groups(const AttentionProblem& problem) const {
    return uses_warp_groups_ && has_warp_group_attention(problem.head_dim);
  }
  /// Calls `function` with the training type and that of the results.
  template <class Function>
  static void dispatch_results(DType dtype, AttentionResults results, Function&& function) {
    dispatch_gpu(dtype, [&]<class T>() {
      if (results == AttentionResults::merge)
        function.template operator()<T, Accumulation<T>>();
      else
        function.template operator()<T, T>();
    });
  }
  /// Blocks for all rows of all heads, with shared memory for `own` tensors of their rows.
  template <class A>
  static gpu::Launch tiles(const char* name, const AttentionProblem& problem, std::int64_t rows, std::int64_t heads,
                           int own) {
    return {name, row_tiles(rows) * heads * problem.batch, attention_threads,
            static_cast<std::size_t>(shared_numbers(own, problem.head_dim)) * sizeof(A),
            "take more heads, of fewer channels"};
  }

  Scratch scratch_;
  std::size_t max_shared_bytes_;
  bool has_warp_groups_, uses_warp_groups_ = false;
};

}  // namespace

std::unique_ptr<AttentionKernels> make_attention(Scratch scratch, std::size_t max_shared_bytes, bool warp_groups) {
  return std::make_unique<CudaAttention>(std::move(scratch), max_shared_bytes, warp_groups);
}

}  // namespace trireme::cuda

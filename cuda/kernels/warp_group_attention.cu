// Attention by products of warp groups, for compute capability 9.0.
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/flash_forward.cuh"
#include "cuda/kernels/warp_group_tiles.cuh"

namespace trireme::cuda {
namespace {

/// As many groups as their registers allow.
template <int d>
constexpr int forward_groups = d > 96 ? 2 : 3;
template <int d>
using ForwardBlock = QueryBlock<d, forward_groups<d>>;

template <class T, int d>
__global__ void __launch_bounds__(ForwardBlock<d>::threads, 1)
    warp_group_attention_kernel(AttentionProblem problem, AllHeads<const T> q, AllHeads<const T> k, AllHeads<const T> v,
                                AllHeads<T> out, AllHeads<float> joined, float* log_sum_exp) {
  using Block = ForwardBlock<d>;
  const int warp = threadIdx.x / warp_threads;
  const QueryCoordinates coordinates(problem, Block::rows);
  const std::int64_t sample = coordinates.sample;
  const int keys_of_sample = static_cast<int>(problem.keys_of(sample));
  const int queries_of_sample = static_cast<int>(problem.queries_of(sample));
  const int end = visible_keys_of_rows(problem, queries_of_sample, keys_of_sample, coordinates.begin, Block::rows);
  const int first_tile = first_key_tile(problem, sample, coordinates.begin);
  GroupStages<T, Block> stages;
  if (warp >= Block::warps) {
    gpu::give_up_registers<Block::copying_registers>();
    const std::int64_t kv_head = coordinates.head / (problem.heads / problem.kv_heads);
    return stages.template fill_keys<d>(k.at(sample, kv_head), v.at(sample, kv_head), first_tile, end);
  }

  gpu::take_registers<Block::computing_registers>();
  const HeadDropout dropout(problem, sample, coordinates.head);
  const HeadBias<float> bias = bias_before_scale(problem, sample, coordinates.head);
  const int group = coordinates.begin + warp / group_warps * group_rows, first = coordinates.begin + warp * warp_rows;
  const int sure = visible_keys(problem, keys_of_sample, first);
  const int last = visible_keys_of_rows(problem, queries_of_sample, keys_of_sample, group, group_rows);
  const float scale = static_cast<float>(problem.scale) * log2_e;
  T* own = stages.own + warp * warp_rows * row_stride<d>;
  std::uint32_t queries[d / 16][4];
  load_group_rows<d>(q.at(sample, coordinates.head), first, queries_of_sample, own, queries);

  float sum[d / 8][4]{}, maximum[2] = {minus_infinity, minus_infinity}, total[2]{};
  for (int begin = first_tile; begin < end; begin += key_tile) {
    const T* keys = stages.wait();
    // All warps of the group decide the same: their products are one.
    if (begin < last && first_key(problem, sample, group) < begin + key_tile) {
      float score[key_tile / 8][4];
      std::uint32_t probability[key_tile / 16][1][4];
      gpu::begin_products();
      multiply_group_rows<d>(queries, gpu::SharedFactor(keys), score);
      gpu::finish_products(score);
      weigh<T, d>(problem, sample, dropout, bias, scale, sure, last, first, begin, 0, score, maximum, total, sum,
                  probability);
      gpu::begin_products();
      multiply_group_columns<d>(probability, gpu::SharedFactor(keys + tile_elements<d, key_tile>), sum);
      gpu::finish_products(sum);
    }
    stages.release();
  }
  store_attention<T, d>(problem, sample, coordinates.head, first, maximum, total, sum, own, out, joined, log_sum_exp);
}

}  // namespace

void warp_group_attention(Stream& stream, const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k,
                          const ConstHeads& v, const Heads& out, TensorView log_sum_exp) {
  dispatch(q.data.dtype(), problem.head_dim, [&]<class T, int d>() {
    if constexpr (d <= 128) {
      using Block = ForwardBlock<d>;
      gpu::launch(stream,
                  {"warp_group_attention", tiles_of(problem.queries, Block::rows) * problem.heads * problem.batch,
                   Block::threads, Block::shared_bytes},
                  warp_group_attention_kernel<T, d>, problem, all_heads<const T>(q), all_heads<const T>(k),
                  all_heads<const T>(v), written<T>(problem, out), written<float>(problem, out),
                  log_sum_exp.as<float>());
    }
  });
}

}  // namespace trireme::cuda

// Gradients of attention's queries by products of warp groups, for compute capability 9.0.
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/flash_gradients.cuh"
#include "cuda/kernels/warp_group_tiles.cuh"

namespace trireme::cuda {
namespace {

template <int d>
constexpr int gradient_groups = 2;
template <int d>
using GradientBlock = QueryBlock<d, gradient_groups<d>>;

/// dq = scale sum over keys of dscore k.
template <class T, int d>
__global__ void __launch_bounds__(GradientBlock<d>::threads, 1)
    warp_group_query_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<T> dq,
                                     AllHeads<float> joined) {
  using Block = GradientBlock<d>;
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
    return stages.template fill_keys<d>(in.k.at(sample, kv_head), in.v.at(sample, kv_head), first_tile, end);
  }

  gpu::take_registers<Block::computing_registers>();
  const HeadDropout dropout(problem, sample, coordinates.head);
  const HeadMasks masks(in.masks, problem, sample, coordinates.head);
  const HeadBias<float> bias = bias_before_scale(problem, sample, coordinates.head);
  const int group = coordinates.begin + warp / group_warps * group_rows, first = coordinates.begin + warp * warp_rows;
  const int sure = visible_keys(problem, keys_of_sample, first);
  const int last = visible_keys_of_rows(problem, queries_of_sample, keys_of_sample, group, group_rows);
  const float scale = static_cast<float>(problem.scale) * log2_e;
  float lse[2], row_dot[2];
  load_statistics(in, (sample * problem.heads + coordinates.head) * problem.queries, first, queries_of_sample, lse,
                  row_dot);
  T* own = stages.own + warp * warp_rows * row_stride<d>;
  std::uint32_t queries[d / 16][4], gradients[d / 16][4];
  load_group_rows<d>(in.q.at(sample, coordinates.head), first, queries_of_sample, own, queries);
  load_group_rows<d>(in.dout.at(sample, coordinates.head), first, queries_of_sample, own, gradients);

  float sum[d / 8][4]{};
  for (int begin = first_tile; begin < end; begin += key_tile) {
    const T* keys = stages.wait();
    // All warps of the group decide the same: their products are one.
    if (begin < last && first_key(problem, sample, group) < begin + key_tile) {
      const gpu::SharedFactor key_factor(keys);
      float score[key_tile / 8][4], dprobability[key_tile / 8][4];
      gpu::begin_products();
      multiply_group_rows<d>(queries, key_factor, score);
      multiply_group_rows<d>(gradients, gpu::SharedFactor(keys + tile_elements<d, key_tile>), dprobability);
      gpu::finish_products(score, dprobability);
      std::uint32_t drawn = 0;
      if (problem.dropout.enabled()) {
        drawn = draw_rows(dropout, problem.first_query + first, (problem.first_key + begin) / 8);
        masks.store_rows(first, begin, drawn);
      }
      constexpr int tiles = gradient_columns / 8;
#pragma unroll
      for (int part = 0; part < key_tile / 8; part += tiles) {
        score_gradients(problem, sample, bias, scale, sure, keys_of_sample, first, begin + 8 * part, drawn, lse,
                        row_dot, reinterpret_cast<float(&)[tiles][4]>(score[part]),
                        reinterpret_cast<float(&)[tiles][4]>(dprobability[part]));
      }
      std::uint32_t dscore[key_tile / 16][1][4];
#pragma unroll
      for (int step = 0; step < key_tile / 16; ++step) pack_left<T>(score, step, dscore[step][0]);
      gpu::begin_products();
      multiply_group_columns<d>(dscore, key_factor, sum);
      gpu::finish_products(sum);
    }
    stages.release();
  }
  store_query_gradients<T, d>(problem, sample, coordinates.head, first, sum, own, dq, joined);
}

}  // namespace

void warp_group_query_gradient(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                               const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                               ConstTensorView log_sum_exp, ConstTensorView row_dot, const Heads& dq,
                               std::uint32_t* masks) {
  dispatch(q.data.dtype(), problem.head_dim, [&]<class T, int d>() {
    if constexpr (d <= 128) {
      using Block = GradientBlock<d>;
      const BackwardInputs<T> in{all_heads<const T>(q),
                                 all_heads<const T>(k),
                                 all_heads<const T>(v),
                                 all_heads<const T>(dout),
                                 log_sum_exp.as<float>(),
                                 row_dot.as<float>(),
                                 masks};
      gpu::launch(stream,
                  {"warp_group_query_gradient", tiles_of(problem.queries, Block::rows) * problem.heads * problem.batch,
                   Block::threads, Block::shared_bytes},
                  warp_group_query_gradient_kernel<T, d>, problem, in, written<T>(problem, dq),
                  written<float>(problem, dq));
    }
  });
}

}  // namespace trireme::cuda

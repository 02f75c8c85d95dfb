// Gradients of attention's keys and values by products of warp groups, for compute capability 9.0.
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/flash_gradients.cuh"
#include "cuda/kernels/warp_group_tiles.cuh"

namespace trireme::cuda {
namespace {

/// Queries of a tile: as many as the registers allow.
template <int d>
constexpr int group_queries = d > 96 ? 32 : 64;
template <int d>
constexpr int query_tile_elements = tile_elements<d, group_queries<d>>;
/// Its own are a tile of keys and one of values for each group. The statistics of the queries follow their tiles.
template <int d>
using KeyBlock = GroupBlock<2, d == 96 ? 2 : 4, 2 * query_tile_elements<d> + gpu::swizzle_bytes / 2,
                            4 * tile_elements<d, group_rows>>;
static_assert(sizeof(TileStatistics<64>) <= gpu::swizzle_bytes);

/// dk = scale sum over queries of dscore q, dv = sum over queries of the dropped probability dout, over the query heads
/// that share the keys.
template <class T, int d>
__global__ void __launch_bounds__(KeyBlock<d>::threads, 1)
    warp_group_key_gradient_kernel(AttentionProblem problem, BackwardInputs<T> in, AllHeads<T> dk, AllHeads<T> dv,
                                   AllHeads<float> joined_k, AllHeads<float> joined_v) {
  using Block = KeyBlock<d>;
  constexpr int tile_queries = group_queries<d>;
  using Statistics = TileStatistics<tile_queries>;
  const int warp = threadIdx.x / warp_threads;
  const std::int64_t key_blocks = tiles_of(problem.keys, Block::rows);
  const std::int64_t sample = blockIdx.x / key_blocks / problem.kv_heads;
  const std::int64_t kv_head = blockIdx.x / key_blocks % problem.kv_heads;
  const int block_begin = static_cast<int>(blockIdx.x % key_blocks) * Block::rows;
  const int heads_per_kv_head = static_cast<int>(problem.heads / problem.kv_heads);
  const int first_head = static_cast<int>(kv_head) * heads_per_kv_head;
  const int keys = static_cast<int>(problem.keys_of(sample)), queries = static_cast<int>(problem.queries_of(sample));
  // Query i attends to the keys up to i + between.
  const int between = static_cast<int>(positions_between(problem));
  const int first_query = problem.causal && block_begin > between ? block_begin - between : 0;
  const int first_tile = first_query / tile_queries;
  const int all_tiles =
      end_of_query_tiles(problem, sample, first_tile, static_cast<int>(tiles_of(queries, tile_queries)), tile_queries,
                         block_begin + Block::rows);
  const int tiles = block_begin < keys && first_tile < all_tiles ? all_tiles - first_tile : 0;
  GroupStages<T, Block> stages;
  if (warp >= Block::warps) {
    gpu::give_up_registers<Block::copying_registers>();
    return stages.fill(tiles * heads_per_kv_head, [&](int n, T* to) {
      const int head = first_head + n / tiles, begin = (first_tile + n % tiles) * tile_queries;
      copy_to_tile<d, tile_queries>(in.q.at(sample, head), begin, queries, to);
      copy_to_tile<d, tile_queries>(in.dout.at(sample, head), begin, queries, to + query_tile_elements<d>);
      load_tile_statistics(problem, in, sample, head, begin, queries, threadIdx.x % gpu::group_threads,
                           *reinterpret_cast<Statistics*>(to + 2 * query_tile_elements<d>));
    });
  }

  gpu::take_registers<Block::computing_registers>();
  const int group = block_begin + warp / group_warps * group_rows, first = block_begin + warp * warp_rows;
  const float scale = static_cast<float>(problem.scale) * log2_e;
  T* own_k = stages.own + warp / group_warps * 2 * tile_elements<d, group_rows>;
  T* own_v = own_k + tile_elements<d, group_rows>;
  float sum_k[d / 8][4]{}, sum_v[d / 8][4]{};
  if (tiles > 0) {
    copy_to_tile<d, group_rows>(in.k.at(sample, kv_head), group, keys, own_k);
    copy_to_tile<d, group_rows>(in.v.at(sample, kv_head), group, keys, own_v);
    gpu::commit_copies();
    gpu::wait_for_copies<0>();
    gpu::publish_to_products();
    gpu::arrive(*stages.group);
    gpu::wait_for_phase(*stages.group, 0);
  }
  for (int head = first_head; tiles > 0 && head < first_head + heads_per_kv_head; ++head) {
    const HeadDropout dropout(problem, sample, head);
    const HeadMasks masks(in.masks, problem, sample, head);
    for (int tile = first_tile; tile < all_tiles; ++tile) {
      const int begin = tile * tile_queries;
      const T* q_rows = stages.wait();
      const auto& of = *reinterpret_cast<const Statistics*>(q_rows + 2 * query_tile_elements<d>);
      // All warps of the group decide the same: their products are one.
      if (group < keys && (!problem.causal || begin + tile_queries - 1 + between >= group) &&
          of.first_key[0] < group + group_rows) {
        const gpu::SharedFactor q_factor(q_rows), gradients(q_rows + query_tile_elements<d>);
        float score[tile_queries / 8][4], probability[tile_queries / 8][4];
        gpu::begin_products();
        multiply_group_rows<d>(gpu::SharedFactor(static_cast<const T*>(own_k)), q_factor, score);
        multiply_group_rows<d>(gpu::SharedFactor(static_cast<const T*>(own_v)), gradients, probability);
        gpu::finish_products(score, probability);
        constexpr int part_tiles = gradient_columns / 8;
#pragma unroll
        for (int part = 0; part < tile_queries / 8; part += part_tiles) {
          key_score_gradients(problem, sample, head, dropout, masks, scale, between, first, begin + 8 * part,
                              of.at(8 * part), reinterpret_cast<float(&)[part_tiles][4]>(score[part]),
                              reinterpret_cast<float(&)[part_tiles][4]>(probability[part]));
        }
        std::uint32_t of_values[tile_queries / 16][1][4], of_keys[tile_queries / 16][1][4];
#pragma unroll
        for (int step = 0; step < tile_queries / 16; ++step) {
          pack_left<T>(probability, step, of_values[step][0]);
          pack_left<T>(score, step, of_keys[step][0]);
        }
        gpu::begin_products();
        multiply_group_columns<d>(of_values, gradients, sum_v);
        multiply_group_columns<d>(of_keys, q_factor, sum_k);
        gpu::finish_products(sum_v, sum_k);
      }
      stages.release();
    }
  }
  if (tiles > 0) {
    // The results pass through the memory of the group's keys.
    gpu::arrive(*stages.group);
    gpu::wait_for_phase(*stages.group, 1);
  }
  T* staging = own_k + warp % group_warps * warp_rows * row_stride<d>;
  store_key_gradients<T, d>(problem, sample, kv_head, first, keys, static_cast<float>(problem.scale), sum_k, staging,
                            dk, joined_k);
  store_key_gradients<T, d>(problem, sample, kv_head, first, keys, problem.dropout.scale, sum_v, staging, dv, joined_v);
}

}  // namespace

void warp_group_key_gradient(Stream& stream, const AttentionProblem& problem, const ConstHeads& dout,
                             const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, ConstTensorView log_sum_exp,
                             ConstTensorView row_dot, const Heads& dk, const Heads& dv, std::uint32_t* masks) {
  dispatch(q.data.dtype(), problem.head_dim, [&]<class T, int d>() {
    if constexpr (d <= 128) {
      using Block = KeyBlock<d>;
      const BackwardInputs<T> in{all_heads<const T>(q),
                                 all_heads<const T>(k),
                                 all_heads<const T>(v),
                                 all_heads<const T>(dout),
                                 log_sum_exp.as<float>(),
                                 row_dot.as<float>(),
                                 masks};
      gpu::launch(stream,
                  {"warp_group_key_gradient", tiles_of(problem.keys, Block::rows) * problem.kv_heads * problem.batch,
                   Block::threads, Block::shared_bytes},
                  warp_group_key_gradient_kernel<T, d>, problem, in, written<T>(problem, dk), written<T>(problem, dv),
                  written<float>(problem, dk), written<float>(problem, dv));
    }
  });
}

}  // namespace trireme::cuda

// Flash attention's draws, of many elements at once, against dropout's rule for one.
#include "cuda/kernels/flash_dropout.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "src/base/hash.hpp"
#include "tests/support/gpu/fibers.hpp"

namespace trireme::cuda {
namespace {

TEST(FlashDropout, TwoColumnsAreComparedAtOnce) {
  for (const std::uint32_t threshold : {0U, 1U, 2U, 0x7fffU, 0x8000U, 0x8001U, 0xe666U, 0xfffeU, 0xffffU}) {
    const PackedThreshold packed(threshold);
    for (std::uint32_t low = 0; low < 0x10000; ++low) {
      const std::uint32_t high = splitmix64(threshold, low) & 0xffffU, below = packed.below(low | high << 16);
      ASSERT_EQ((below >> 15 & 1) != 0, low < threshold) << low << " below " << threshold;
      ASSERT_EQ((below >> 31) != 0, high < threshold) << high << " below " << threshold;
    }
  }
}

TEST(FlashDropout, BytesArePermuted) {
  EXPECT_EQ(gpu::permute_bytes(0x33221100, 0x77665544, 0x7531), 0x77553311U);
  EXPECT_EQ(gpu::permute_bytes(0x80017f00, 0x00ff0000, 0xbe98), 0xffff0000U);
}

constexpr int queries = 32, keys = 64;
/// Draws of each query and key: whether it is kept, and the mask of its 16 bits.
struct Draws {
  std::vector<int> kept = std::vector<int>(queries * keys, -1), mask = kept;
  void set(std::int64_t query, std::int64_t key, std::uint32_t pairs, int p, int column) {
    kept[query * keys + key] = is_kept(pairs, p, column);
    mask[query * keys + key] = static_cast<int>(kept_mask(pairs, p) >> 16 * column & 0xffffU);
  }
};

/// Draws like the forward kernel and the gradient of queries, sixteen queries at a time, and stores the masks.
void draw_by_rows(AttentionProblem problem, std::uint32_t* masks, Draws* draws) {
  const HeadDropout dropout(problem, 1, 3);
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  for (int query = 0; query < queries; query += 16) {
    const std::uint32_t drawn = draw_rows(dropout, problem.first_query + query, problem.first_key / 8);
    HeadMasks(masks, problem, 1, 3).store_rows(query, 0, drawn);
    for (int half = 0; half < 2; ++half) {
      for (int j = 0; j < keys / 8; ++j) {
        const std::uint32_t pairs = pairs_of_row(drawn, j / 4, half);
        for (int i = 0; i < 2; ++i) draws->set(query + g + 8 * half, 8 * j + 2 * t + i, pairs, 4 * (j % 4), i);
      }
    }
  }
}
/// Draws like the gradient of keys, sixteen keys at a time, or reads masks that draw_by_rows stored.
void draw_by_columns(AttentionProblem problem, std::uint32_t* masks, Draws* draws) {
  const HeadDropout dropout(problem, 1, 3);
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  for (int key = 0; key < keys; key += 16) {
    const std::uint32_t pairs =
        pairs_of_columns(masks == nullptr ? draw_columns(dropout, problem.first_query, (problem.first_key + key) / 8)
                                          : HeadMasks(masks, problem, 1, 3).load_columns(0, key));
    for (int j = 0; j < queries / 8; ++j) {
      for (int i = 0; i < 4; ++i)
        draws->set(8 * j + 2 * t + i % 2, key + g + 8 * (i / 2), pairs, 4 * (i / 2) + j, i % 2);
    }
  }
}

TEST(FlashDropout, AWarpDrawsTheElementsOfTheRule) {
  const std::vector<std::int64_t> samples = {7, (std::int64_t{5} << 32) + 11};
  ImmediateStream stream;
  for (const double probability : {1e-5, 0.1, 0.25, 0.499, 0.5, 0.501, 0.9, 0.9999}) {
    for (const std::int64_t first_query : {0, 4093}) {
      const AttentionProblem problem{.queries = queries,
                                     .keys = keys,
                                     .first_query = first_query,
                                     .first_key = 8 * first_query,
                                     .batch = 2,
                                     .heads = 4,
                                     .head_dim = 64,
                                     .dropout = {probability, 1234, 3, DropoutSite::attention_scores, samples.data()},
                                     .first_head = 2};
      Draws by_rows, by_columns, by_memory;
      std::vector<std::uint32_t> masks(static_cast<std::size_t>(kept_mask_bytes(problem)) / sizeof(std::uint32_t));
      gpu::launch(stream, {"draw_by_rows", 1, 32}, draw_by_rows, problem, masks.data(), &by_rows);
      gpu::launch(stream, {"draw_by_columns", 1, 32}, draw_by_columns, problem, nullptr, &by_columns);
      gpu::launch(stream, {"draw_by_columns", 1, 32}, draw_by_columns, problem, masks.data(), &by_memory);
      const Dropout& rule = problem.dropout;
      for (int i = 0; i < queries * keys; ++i) {
        const int expected = rule.keeps(rule.head_key(problem.first_head + 3), samples[1], first_query + i / keys,
                                        problem.first_key + i % keys);
        for (const Draws* draws : {&by_rows, &by_columns, &by_memory}) {
          ASSERT_EQ(draws->kept[i], expected) << "query " << i / keys << ", key " << i % keys << ", " << probability;
          ASSERT_EQ(draws->mask[i], expected * 0xffff);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::cuda

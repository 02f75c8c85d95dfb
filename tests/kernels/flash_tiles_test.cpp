// Tiles that attention on tensor cores visits, counted by the products of warps on the host layer.
#include <gpu/mma.cuh>

#include "tests/kernels/flash_attention_case.hpp"

namespace trireme {
namespace {

using namespace test;

/// Tiles of `rows` queries and `columns` keys in which a query attends to a key.
std::int64_t visible_tiles(const std::vector<std::int32_t>& first_visible, std::int64_t rows, std::int64_t columns) {
  const std::int64_t queries = std::ssize(first_visible);
  std::int64_t count = 0;
  for (std::int64_t query = 0; query < queries; query += rows) {
    const std::int64_t first = first_visible[static_cast<std::size_t>(query)],
                       last = std::min(query + rows, queries) - 1;
    count += last / columns - first / columns + 1;
  }
  return count;
}

/// Computes attention and expects the products of the tiles that are visible from `first`. Returns their number. A tile
/// of a warp's 16 queries and 64 keys takes 64 products forward, with heads of 64 channels. One of 32 keys takes 48 for
/// the gradient of queries, and one of 16 keys and 32 queries 64 for those of keys and values.
std::int64_t expect_visible_tiles(const GivenAttention& given, const std::vector<std::int32_t>& first) {
  const std::int64_t before = gpu::host::products;
  compute(given);
  const std::int64_t products = gpu::host::products - before;
  EXPECT_EQ(products,
            64 * visible_tiles(first, 16, 64) + 48 * visible_tiles(first, 16, 32) + 64 * visible_tiles(first, 32, 16));
  return products;
}

constexpr std::int64_t s = 512;

TEST(FlashTiles, SkipOtherDocuments) {
  const auto backend = make_backend(1);
  const auto products = [&](const std::vector<std::int32_t>& documents) {
    const GivenAttention given(*backend, DType::bf16, {s, s, 1, 1, 1, 64, true, 0, {}, {documents}}, 1);
    return static_cast<double>(expect_visible_tiles(given, first_visible_of({documents}, 0, s)));
  };
  EXPECT_LT(products({40, 128, 129, 300, 420}), 0.4 * products({}));
}

TEST(FlashTiles, SkipPositionsOutsideTheWindow) {
  const auto backend = make_backend(1);
  for (const std::int64_t window : {31, 64, 100}) {
    SCOPED_TRACE(window);
    const GivenAttention given(*backend, DType::bf16, {s, s, 1, 1, 1, 64, true, 0, {}, {}, window}, 1);
    std::vector<std::int32_t> first;
    for (std::int64_t i = 0; i < s; ++i)
      first.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(i - window, 0)));
    expect_visible_tiles(given, first);
  }
}

}  // namespace
}  // namespace trireme

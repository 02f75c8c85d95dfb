// Tiles that attention on tensor cores visits, counted by the products of warps on the host layer.
#include <gpu/mma.cuh>

#include "tests/kernels/flash_attention_case.hpp"

namespace trireme {
namespace {

using namespace test;

/// Tiles of `rows` queries and `columns` keys in which a query attends to a key.
std::int64_t visible_tiles(const std::vector<std::int32_t>& first_visible, std::int64_t rows, std::int64_t columns) {
  const std::int64_t s = std::ssize(first_visible);
  std::int64_t count = 0;
  for (std::int64_t query = 0; query < s; query += rows) {
    const std::int64_t first = first_visible[static_cast<std::size_t>(query)], last = std::min(query + rows, s) - 1;
    count += last / columns - first / columns + 1;
  }
  return count;
}

// A tile of a warp's 16 queries and 64 keys takes 64 products forward, with heads of 64 channels. One of 32 keys takes
// 48 for the gradient of queries, and one of 16 keys and 32 queries 64 for those of keys and values.
TEST(FlashTiles, OfOtherDocumentsAreNotVisited) {
  const auto backend = make_backend(1);
  const std::int64_t s = 512;
  const std::vector<std::int32_t> starts = {40, 128, 129, 300, 420};
  std::int64_t of_whole = 0;
  for (const auto& documents : {std::vector<std::int32_t>{}, starts}) {
    const GivenAttention given(*backend, DType::bf16, {s, s, 1, 1, 1, 64, true, 0, {}, {documents}}, 1);
    const std::vector<std::int32_t> first = first_visible_of({documents}, 0, s);
    const std::int64_t before = gpu::host::products;
    compute(given);
    const std::int64_t products = gpu::host::products - before;
    EXPECT_EQ(products, 64 * visible_tiles(first, 16, 64) + 48 * visible_tiles(first, 16, 32) +
                            64 * visible_tiles(first, 32, 16));
    if (documents.empty()) of_whole = products;
    if (!documents.empty()) {
      EXPECT_LT(products, 0.4 * static_cast<double>(of_whole));
    }
  }
}

TEST(FlashTiles, OutsideOfTheWindowAreNotVisited) {
  const auto backend = make_backend(1);
  const std::int64_t s = 512;
  for (const std::int64_t window : {0, 31, 64, 100, 511}) {
    const GivenAttention given(*backend, DType::bf16, {s, s, 1, 1, 1, 64, true, 0, {}, {}, window}, 1);
    std::vector<std::int32_t> first;
    for (std::int64_t i = 0; i < s; ++i)
      first.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(i - window, 0)));
    const std::int64_t before = gpu::host::products;
    compute(given);
    EXPECT_EQ(gpu::host::products - before,
              64 * visible_tiles(first, 16, 64) + 48 * visible_tiles(first, 16, 32) + 64 * visible_tiles(first, 32, 16))
        << window;
  }
}

}  // namespace
}  // namespace trireme

// Attention whose keys are split into ranges, and copies of heads.
#include "tests/backend/given_attention.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr std::int64_t batch = 2, heads = 4, kv_heads = 2, d = 12;

Heads heads_of(TensorView tensor, std::int64_t count) { return {tensor, batch * count * d, count * d, d}; }

class AttentionParts : public testing::TestWithParam<DType> {};

// Ranges begin anywhere, in any order. All keys of one come after the first queries.
TEST_P(AttentionParts, PartsOfTheKeysCombineToFullAttention) {
  const auto backend = test::make_backend(2);
  const KeyRanges splits[] = {{{0, 170}}, {{0, 64}, {64, 128}, {128, 170}}, {{128, 170}, {0, 3}, {3, 77}, {77, 128}}};
  AttentionCase all{150, 170, batch, heads, kv_heads, d}, dropout = all;
  dropout.dropout = 0.2;
  AttentionCase padded = dropout, packed = dropout;
  padded.lengths = {100, 10};
  packed.documents = {{2, 64, 99, 128}, {160}};
  packed.soft_cap = 2;
  AttentionCase biased = padded;
  biased.alibi_heads = 12;
  for (const AttentionCase* shape : {&all, &dropout, &padded, &packed, &biased}) {
    const GivenAttention given(*backend, GetParam(), *shape, 1);
    for (const KeyRanges& ranges : splits) {
      if (shape != &all && shape != &dropout && ranges.size() < 4) continue;  // saves time
      SCOPED_TRACE(fmt::format("{} parts, dropout {}, {} lengths, {} samples of documents", ranges.size(),
                               shape->dropout, shape->lengths.size(), shape->documents.size()));
      expect_parts_join(given, ranges, tolerance(accumulation_type(GetParam()), Operation::sum));
    }
  }
}

TEST_P(AttentionParts, NaNOfOnePartPropagates) {
  const auto backend = test::make_backend(1);
  expect_nan_of_one_part_is_not_hidden(*backend, GetParam(), {8, 8, batch, heads, kv_heads, d});
}

TEST_P(AttentionParts, HeadsAreCopiedAndRounded) {
  const DType dtype = GetParam(), accumulation = accumulation_type(dtype);
  const auto backend = test::make_backend(2);
  Backend& b = *backend;
  for (const auto& [from_type, to_type] : {std::pair{dtype, dtype}, {dtype, accumulation}, {accumulation, dtype}}) {
    // The second of three heads to the first of two.
    const Tensor from = random_tensor(b, from_type, {5, batch, 3, d}, 1);
    const Tensor to = random_tensor(b, to_type, {5, batch, 2, d}, 2);
    std::vector<double> expected = values_of(b, to);
    const std::vector<double> given = values_of(b, converted(b, from, to_type));
    for (std::int64_t row = 0; row < 5 * batch; ++row) {
      for (std::int64_t c = 0; c < d; ++c) expected[row * 2 * d + c] = given[(row * 3 + 1) * d + c];
    }
    ConstHeads source = heads_of(from, 3);
    source.data = ConstTensorView(source.data.data() + d * size_of(from_type), from_type, source.data.shape());
    b.attention().copy_heads(b.compute_stream(), {5, batch, 1, d}, source, heads_of(to, 2));
    EXPECT_EQ(values_of(b, to), expected);
    // To both, since the heads of the source are 0 apart.
    source.head_stride = 0;
    b.attention().copy_heads(b.compute_stream(), {5, batch, 2, d}, source, heads_of(to, 2));
    for (std::int64_t row = 0; row < 5 * batch; ++row) {
      for (std::int64_t c = 0; c < d; ++c) expected[(row * 2 + 1) * d + c] = expected[row * 2 * d + c];
    }
    EXPECT_EQ(values_of(b, to), expected);
    // To other positions of each sample, as texts of different lengths grow.
    const std::vector<std::int32_t> begins = {1, 3};
    const Tensor on_device = make_tensor(b, {batch}, begins);
    source.head_stride = d;
    b.attention().copy_heads(b.compute_stream(), {2, batch, 1, d, on_device.view().as<std::int32_t>()}, source,
                             heads_of(to, 2));
    for (std::int64_t row = 0; row < 2 * batch; ++row) {
      const std::int64_t target = (row / batch + begins[row % batch]) * batch + row % batch;
      for (std::int64_t c = 0; c < d; ++c) expected[target * 2 * d + c] = given[(row * 3 + 1) * d + c];
    }
    EXPECT_EQ(values_of(b, to), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionParts, testing::ValuesIn(test::kernel_types()), name_of_type);

}  // namespace
}  // namespace trireme

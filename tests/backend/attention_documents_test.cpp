// Attention over samples of several documents, each of which sees itself alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/backend/attention_cases.hpp"

namespace trireme {
namespace {

using namespace test;
using Case = AttentionCase;

class PackedAttention : public testing::TestWithParam<std::tuple<DType, Case>> {};

TEST_P(PackedAttention, MatchesTheDefinition) {
  const auto& [dtype, shape] = GetParam();
  const Packed packed(shape);
  AttentionTensors actual = random_tensors(packed.p);
  poison_padding(packed.p, actual);
  compute_and_match_definition(dtype, packed.p, actual);
  expect_padding_is_zero(packed.p, actual);
}

std::vector<std::int32_t> every_position(std::int32_t count) {
  std::vector<std::int32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

INSTANTIATE_TEST_SUITE_P(
    Attention, PackedAttention,
    testing::Combine(
        testing::ValuesIn(test::kernel_types()),
        testing::Values(Case{70, 70, 4, 2, 2, 12, true, 0.1, {}, {{}, {1, 69}, {33, 64, 65}, every_position(70)}},
                        Case{65, 65, 2, 4, 2, 16, true, 0.5, {}, {{7, 8, 40}, {64}}},         // grouped heads
                        Case{40, 130, 2, 2, 2, 8, true, 0, {}, {{64, 95, 128}, {20, 129}}},   // queries at the end
                        Case{300, 300, 1, 2, 1, 16, true, 0.1, {}, {{10, 130, 131, 257}}},    // keys split among tasks
                        Case{90, 90, 2, 2, 2, 8, true, 0.2, {80, 33}, {{30, 64, 79}, {32}}},  // and padding
                        Case{90, 90, 2, 2, 1, 8, false, 0, {}, {{30, 64, 79}, {17}}},         // sees what is later, too
                        Case{270, 270, 2, 4, 4, 8, true, 0, {}, {{255, 256}, {64, 128, 192, 256}}})),
    [](const auto& info) {
      const Case& c = std::get<1>(info.param);
      return fmt::format("{}_{}x{}_of_{}_heads{}{}", name_of(std::get<0>(info.param)), c.queries, c.keys, c.heads,
                         c.causal ? "_causal" : "", c.lengths.empty() ? "" : "_padded");
    });

/// Positions [begin, end) of one sample; `row` elements are one position of it.
std::vector<double> rows_of_document(const std::vector<double>& dense, std::int64_t batch, std::int64_t row,
                                     std::int64_t sample, std::int64_t begin, std::int64_t end) {
  std::vector<double> own;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto from = dense.begin() + (i * batch + sample) * row;
    own.insert(own.end(), from, from + row);
  }
  return own;
}

TEST(Attention, EachDocumentGivesWhatItGivesAlone) {
  const std::int64_t s = 150, d = 16, heads = 4, kv_heads = 2;
  const Packed packed({s, s, 2, heads, kv_heads, d, true, 0, {}, {{0, 1, 70, 134, s}, {0, 64, s}}});
  AttentionTensors all = random_tensors(packed.p);
  const AttentionTensors given = all;
  compute(test::exact_type(), packed.p, all);
  for (std::int64_t sample = 0; sample < 2; ++sample) {
    const std::vector<std::int32_t>& bounds = packed.shape.documents[sample];
    for (std::size_t document = 0; document + 1 < bounds.size(); ++document) {
      SCOPED_TRACE(fmt::format("sample {}, document {}", sample, document));
      const std::int64_t begin = bounds[document], end = bounds[document + 1];
      const auto of_queries = [&](const std::vector<double>& x) {
        return rows_of_document(x, 2, heads * d, sample, begin, end);
      };
      const auto of_keys = [&](const std::vector<double>& x) {
        return rows_of_document(x, 2, kv_heads * d, sample, begin, end);
      };
      const AttentionProblem alone = problem_of({end - begin, end - begin, 1, heads, kv_heads, d});
      AttentionTensors own;
      own.q = of_queries(given.q);
      own.dout = of_queries(given.dout);
      own.k = of_keys(given.k);
      own.v = of_keys(given.v);
      compute(test::exact_type(), alone, own);
      const Tolerance close = tolerance(test::exact_type(), Operation::sum);
      expect_close(own.out, of_queries(all.out), close, "out");
      expect_close(own.dq, of_queries(all.dq), close, "dq");
      expect_close(own.dk, of_keys(all.dk), close, "dk");
      expect_close(own.dv, of_keys(all.dv), close, "dv");
    }
  }
}

TEST(Attention, BackwardOfPackedDocumentsMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  const Packed packed({5, 6, 2, 2, 1, 2, true, 0.3, {}, {{2, 3}, {4}}});
  AttentionTensors t = random_tensors(packed.p);
  expect_backward_is_derivative(packed.p, t);
}

// Tiles that a document does not see are not read: numbers there that are none stay where they are.
TEST(Attention, TilesOfOtherDocumentsAreSkipped) {
  const std::int64_t s = 384, d = 16, heads = 2;
  const Packed packed({s, s, 1, heads, 1, d, true, 0.1, {}, {{128, 256}}});
  for (const DType dtype : {test::exact_type(), DType::bf16}) {
    for (std::int64_t damaged = 0; damaged < 3; ++damaged) {
      AttentionTensors t = random_tensors(packed.p);
      for (std::vector<double>* x : {&t.q, &t.k, &t.v, &t.dout}) {
        const std::int64_t document = std::ssize(*x) / 3;
        std::fill_n(x->begin() + damaged * document, document, std::nan(""));
      }
      compute(dtype, packed.p, t);
      for (const std::vector<double>* x : {&t.out, &t.dq, &t.dk, &t.dv}) {
        for (std::int64_t i = 0; i < std::ssize(*x); ++i) {
          ASSERT_EQ(std::isnan((*x)[i]), i / (std::ssize(*x) / 3) == damaged)
              << name_of(dtype) << ", document " << damaged << " damaged, row " << i / (std::ssize(*x) / s);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme

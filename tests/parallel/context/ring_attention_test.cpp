// Ring attention on the ranks of this test against the kernel on one.
#include "src/parallel/context/ring_attention.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "tests/backend/attention_reference.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/sequence_rows.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {
namespace {

using parallel::RingAttention;
using parallel::SequenceShard;

constexpr std::int64_t batch = 2, heads = 4, d = 8;
const std::vector<std::int64_t> sample_numbers = {7, (std::int64_t{3} << 32) + 5};

struct Values {
  std::vector<double> out, dq, dk, dv;
};

struct Case {
  DType dtype = DType::fp64;
  std::int64_t s = 0;
  std::int64_t kv_heads = heads;
  double dropout = 0;
  bool causal = true;
  std::vector<std::int32_t> lengths{};  ///< lengths of the samples; none: no padding
  /// Positions where the documents of each sample begin; none: one document.
  std::vector<std::vector<std::int32_t>> documents{};
  std::int64_t window = -1;  ///< AttentionProblem::window

  AttentionProblem problem(std::int64_t rows) const {
    return {.queries = rows,
            .keys = rows,
            .batch = batch,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = d,
            .scale = 1 / std::sqrt(static_cast<double>(d)),
            .causal = causal,
            .lengths = lengths.empty() ? nullptr : lengths.data(),
            .window = window,
            .dropout = {dropout, 1234, 3, DropoutSite::attention_scores, sample_numbers.data()},
            .first_head = 2};
  }
};
std::ostream& operator<<(std::ostream& to, const Case& c) {
  return to << fmt::format("{}, {} positions, {} heads of keys, dropout {}, {}, lengths [{}], documents {}, window {}",
                           name_of(c.dtype), c.s, c.kv_heads, c.dropout, c.causal ? "causal" : "not causal",
                           fmt::join(c.lengths, " "), c.documents, c.window);
}

/// Forward and backward of the rows of `shard`: in the ring, or by the kernel without a group. Inputs of padding are
/// NaN.
Values compute(const Case& c, const SequenceShard& shard, Communicator* group) {
  const DType dtype = c.dtype;
  const std::int64_t kv_heads = c.kv_heads;
  const auto backend = make_backend(BackendChoice::cpu, 1);
  Stream& stream = backend->compute_stream();
  AttentionProblem problem = c.problem(shard.rows);
  const std::vector<std::int32_t> first_visible = rows_of(first_visible_of(c.documents, 0, c.s), shard);
  if (!c.documents.empty()) problem.first_visible = first_visible.data();
  const auto input = [&](std::int64_t count, std::uint64_t seed, double size) {
    std::vector<double> whole = random_values(c.s * batch * count * d, seed, -size, size);
    for (std::size_t i = 0; !c.lengths.empty() && i < whole.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / (count * d);
      if (row / batch >= c.lengths[row % batch]) whole[i] = std::nan("");
    }
    return make_tensor(*backend, dtype, {shard.rows, batch, count, d}, rows_of(whole, shard));
  };
  const Tensor q = input(heads, 1, 3), k = input(kv_heads, 2, 3), v = input(kv_heads, 3, 1);
  const Tensor dout = input(heads, 4, 1);
  const auto result = [&](std::int64_t count) {
    return poisoned_tensor(*backend, dtype, {shard.rows, batch, count, d});
  };
  const Tensor out = result(heads), dq = result(heads), dk = result(kv_heads), dv = result(kv_heads);
  const Shape statistics{batch, heads, shard.rows};
  const Tensor lse = poisoned_tensor(*backend, accumulation_type(dtype), statistics);
  const Tensor row_dot = poisoned_tensor(*backend, accumulation_type(dtype), statistics);
  const auto read = [](const Tensor& tensor) {
    const std::int64_t count = tensor.view().shape()[2];
    return ConstHeads{tensor, batch * count * d, count * d, d};
  };
  const auto write = [](const Tensor& tensor) {
    const std::int64_t count = tensor.view().shape()[2];
    return Heads{tensor, batch * count * d, count * d, d};
  };
  if (group == nullptr) {
    AttentionKernels& kernels = backend->attention();
    kernels.attention(stream, problem, read(q), read(k), read(v), write(out), lse);
    kernels.attention_backward(stream, problem, read(dout), read(q), read(k), read(v), read(out), lse, row_dot,
                               write(dq), write(dk), write(dv));
  } else {
    Arena workspace(*backend);
    const RingAttention ring(*backend, *group, workspace);
    ring.forward(problem, read(q), read(k), read(v), write(out), lse);
    ring.backward(problem, read(dout), read(q), read(k), read(v), read(out), lse, row_dot, write(dq), write(dk),
                  write(dv));
    EXPECT_EQ(workspace.used_bytes(), 0u);
  }
  return {values_of(*backend, out), values_of(*backend, dq), values_of(*backend, dk), values_of(*backend, dv)};
}

void expect_what_one_rank_computes(const Case& c) {
  SCOPED_TRACE(testing::Message() << c);
  const SequenceShard shard = SequenceShard::of(c.s, world().rank(), world().size());
  const Values expected = compute(c, SequenceShard::of(c.s), nullptr);
  const Values actual = compute(c, shard, &world());
  // Results that are rounded to 16 bits may be rounded differently, and backward starts from the rounded output.
  Tolerance close = tolerance(c.dtype, Operation::sum);
  close.relative *= 2;
  if (c.dtype != accumulation_type(c.dtype)) close.absolute += close.relative;
  const auto own_rows = [&](const std::vector<double>& x) { return rows_of(x, shard); };
  expect_close(actual.out, own_rows(expected.out), close, "out");
  expect_close(actual.dq, own_rows(expected.dq), close, "dq");
  expect_close(actual.dk, own_rows(expected.dk), close, "dk");
  expect_close(actual.dv, own_rows(expected.dv), close, "dv");
}

TEST(RingAttention, ComputesWhatOneRankComputes) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    for (const std::int64_t s : {std::int64_t{8}, std::int64_t{56}}) {
      for (const std::int64_t kv_heads : {heads, heads / 2}) {
        for (const double dropout : {0.0, 0.1}) expect_what_one_rank_computes({dtype, s, kv_heads, dropout});
      }
    }
  }
}

TEST(RingAttention, WithoutACausalMaskEveryQuerySeesEveryKey) {
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    for (const std::int64_t kv_heads : {heads, heads / 2}) {
      for (const double dropout : {0.0, 0.1}) expect_what_one_rank_computes({dtype, 56, kv_heads, dropout, false});
    }
  }
}

// Samples that end within a chunk and at the end of one, in any chunk; empty and unpadded ones.
TEST(RingAttention, PaddingNeitherSeesNorIsSeen) {
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    for (const bool causal : {true, false}) {
      for (const auto& lengths : {std::vector{33, 1}, {28, 56}, {56, 50}, {0, 3}}) {
        expect_what_one_rank_computes({dtype, 56, heads / 2, 0.1, causal, lengths});
      }
    }
  }
  for (std::int32_t length = 0; length <= 16; length += 2) {
    expect_what_one_rank_computes({DType::fp64, 16, heads, 0.1, false, {length, 16 - length}});
  }
}

// Documents that end within a chunk and at the end of one, of one position and of the full sequence.
TEST(RingAttention, DocumentsSeeThemselvesAlone) {
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    for (const auto& documents : {std::vector<std::vector<std::int32_t>>{{1, 20, 33}, {55}}, {{14, 28, 42}, {}}}) {
      expect_what_one_rank_computes({dtype, 56, heads / 2, 0.1, true, {}, documents});
    }
  }
  for (std::int32_t begin = 1; begin < 16; ++begin) {
    expect_what_one_rank_computes({DType::fp64, 16, heads, 0.1, true, {}, {{begin}, {16 - begin, 15}}});
  }
}

// Windows of one key, within a chunk, to the ends of chunks and over several of them; with documents, too.
TEST(RingAttention, AWindowIsThatOfTheWholeSequence) {
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    for (const std::int64_t window : {0, 3, 7, 14, 30, 60}) {
      expect_what_one_rank_computes({dtype, 56, heads / 2, 0.1, true, {}, {}, window});
    }
    expect_what_one_rank_computes({dtype, 56, heads / 2, 0.1, true, {40, 56}, {}, 10});
    expect_what_one_rank_computes({dtype, 56, heads / 2, 0.1, true, {}, {{1, 20, 33}, {55}}, 9});
  }
}

// Where a window is at most a chunk, a query's own chunk and the one before it remain, for any number of chunks.
TEST(RingAttention, ComputesNothingOutsideOfTheWindow) {
  const std::int64_t chunk = 8;
  for (const int size : {2, 4, 8}) {
    Case c{DType::fp64, 2 * size * chunk};
    for (const auto& [window, chunks_before] : {std::pair{0, 0}, {1, 1}, {8, 1}, {9, 2}}) {
      c.window = window;
      std::int64_t pairs = 0, expected = 0;
      for (int rank = 0; rank < size; ++rank) {
        for (int owner = 0; owner < size; ++owner) {
          pairs += std::ssize(RingAttention::pairs(c.problem(2 * chunk), rank, owner, size));
        }
      }
      for (int i = 0; i < 2 * size; ++i) expected += std::min(i, chunks_before) + 1;
      EXPECT_EQ(pairs, expected) << size << " ranks, window " << window;
    }
  }
}

}  // namespace
}  // namespace trireme::test

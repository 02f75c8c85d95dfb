// Ring attention on the ranks of this test against the kernel on one.
#include "src/parallel/context/ring_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/parallel/context/sequence_share.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {
namespace {

using parallel::RingAttention;
using parallel::SequenceShare;

constexpr std::int64_t batch = 2, heads = 4, d = 8;
const std::vector<std::int64_t> sample_numbers = {7, (std::int64_t{3} << 32) + 5};

struct Values {
  std::vector<double> out, dq, dk, dv;
};

AttentionProblem problem_of(std::int64_t rows, std::int64_t kv_heads, double dropout) {
  return {.queries = rows,
          .keys = rows,
          .batch = batch,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = d,
          .scale = 1 / std::sqrt(static_cast<double>(d)),
          .dropout = {dropout, 1234, 3, DropoutSite::attention_scores, sample_numbers.data()},
          .first_head = 2};
}

/// The rows of `share` of a tensor [s, b, heads, d].
std::vector<double> rows_of(const std::vector<double>& whole, const SequenceShare& share) {
  const std::int64_t row = static_cast<std::int64_t>(whole.size()) / share.sequence;
  std::vector<double> part;
  for (std::int64_t i = 0; i < share.rows; ++i) {
    const auto begin = whole.begin() + share.positions[i] * row;
    part.insert(part.end(), begin, begin + row);
  }
  return part;
}

/// Forward and backward of the rows of `share`: in the ring, or by the kernel where there is no group.
Values compute(DType dtype, const SequenceShare& share, std::int64_t kv_heads, double dropout, Communicator* group) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  Stream& stream = backend->compute_stream();
  const AttentionProblem problem = problem_of(share.rows, kv_heads, dropout);
  const auto input = [&](std::int64_t count, std::uint64_t seed, double size) {
    const Shape shape{share.rows, batch, count, d};
    return make_tensor(*backend, dtype, shape,
                       rows_of(random_values(share.sequence * batch * count * d, seed, -size, size), share));
  };
  const Tensor q = input(heads, 1, 3), k = input(kv_heads, 2, 3), v = input(kv_heads, 3, 1), dout = input(heads, 4, 1);
  const auto result = [&](std::int64_t count) {
    return poisoned_tensor(*backend, dtype, {share.rows, batch, count, d});
  };
  const Tensor out = result(heads), dq = result(heads), dk = result(kv_heads), dv = result(kv_heads);
  const Shape statistics{batch, heads, share.rows};
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

TEST(RingAttention, ComputesWhatOneRankComputes) {
  Communicator& ranks = world();
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::int64_t s : {std::int64_t{8}, std::int64_t{56}, std::int64_t{256}}) {
      for (const std::int64_t kv_heads : {heads, heads / 2}) {
        for (const double dropout : {0.0, 0.1}) {
          SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << s << " positions, " << kv_heads
                                          << " heads of keys, dropout " << dropout);
          const SequenceShare share = SequenceShare::of(s, ranks.rank(), ranks.size());
          const Values expected = compute(dtype, SequenceShare::of(s), kv_heads, dropout, nullptr);
          const Values actual = compute(dtype, share, kv_heads, dropout, &ranks);
          // Where both round to 16 bits they may round differently; and backward starts from the rounded output.
          Tolerance close = tolerance(dtype, Operation::sum);
          close.relative *= 2;
          if (dtype != accumulation_type(dtype)) close.absolute += close.relative;
          const auto part = [&](const std::vector<double>& x) { return rows_of(x, share); };
          expect_close(actual.out, part(expected.out), close, "out");
          expect_close(actual.dq, part(expected.dq), close, "dq");
          expect_close(actual.dk, part(expected.dk), close, "dk");
          expect_close(actual.dv, part(expected.dv), close, "dv");
        }
      }
    }
  }
}

TEST(RingAttention, TheSameTwiceGivesTheSameBits) {
  Communicator& ranks = world();
  const SequenceShare share = SequenceShare::of(96, ranks.rank(), ranks.size());
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    const Values first = compute(dtype, share, heads, 0.1, &ranks), second = compute(dtype, share, heads, 0.1, &ranks);
    EXPECT_EQ(first.out, second.out);
    EXPECT_EQ(first.dq, second.dq);
    EXPECT_EQ(first.dk, second.dk);
    EXPECT_EQ(first.dv, second.dv);
  }
}

}  // namespace
}  // namespace trireme::test

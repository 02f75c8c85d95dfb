// Self-attention of sequences split over the ranks of this test, compared with one rank.
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "src/model/blocks/attention.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/sequence_rows.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::model {
namespace {

using parallel::SequenceShard;
using parallel::VocabularyPartition;

constexpr std::int64_t s = 24, batch = 2;

ModelConfig config_of(std::int64_t query_groups) {
  return {.layers = 1,
          .hidden = 16,
          .heads = 4,
          .query_groups = query_groups,
          .ffn_hidden = 16,
          .max_positions = s,
          .vocabulary = 8,
          .position_embedding = PositionEmbedding::rope};
}

struct Values {
  std::vector<double> y, dx, weight_gradients;
};

/// Runs forward and backward on the rows of `shard`. Sums weight gradients over `group`, the context ranks.
/// With `lengths`, inputs after the end of a sample are `padding` and their gradients 0.
Values compute(const ModelConfig& config, const SequenceShard& shard, bool causal, Communicator* group,
               const std::vector<std::int32_t>& lengths = {}, double padding = 0) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  parallel::ParameterBuffer parameters(
      *backend, DType::fp64, model_parameters(config, {{{0, 1}}}, VocabularyPartition(config.vocabulary, 0, 1)));
  // Scores of order one, so that every key matters.
  initialise(*backend, parameters.parameters(), {.method = InitMethod::hashed_uniform, .scale = 30});
  SelfCommunicator alone;
  Arena workspace(*backend), saved_memory(*backend);
  const parallel::TensorContext context{*backend, alone, workspace, false, true, group};
  const SelfAttention attention(context, parameters, "h.0.attn", config, 0, 0);
  LayerShape shape = LayerShape::of(config, shard.rows, batch, 1, false, DType::fp64);
  shape.positions = shard.positions;
  shape.causal = causal;
  const auto input = [&](std::uint64_t seed) {
    const std::vector<double> whole = test::random_values(s * batch * config.hidden, seed, -1, 1);
    return test::make_tensor(*backend, DType::fp64, {shard.rows, batch, config.hidden}, test::rows_of(whole, shard));
  };
  const Tensor x = input(1), dy = input(2);
  const auto pad = [&](const Tensor& tensor, double value) {
    for (std::int64_t i = 0; i < shard.rows * batch; ++i) {
      if (shard.positions[i / batch] < lengths[static_cast<std::size_t>(i % batch)]) continue;
      std::fill_n(tensor.view().as<double>() + i * config.hidden, config.hidden, value);
    }
  };
  if (!lengths.empty()) {
    shape.lengths = lengths.data();
    pad(x, padding);
    pad(dy, 0);
  }
  const Tensor y = test::poisoned_tensor(*backend, DType::fp64, {shard.rows, batch, config.hidden});
  const Tensor dx = test::poisoned_tensor(*backend, DType::fp64, {shard.rows, batch, config.hidden});
  SelfAttention::Saved saved = attention.make_saved(shape, false, saved_memory);
  attention.forward(shape, x, {}, saved, y);
  SelfAttention::Gradients gradients = attention.make_gradients(shape, false, saved_memory);
  backend->copy_from_host(context.stream(), dy, gradients.output);
  attention.backward_input(shape, {}, saved, gradients, dx, parallel::WeightGradient::now);
  if (group != nullptr)
    group->all_reduce(context.stream(), parameters.gradients(), ReduceOp::sum).wait(context.stream());
  return {test::values_of(*backend, y), test::values_of(*backend, dx),
          test::values_of(*backend, parameters.gradients())};
}

TEST(SelfAttention, OfSplitSequencesComputesWhatOneRankComputes) {
  const SequenceShard shard = SequenceShard::of(s, test::world().rank(), test::world().size());
  const test::Tolerance close = test::tolerance(DType::fp64, test::Operation::sum);
  for (const bool causal : {true, false}) {
    for (const std::int64_t query_groups : {0, 2}) {
      SCOPED_TRACE(testing::Message() << (causal ? "causal, " : "not causal, ") << query_groups << " query groups");
      const ModelConfig config = config_of(query_groups);
      const Values expected = compute(config, SequenceShard::of(s), causal, nullptr);
      const Values actual = compute(config, shard, causal, &test::world());
      test::expect_close(actual.y, test::rows_of(expected.y, shard), close, "y");
      test::expect_close(actual.dx, test::rows_of(expected.dx, shard), close, "dx");
      test::expect_close(actual.weight_gradients, expected.weight_gradients, close, "weight gradients");
    }
  }
}

TEST(SelfAttention, OfPaddedSamplesDoesNotDependOnThePadding) {
  const SequenceShard shard = SequenceShard::of(s, test::world().rank(), test::world().size());
  const test::Tolerance close = test::tolerance(DType::fp64, test::Operation::sum);
  const ModelConfig config = config_of(0);
  const std::vector<std::int32_t> lengths = {7, s};
  const auto own_rows = [&](const std::vector<double>& values) {
    std::vector<double> own;
    for (std::int64_t i = 0; i < s * batch; ++i) {
      if (i / batch >= lengths[static_cast<std::size_t>(i % batch)]) continue;
      own.insert(own.end(), values.begin() + i * config.hidden, values.begin() + (i + 1) * config.hidden);
    }
    return own;
  };
  for (const bool causal : {true, false}) {
    SCOPED_TRACE(causal ? "causal" : "not causal");
    const Values expected = compute(config, SequenceShard::of(s), causal, nullptr, lengths, 0.5);
    const Values other = compute(config, SequenceShard::of(s), causal, nullptr, lengths, -3);
    EXPECT_EQ(own_rows(other.y), own_rows(expected.y));
    EXPECT_EQ(other.dx, expected.dx);
    EXPECT_EQ(other.weight_gradients, expected.weight_gradients);
    const Values split = compute(config, shard, causal, &test::world(), lengths, 0.5);
    test::expect_close(split.y, test::rows_of(expected.y, shard), close, "y of split samples, padding too");
    test::expect_close(split.dx, test::rows_of(expected.dx, shard), close, "dx of split samples");
    test::expect_close(split.weight_gradients, expected.weight_gradients, close, "weight gradients of split samples");
  }
}

TEST(SelfAttention, FirstPositionSeesLaterOnesOnlyWithoutACausalMask) {
  const ModelConfig config = config_of(0);
  const SequenceShard shard = SequenceShard::of(s);
  const Values causal = compute(config, shard, true, nullptr), full = compute(config, shard, false, nullptr);
  const test::Tolerance close = test::tolerance(DType::fp64, test::Operation::sum);
  const auto row = [&](const Values& values, std::int64_t i) {
    const auto begin = values.y.begin() + i * batch * config.hidden;
    return std::vector<double>(begin, begin + batch * config.hidden);
  };
  EXPECT_NE(row(causal, 0), row(full, 0));
  test::expect_close(row(causal, s - 1), row(full, s - 1), close, "the last position sees all either way");
}

}  // namespace
}  // namespace trireme::model

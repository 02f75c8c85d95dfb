#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/model/presets.hpp"
#include "src/plan/work/recorded_work.hpp"

namespace trireme::plan {
namespace {

using parallel::GroupKind;
using parallel::StepKind;

constexpr std::int64_t s = 64, b = 2;
constexpr double value_bytes = 2;

model::ModelConfig small() {
  return {.layers = 8, .hidden = 256, .heads = 4, .ffn_hidden = 1024, .max_positions = s, .vocabulary = 1024};
}
/// Bytes of an activation of the residual stream.
double stream_bytes() { return static_cast<double>(s * b * small().hidden) * value_bytes; }

train::ExecutionConfig execution() {
  train::ExecutionConfig execution;
  execution.dtype = DType::bf16;
  execution.sequence_length = s;
  execution.micro_batch_size = b;
  return execution;
}

/// Bytes and number of the collectives of a kind.
struct Volume {
  double bytes = 0;
  int count = 0;
  friend bool operator==(const Volume&, const Volume&) = default;
};
Volume volume(const std::vector<WorkEvent>& events, GroupKind group, Collective collective) {
  Volume sum;
  for (const WorkEvent& event : events) {
    if (event.kind != WorkEvent::Kind::start || event.group != group || event.collective != collective) continue;
    sum.bytes += event.bytes;
    ++sum.count;
  }
  return sum;
}
Volume streams(int count) { return {count * stream_bytes(), count}; }

std::size_t count_of(const std::vector<WorkEvent>& events, WorkEvent::Kind kind) {
  return static_cast<std::size_t>(std::ranges::count(events, kind, &WorkEvent::kind));
}

TEST(StageWork, HasThePublishedCollectivesOfTensorParallelism) {
  // Shoeybi et al. 2019: two all-reduces of the stream forward and two backward; Narayanan et al. 2021: with full
  // recomputation two more, of which this program omits that of the layer's result.
  train::ExecutionConfig e = execution();
  StageWork layer = record_stage(small(), e, {4, 4, 1}, {.layers = 1});
  EXPECT_EQ(volume(layer.steps[StepKind::forward], GroupKind::tensor, Collective::all_reduce), streams(2));
  EXPECT_EQ(volume(layer.steps[StepKind::backward], GroupKind::tensor, Collective::all_reduce), streams(2));
  e.recomputation.granularity = model::RecomputeGranularity::full;
  layer = record_stage(small(), e, {4, 4, 1}, {.layers = 1});
  EXPECT_EQ(volume(layer.steps[StepKind::forward], GroupKind::tensor, Collective::all_reduce), streams(2));
  EXPECT_EQ(volume(layer.steps[StepKind::backward], GroupKind::tensor, Collective::all_reduce), streams(3));
}

TEST(StageWork, HasThePublishedCollectivesOfSequenceParallelism) {
  // Korthikanti et al. 2022: each all-reduce becomes a reduce-scatter and an all-gather. Backward gathers the inputs of
  // the two column-parallel products again for their weights.
  train::ExecutionConfig e = execution();
  e.parallel.sequence_parallel = true;
  StageWork layer = record_stage(small(), e, {4, 4, 1}, {.layers = 1});
  for (const auto& [kind, gathers] : std::map<StepKind, int>{{StepKind::forward, 2}, {StepKind::backward, 4}}) {
    EXPECT_EQ(volume(layer.steps[kind], GroupKind::tensor, Collective::all_gather), streams(gathers));
    EXPECT_EQ(volume(layer.steps[kind], GroupKind::tensor, Collective::reduce_scatter), streams(2));
    EXPECT_EQ(volume(layer.steps[kind], GroupKind::tensor, Collective::all_reduce), Volume{});
  }
}

/// Kinds of the products between the start of a tensor collective and the wait for it.
std::vector<KernelKind> products_beside(const std::vector<WorkEvent>& events, int operation) {
  std::vector<KernelKind> kinds;
  bool in_flight = false;
  for (const WorkEvent& event : events) {
    if (event.kind == WorkEvent::Kind::kernel) {
      if (in_flight && event.call.product) kinds.push_back(event.call.kind);
    } else if (event.operation == operation) {
      if (event.kind == WorkEvent::Kind::wait) return kinds;
      in_flight = true;
    }
  }
  ADD_FAILURE() << "nothing waits for operation " << operation;
  return kinds;
}

// Two layers of two chunks have four sums each in a pass. The first layer's last one is number 3.
TEST(StageWork, TheLastSumOfALayerRunsBesideTheFirstProductOfTheNext) {
  using enum KernelKind;
  for (const auto granularity :
       {model::RecomputeGranularity::none, model::RecomputeGranularity::selective, model::RecomputeGranularity::full}) {
    SCOPED_TRACE(model::name_of(granularity));
    train::ExecutionConfig e = execution();
    e.parallel.row_chunks = 2;
    e.recomputation.granularity = granularity;
    model::ModelConfig model = small();
    model.vocabulary = 2048;  // a matrix of the layers would look like that of the logits
    StageWork stage = record_stage(model, e, {4, 4, 1}, {.layers = 2});
    EXPECT_THAT(products_beside(stage.steps[StepKind::forward], 3), testing::ElementsAre(forward)) << "of chunk 0";
    // Full recomputation frees a layer's tensors before it makes those of the next.
    if (granularity == model::RecomputeGranularity::full) continue;
    EXPECT_THAT(products_beside(stage.steps[StepKind::backward], 3),
                testing::ElementsAre(weight_gradient, input_gradient));
    EXPECT_THAT(products_beside(stage.steps[StepKind::backward_input], 3), testing::ElementsAre(input_gradient));
  }
}

// A layer's collectives backward: its result's gradient, the input of the products, their sum, for both branches.
TEST(StageWork, InputsOfWeightGradientsAreGatheredBesideEarlierProducts) {
  using enum KernelKind;
  train::ExecutionConfig e = execution();
  e.parallel.sequence_parallel = true;
  model::ModelConfig model = small();
  model.vocabulary = 2048;
  StageWork layer = record_stage(model, e, {4, 4, 1}, {.layers = 1});
  for (const int operation : {1, 4}) {
    EXPECT_THAT(products_beside(layer.steps[StepKind::backward], operation),
                testing::ElementsAre(weight_gradient, input_gradient));
  }
}

model::ModelConfig with_experts() {
  model::ModelConfig config = small();
  config.linear_bias = false;
  config.experts.count = 8;
  return config;
}

TEST(StageWork, ExchangesTheTokensOfDividedExperts) {
  StageWork undivided = record_stage(with_experts(), execution(), {2, 2, 1}, {.layers = 1});
  StageWork divided = record_stage(with_experts(), execution(), {8, 2, 1, 1, 4, 4}, {.layers = 1});
  for (const StepKind kind : {StepKind::forward, StepKind::backward}) {
    EXPECT_EQ(volume(undivided.steps[kind], GroupKind::expert, Collective::all_gather), Volume{});
    EXPECT_GE(volume(divided.steps[kind], GroupKind::expert, Collective::all_gather).bytes, 4 * stream_bytes());
    EXPECT_GE(volume(divided.steps[kind], GroupKind::expert, Collective::reduce_scatter).bytes, 4 * stream_bytes());
  }
  // Each rank has two experts instead of eight.
  const double of_one = static_cast<double>(2 * small().hidden * small().ffn_hidden) / 2;
  EXPECT_NEAR(static_cast<double>(undivided.parameters - divided.parameters), 6 * of_one, 0.01 * of_one);
}

TEST(StageWork, MovesTheBytesOfEachRouteOfTokens) {
  // n = s b = 128 tokens of h = 256 channels of 2 bytes, k = 2 choices with weights of 4 bytes, N = 4 ranks.
  constexpr double n = s * b, h = 256, k = 2, N = 4;
  train::ExecutionConfig e = execution();
  const parallel::ProcessGrid grid(8, 2, 1, 1, 4, 4);
  StageWork work = record_stage(with_experts(), e, grid, {.layers = 1});
  const auto moved = [&](StepKind kind, Collective collective) {
    return volume(work.steps[kind], GroupKind::expert, collective);
  };
  // All-gather: weights, choices and tokens forward, results back; backward gathers gradients and tokens again.
  EXPECT_EQ(moved(StepKind::forward, Collective::all_gather), (Volume{N * (2 * 4 * n * k + 2 * n * h), 3}));
  EXPECT_EQ(moved(StepKind::forward, Collective::reduce_scatter), (Volume{N * 2 * n * h, 1}));
  EXPECT_EQ(moved(StepKind::backward, Collective::all_gather), (Volume{2 * N * 2 * n * h, 2}));
  EXPECT_EQ(moved(StepKind::backward, Collective::reduce_scatter), (Volume{N * (2 * n * h + 4 * n * k), 2}));
  EXPECT_EQ(moved(StepKind::forward, Collective::all_to_all), Volume{});

  // All-to-all: a rank sends each choice as a row. All ranks get the numbers of rows of 8 experts.
  e.parallel.exchange_tokens = true;
  work = record_stage(with_experts(), e, grid, {.layers = 1});
  EXPECT_EQ(moved(StepKind::forward, Collective::all_gather), (Volume{N * 4 * 8, 1}));
  EXPECT_EQ(moved(StepKind::forward, Collective::all_to_all), (Volume{n * k * (4 + 2 * 2 * h), 3}));
  EXPECT_EQ(moved(StepKind::backward, Collective::all_to_all), (Volume{n * k * (4 + 3 * 2 * h), 4}));
  EXPECT_EQ(moved(StepKind::forward, Collective::reduce_scatter), Volume{});
  EXPECT_EQ(moved(StepKind::backward, Collective::send_receive), Volume{});
}

TEST(StageWork, CompleteExpertsGetTheTokensOfEachTensorRank) {
  // Half of n = s b tokens are sent by each of two tensor ranks.
  constexpr double n = s * b / 2, h = 256, k = 2;
  train::ExecutionConfig e = execution();
  e.parallel.exchange_tokens = true;
  StageWork split = record_stage(with_experts(), e, {8, 2, 1, 1, 4, 4}, {.layers = 1});
  StageWork complete = record_stage(with_experts(), e, {8, 2, 1, 1, 4, 4, 1}, {.layers = 1});
  const double of_one = static_cast<double>(2 * small().hidden * small().ffn_hidden);
  EXPECT_NEAR(static_cast<double>(complete.parameters - split.parameters), 2 * of_one / 2, 0.01 * of_one);
  EXPECT_EQ(volume(complete.steps[StepKind::forward], GroupKind::expert, Collective::all_to_all),
            (Volume{n * k * (4 + 2 * 2 * h), 3}));
  EXPECT_EQ(volume(complete.steps[StepKind::backward], GroupKind::expert, Collective::all_to_all),
            (Volume{n * k * (4 + 3 * 2 * h), 4}));
}

/// FLOPs of the forward products that expand rows of experts.
double expansion_flops(StageWork& work) {
  double sum = 0;
  for (const WorkEvent& event : work.steps[StepKind::forward]) {
    if (event.kind != WorkEvent::Kind::kernel || !event.call.product) continue;
    if (event.call.product->n == small().ffn_hidden) sum += event.call.flops();
  }
  return sum;
}

/// Products with this number of columns between the start and the wait of a communication of experts.
int products_behind_tokens(const std::vector<WorkEvent>& events, std::int64_t columns) {
  int count = 0;
  bool travels = false;
  int operation = 0;
  for (const WorkEvent& event : events) {
    if (event.kind == WorkEvent::Kind::start && event.group == GroupKind::expert) {
      travels = true;
      operation = event.operation;
    } else if (event.kind == WorkEvent::Kind::wait && event.operation == operation) {
      travels = false;
    } else if (event.kind == WorkEvent::Kind::kernel && event.call.product && travels) {
      count += event.call.product->n == columns ? 1 : 0;
    }
  }
  return count;
}

TEST(StageWork, ComputesTheSharedExpertWhileTokensTravel) {
  model::ModelConfig model = with_experts();
  model.experts.shared_hidden = 192;
  for (const bool exchange : {false, true}) {
    train::ExecutionConfig e = execution();
    e.parallel.exchange_tokens = exchange;
    const parallel::ProcessGrid grid(4, 1, 1, 1, 4, 4);
    StageWork alone = record_stage(model, e, grid, {.layers = 1});
    e.parallel.overlap_shared_expert = true;
    StageWork overlapped = record_stage(model, e, grid, {.layers = 1});
    // Forward expands to the width, and backward computes the gradient at it.
    for (const StepKind kind : {StepKind::forward, StepKind::backward}) {
      EXPECT_EQ(products_behind_tokens(alone.steps[kind], model.experts.shared_hidden), 0);
      EXPECT_GE(products_behind_tokens(overlapped.steps[kind], model.experts.shared_hidden), 1);
      EXPECT_EQ(alone.steps[kind].size(), overlapped.steps[kind].size());
    }
  }
}

TEST(StageWork, SendsTokensOnceMoreForExpertsThatAreRecomputed) {
  train::ExecutionConfig e = execution();
  const parallel::ProcessGrid grid(4, 1, 1, 1, 4, 4);
  StageWork kept = record_stage(with_experts(), e, grid, {.layers = 1});
  e.recomputation = {.granularity = model::RecomputeGranularity::selective, .modules = {.experts = true}};
  StageWork recomputed = record_stage(with_experts(), e, grid, {.layers = 1});
  const auto gathers = [](StageWork& work, StepKind kind) {
    return volume(work.steps[kind], GroupKind::expert, Collective::all_gather).count;
  };
  EXPECT_EQ(gathers(recomputed, StepKind::forward), gathers(kept, StepKind::forward));
  EXPECT_EQ(gathers(recomputed, StepKind::backward), gathers(kept, StepKind::backward) + 1);
}

TEST(StageWork, OfTheFullestRankGrowsWithTheLoadOfItsExperts) {
  const parallel::ProcessGrid grid(4, 1, 1, 1, 4, 4);
  for (const bool exchange : {false, true}) {
    train::ExecutionConfig e = execution();
    e.parallel.exchange_tokens = exchange;
    const auto recorded = [&](double load) {
      e.parallel.expert_load = load;
      return record_stage(with_experts(), e, grid, {.layers = 1});
    };
    StageWork even = recorded(1), loaded = recorded(2.5), all = recorded(4), more = recorded(9);
    // 2 n of the choices of all 4 n tokens' ranks are here if the load is even.
    EXPECT_DOUBLE_EQ(expansion_flops(even), 2.0 * 2 * s * b * small().hidden * small().ffn_hidden);
    EXPECT_DOUBLE_EQ(expansion_flops(loaded), 2.5 * expansion_flops(even));
    EXPECT_DOUBLE_EQ(expansion_flops(all), 4 * expansion_flops(even));
    EXPECT_DOUBLE_EQ(expansion_flops(more), expansion_flops(all));
    if (!exchange) continue;
    // The rank receives 3/4 of 2.5 times the rows, more than it sends.
    const auto bytes = [](StageWork& work) {
      return volume(work.steps[StepKind::forward], GroupKind::expert, Collective::all_to_all).bytes;
    };
    EXPECT_DOUBLE_EQ(bytes(loaded), 2.5 * bytes(even));
  }
}

TEST(UpdateWork, ReducesExpertsOverTheirOwnHolders) {
  for (const int expert : {2, 4, 8}) {
    const parallel::ProcessGrid grid(16, 2, 1, 1, 8, expert);
    const UpdateWork work = record_update(with_experts(), execution(), {}, grid, 0);
    const auto experts = static_cast<double>(small().layers * 8 / expert * small().hidden * small().ffn_hidden);
    const Volume reduced = volume(work.reduction, GroupKind::expert_gradient, Collective::all_reduce);
    EXPECT_NEAR(reduced.bytes, 4 * experts, 0.01 * 4 * experts);
    EXPECT_EQ(volume(work.norm, GroupKind::model, Collective::all_reduce).count, 1);
    EXPECT_EQ(volume(work.norm, GroupKind::expert_model, Collective::all_reduce).count, 1);
  }
}

TEST(StageWork, GrowsLinearlyWithLayers) {
  for (const auto granularity :
       {model::RecomputeGranularity::none, model::RecomputeGranularity::selective, model::RecomputeGranularity::full}) {
    train::ExecutionConfig e = execution();
    e.recomputation.granularity = granularity;
    for (const auto& ends :
         {train::StageRehearsal::Layers{1, false, false}, train::StageRehearsal::Layers{1, true, true}}) {
      auto layers = ends;
      const parallel::ProcessGrid grid(2, 2, 1);
      StageWork one = record_stage(small(), e, grid, layers);
      layers.layers = 2;
      StageWork two = record_stage(small(), e, grid, layers);
      layers.layers = 8;
      StageWork eight = record_stage(small(), e, grid, layers);
      for (const auto& [kind, events] : one.steps) {
        for (const auto what : {WorkEvent::Kind::kernel, WorkEvent::Kind::start, WorkEvent::Kind::wait}) {
          const std::size_t first = count_of(events, what);
          EXPECT_EQ(count_of(eight.steps[kind], what), first + 7 * (count_of(two.steps[kind], what) - first));
        }
        EXPECT_EQ(count_of(events, WorkEvent::Kind::start), count_of(events, WorkEvent::Kind::wait));
      }
    }
  }
}

TEST(StageWork, OfBothHalvesEqualsTheBackward) {
  StageWork layer = record_stage(small(), execution(), {2, 2, 1}, {.layers = 1});
  const auto flops = [&](StepKind kind) {
    double sum = 0;
    for (const WorkEvent& event : layer.steps[kind])
      sum += event.kind == WorkEvent::Kind::kernel ? event.call.flops() : 0;
    return sum;
  };
  EXPECT_EQ(flops(StepKind::backward_input) + flops(StepKind::backward_weight), flops(StepKind::backward));
}

TEST(UpdateWork, ReducesEveryGradientAndGathersEveryParameterOnce) {
  const parallel::ProcessGrid grid(8, 2, 1);
  for (const auto sharding : {parallel::DataSharding::none, parallel::DataSharding::optimizer,
                              parallel::DataSharding::optimizer_and_gradients}) {
    for (const bool overlap : {false, true}) {
      train::ExecutionConfig e = execution();
      e.parallel.data_parallel = {.sharding = sharding,
                                  .overlap_reduce = overlap,
                                  .overlap_gather = overlap && sharding != parallel::DataSharding::none,
                                  .bucket_elements = overlap ? 500'000 : 0};
      const UpdateWork work = record_update(small(), e, {}, grid, 0);
      ASSERT_EQ(work.units.size(), 10u);
      std::vector<WorkEvent> all;
      const auto append = [&](const std::vector<WorkEvent>& events) {
        all.insert(all.end(), events.begin(), events.end());
      };
      for (const UpdateWork::Unit& unit : work.units) {
        append(unit.before_last_backward);
        append(unit.after_last_backward);
      }
      const std::size_t early = count_of(all, WorkEvent::Kind::start);
      append(work.reduction);
      const Collective reduction =
          sharding == parallel::DataSharding::none ? Collective::all_reduce : Collective::reduce_scatter;
      const Volume reduced = volume(all, GroupKind::gradient, reduction);
      const Volume gathered = volume(work.optimizer, GroupKind::gradient, Collective::all_gather);
      const StageWork whole = record_stage(small(), e, {2, 2, 1}, {.layers = 8, .first = true, .last = true});
      const auto parameters = static_cast<double>(whole.parameters);
      EXPECT_NEAR(reduced.bytes, 4 * parameters, 0.01 * 4 * parameters);
      EXPECT_NEAR(gathered.bytes, sharding == parallel::DataSharding::none ? 0 : 2 * parameters, 0.01 * 2 * parameters);
      const bool in_backward = overlap || sharding == parallel::DataSharding::optimizer_and_gradients;
      EXPECT_EQ(early > 0, in_backward) << static_cast<int>(sharding) << overlap;
      const std::size_t waits = count_of(work.optimizer, WorkEvent::Kind::wait);
      EXPECT_EQ(waits > 0, gathered.count > 0 && !overlap);
    }
  }
}

TEST(UpdateWork, SumsATiedTableOnlyOverFirstAndLastStage) {
  const parallel::ProcessGrid grid(4, 1, 4);
  const double table = static_cast<double>(small().vocabulary * small().hidden) * 4;
  for (const int stage : {0, 1, 2, 3}) {
    const UpdateWork work = record_update(small(), execution(), {}, grid, stage);
    const bool tied = stage == 0 || stage == 3;
    EXPECT_EQ(work.units.size(), tied ? 3u : 2u);
    EXPECT_EQ(volume(work.reduction, GroupKind::embedding, Collective::all_reduce),
              (Volume{tied ? table : 0, tied ? 1 : 0}));
  }
}

}  // namespace
}  // namespace trireme::plan

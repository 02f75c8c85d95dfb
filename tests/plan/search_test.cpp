#include "src/plan/search/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "src/base/check.hpp"
#include "src/model/presets.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::plan {
namespace {

using model::RecomputeGranularity;
using parallel::DataSharding;
using parallel::ScheduleKind;
using testing::HasSubstr;

SearchSpace space_of(int world_size, std::int64_t batch = 64, const char* model = "gpt2-355m") {
  SearchSpace space{.world_size = world_size,
                    .ranks_per_node = 8,
                    .base = {model::preset(model), {}, {}, parallel::ProcessGrid(world_size, 1, 1)}};
  space.base.execution.dtype = DType::bf16;
  space.base.execution.sequence_length = 1024;
  space.base.options.global_batch_size = batch;
  return space;
}

/// Time and memory by simple formulas: tensor ranks slow down a step, and all ranks divide memory.
class SimpleCosts final : public JobCosts {
 public:
  StepPrediction predict(const Job& job) override {
    const train::ExecutionConfig& e = job.execution;
    StepPrediction prediction;
    prediction.step_ms = 100.0 * job.grid.tensor_size() + job.grid.pipeline_size() + chunks_of(job) +
                         20.0 * static_cast<int>(e.recomputation.granularity) - (e.parallel.overlap_p2p ? p2p_gain : 0);
    if (e.parallel.data_parallel.sharding == DataSharding::optimizer_and_gradients) prediction.step_ms += 5;
    return prediction;
  }
  double min_bytes(const Job& job) override { return 0.5 * bytes(job); }
  train::MemoryEstimate memory(const Job& job, int stage) override {
    ++rehearsals;
    train::MemoryEstimate estimate;
    const double state = 0.75 * bytes(job), on_host = job.options.optimizer.offload.fraction * state;
    estimate.parameters = static_cast<std::size_t>(bytes(job) - on_host) - static_cast<std::size_t>(stage);
    estimate.host_optimizer = static_cast<std::size_t>(on_host);
    return estimate;
  }
  double limit_bytes() const override { return limit; }
  double host_limit_bytes() const override { return host_limit; }

  double limit = 1e9, host_limit = 1e9;
  double p2p_gain = 0;
  int rehearsals = 0;

 private:
  static double bytes(const Job& job) {
    return 1e6 / job.grid.tensor_size() / job.grid.pipeline_size() /
           (1 + static_cast<int>(job.execution.recomputation.granularity));
  }
};

int rejected(const std::vector<Rejection>& rejections, const std::string& reason) {
  return static_cast<int>(std::ranges::count_if(
      rejections, [&](const Rejection& r) { return r.reason.find(reason) != std::string::npos; }));
}

TEST(Candidates, UseAllRanksAndKeepTensorGroupsInANode) {
  std::vector<Rejection> rejections;
  for (const GridCandidates& found : candidates(space_of(32), rejections)) {
    EXPECT_EQ(found.grid.world_size(), 32);
    EXPECT_LE(found.grid.tensor_size(), 8);
    for (const Job& job : found.jobs) {
      EXPECT_EQ(job.grid.tensor_size(), found.grid.tensor_size());
      EXPECT_EQ(64 % (job.execution.micro_batch_size * job.grid.data_size()), 0);
      EXPECT_GE(micro_batches_of(job), job.grid.pipeline_size());
      EXPECT_EQ(job.execution.parallel.sequence_parallel, job.grid.tensor_size() > 1);
    }
  }
  EXPECT_EQ(rejected(rejections, "several nodes"), 4);  // tensor sizes 16, with 2 ranks left for three axes, and 32
  EXPECT_GT(rejected(rejections, "layers do not divide"), 0);
  EXPECT_GT(rejected(rejections, "fewer than 2048 positions"), 0);
}

TEST(Candidates, NameTheRuleThatExcludesAGrid) {
  std::vector<Rejection> rejections;
  candidates(space_of(8, 6), rejections);
  EXPECT_GT(rejected(rejections, "a global batch of 6 does not divide by the data ranks"), 0);
  EXPECT_GT(rejected(rejections, "fewer micro-batches than pipeline stages"), 0);
  rejections.clear();
  EXPECT_FALSE(candidates(space_of(8, 64, "gpt2-1.5b"), rejections).empty());  // 25 heads
  EXPECT_EQ(rejected(rejections, "25 attention heads"), 6 + 3 + 1);
}

TEST(Candidates, KeepGivenAxes) {
  SearchSpace space = space_of(32);
  space.tensor = 2;
  space.pipeline = 4;
  space.micro_batch_size = 2;
  space.schedule = ScheduleKind::zero_bubble;
  space.recomputation = RecomputeGranularity::selective;
  space.sharding = DataSharding::optimizer;
  std::vector<Rejection> rejections;
  const std::vector<GridCandidates> found = candidates(space, rejections);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].jobs.size(), 1u);
  EXPECT_EQ(schedule_of(found[0].jobs[0]), ScheduleKind::zero_bubble);
  EXPECT_EQ(micro_batches_of(found[0].jobs[0]), 8);
}

TEST(Candidates, KeepTheGivenSplitOfLayers) {
  SearchSpace space = space_of(4);
  space.base.model.layers = 5;
  space.tensor = 1;
  space.pipeline = 4;
  std::string reason;
  const auto layouts_of = [&](const parallel::PipelineSplit& split) {
    space.base.execution.parallel.pipeline = split;
    std::vector<Rejection> rejections;
    std::set<std::vector<int>> layouts;
    for (const GridCandidates& found : candidates(space, rejections)) {
      for (const Job& job : found.jobs) {
        layouts.insert(layout_of(job).layers);
        EXPECT_EQ(schedule_of(job) == ScheduleKind::interleaved, chunks_of(job) > 1);
      }
    }
    reason = rejections.empty() ? "" : rejections.front().reason;
    return layouts;
  };
  using Layouts = std::set<std::vector<int>>;
  EXPECT_EQ(layouts_of({}), Layouts());
  EXPECT_THAT(reason, HasSubstr("5 layers do not divide into 4 pipeline stages"));
  EXPECT_EQ(layouts_of({.first_stage = 2}), (Layouts{{2, 1, 1, 1}}));
  EXPECT_EQ(layouts_of({.first_stage = 3}), Layouts());
  EXPECT_THAT(reason, HasSubstr("of 5 layers 2 are left for the other 3 of 4 stages"));
  EXPECT_EQ(layouts_of({.layers = {0, 1, 1, 1, 1, 1, 0}}), Layouts());
  EXPECT_THAT(reason, HasSubstr("names 7 chunks"));
  EXPECT_EQ(layouts_of({.layers = {0, 2, 2, 1}}), (Layouts{{0, 2, 2, 1}}));
  space.base.model.layers = 8;
  EXPECT_EQ(layouts_of({}), (Layouts{{2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}}));
  EXPECT_EQ(layouts_of({.layers_per_chunk = 1}), (Layouts{{1, 1, 1, 1, 1, 1, 1, 1}}));
  EXPECT_EQ(layouts_of({.layers = {0, 1, 1, 1, 1, 1, 1, 2}}), (Layouts{{0, 1, 1, 1, 1, 1, 1, 2}}));
  EXPECT_EQ(layouts_of({.chunks = 1}), (Layouts{{2, 2, 2, 2}}));
}

TEST(Candidates, DistributeActivationsInOneWay) {
  SearchSpace space = space_of(8);
  space.tensor = 2;
  for (const bool distributes : {false, true}) {
    space.base.execution.recomputation.distribute = distributes;
    std::vector<Rejection> rejections;
    for (const Job& job : candidates(space, rejections).at(0).jobs) {
      EXPECT_NE(job.execution.parallel.sequence_parallel, distributes);
    }
  }
}

TEST(Candidates, KeepTheRanksThatDivideExperts) {
  SearchSpace space = space_of(16);
  space.base.model.linear_bias = false;
  space.base.model.experts.count = 8;
  space.expert = 4;
  std::vector<Rejection> rejections;
  const std::vector<GridCandidates> found = candidates(space, rejections);
  ASSERT_FALSE(found.empty());
  for (const GridCandidates& grid : found) EXPECT_EQ(grid.grid.expert_size(), 4) << grid.grid.describe(0);
  EXPECT_GT(rejected(rejections, "the ranks of a stage do not divide by the 4 ranks of <expert_model_parallel_size>"),
            0);
}

TEST(Candidates, DivideExpertsInANodeOrOverTheMostRanks) {
  SearchSpace space = space_of(16);
  space.base.model.linear_bias = false;
  space.tensor = 1;
  space.pipeline = 1;
  space.context = 1;
  space.micro_batch_size = 1;
  const auto sizes_of = [&](std::int64_t experts) {
    space.base.model.experts.count = experts;
    std::vector<Rejection> rejections;
    std::set<int> sizes;
    const GridCandidates found = candidates(space, rejections).at(0);
    for (const Job& job : found.jobs) sizes.insert(job.grid.expert_size());
    return sizes;
  };
  EXPECT_EQ(sizes_of(6), std::set<int>{2});
  EXPECT_EQ(sizes_of(8), std::set<int>{8});
  EXPECT_EQ(sizes_of(64), (std::set<int>{8, 16}));
  // The others are variants.
  std::vector<Rejection> rejections;
  const Job job = candidates(space, rejections).at(0).jobs.front();
  std::set<int> others;
  for (const Job& variant : variants(space, job)) others.insert(variant.grid.expert_size());
  EXPECT_EQ(others, (std::set<int>{1, 2, 4, 8, 16}));
}

TEST(Candidates, CutRowsIntoTheChunksThatTheProgramSupports) {
  SearchSpace space = space_of(8);
  const auto chunks_of_rows = [&](int tensor, bool sequence_parallel) {
    Job job = space.base;
    job.grid = parallel::ProcessGrid(8, tensor, 1);
    job.execution.parallel.sequence_parallel = sequence_parallel;
    std::set<int> chunks = {job.execution.parallel.row_chunks};
    for (const Job& variant : variants(space, job)) chunks.insert(variant.execution.parallel.row_chunks);
    return chunks;
  };
  space.base.execution.sequence_length = 16;
  EXPECT_EQ(chunks_of_rows(8, false), (std::set<int>{1, 2, 4}));
  EXPECT_EQ(chunks_of_rows(8, true), (std::set<int>{1, 2}));  // a tensor rank has two positions
  EXPECT_EQ(chunks_of_rows(1, false), (std::set<int>{1}));
  space.row_chunks = 2;
  EXPECT_EQ(chunks_of_rows(8, false), (std::set<int>{1}));
}

TEST(Candidates, SplitExpertsOverTheTensorRanksOrKeepThemComplete) {
  SearchSpace space = space_of(16);
  space.base.model.linear_bias = false;
  space.base.model.experts.count = 64;
  space.tensor = 2;
  space.pipeline = 1;
  space.context = 1;
  const auto sizes_of = [&](std::optional<int> expert, std::optional<int> expert_tensor) {
    space.expert = expert;
    space.expert_tensor = expert_tensor;
    std::vector<Rejection> rejections;
    std::set<std::pair<int, int>> sizes;
    for (const GridCandidates& found : candidates(space, rejections)) {
      for (const Job& job : found.jobs) sizes.insert({job.grid.expert_size(), job.grid.expert_tensor_size()});
    }
    return sizes;
  };
  using Sizes = std::set<std::pair<int, int>>;
  EXPECT_EQ(sizes_of({}, {}), (Sizes{{4, 2}, {8, 2}, {8, 1}, {16, 1}}));
  EXPECT_EQ(sizes_of(16, {}), (Sizes{{16, 1}}));
  EXPECT_EQ(sizes_of({}, 4), (Sizes{{2, 4}, {4, 4}}));
  EXPECT_EQ(sizes_of(8, 4), Sizes{});
}

TEST(Search, KeepsTheOptimizersStateInHostMemoryWhereNothingElseFits) {
  SimpleCosts costs;
  const SearchSpace space = space_of(32);
  EXPECT_EQ(search(space, costs, 1).grids.front().job.options.optimizer.offload.fraction, 0);
  // Full recomputation on all ranks takes a third of 1e6 / 32, of which a quarter is on the device.
  costs.limit = 6000;
  const SearchResult result = search(space, costs, 1);
  ASSERT_FALSE(result.grids.empty());
  EXPECT_EQ(result.grids.front().job.options.optimizer.offload.fraction, 1);
  EXPECT_GT(result.grids.front().memory.front().host(), 0u);
  costs.host_limit = 1000;
  EXPECT_TRUE(search(space, costs, 1).grids.empty());
}

TEST(Search, FindsTheExpertRanksThatFitIntoMemory) {
  ClusterCosts costs(cluster_preset("dgx-h100"));
  SearchSpace space = space_of(8, 64, "mixtral-8x7b");
  space.tensor = 1;
  space.pipeline = 1;
  space.context = 1;
  space.micro_batch_size = 1;
  space.recomputation = RecomputeGranularity::full;
  space.base.model.layers = 8;
  space.base.execution.parallel.exchange_tokens = true;
  const SearchResult result = search(space, costs, 1);
  ASSERT_EQ(result.grids.size(), 1u);
  EXPECT_GE(result.grids[0].job.grid.expert_size(), 2);  // 12 billion parameters take more than 80 GB
  EXPECT_GT(result.grids[0].step.work.of(Traffic::experts).exposed_ms, 0);
}

std::string error_of(const SearchSpace& space) {
  return test::message_of<ConfigError>([&] {
    std::vector<Rejection> rejections;
    candidates(space, rejections);
  });
}

TEST(Candidates, RefuseAxesThatContradictTheCluster) {
  SearchSpace space = space_of(48);
  space.tensor = 3;
  EXPECT_THAT(error_of(space),
              HasSubstr("<tensor_model_parallel_size> 3: tensor groups would lie askew on nodes of 8"));
  space.tensor = 5;
  EXPECT_THAT(error_of(space), HasSubstr("<tensor_model_parallel_size> 5: 48 ranks do not divide by it"));
  space.tensor = 8;
  space.pipeline = 2;
  space.data = 4;
  EXPECT_THAT(error_of(space), HasSubstr("48 ranks do not make a grid of the sizes given"));
}

TEST(Search, RanksGridsByTheFastestLayoutThatFits) {
  SimpleCosts costs;
  costs.limit = 0.6e6;  // one stage needs recomputation, two do not
  const SearchSpace space = space_of(32);
  const SearchResult result = search(space, costs, 3);
  ASSERT_EQ(result.grids.size(), 3u);
  EXPECT_EQ(result.grids[0].job.grid.tensor_size(), 1);
  EXPECT_EQ(result.grids[0].job.grid.pipeline_size(), 2);
  EXPECT_EQ(result.grids[0].job.execution.recomputation.granularity, RecomputeGranularity::none);
  EXPECT_EQ(result.grids[0].memory.size(), 2u);
  EXPECT_TRUE(std::ranges::is_sorted(result.grids, {}, [](const RankedGrid& g) { return g.step.step_ms; }));
  EXPECT_GT(rejected(result.rejections, "slower than the best"), 0);
  EXPECT_LT(costs.rehearsals, 40);
}

TEST(Search, FindsTheFastestGridHoweverManyAreWanted) {
  for (const double limit : {0.2e6, 0.3e6, 0.4e6, 0.6e6, 1e6}) {
    SimpleCosts costs;
    costs.limit = limit;
    const SearchResult one = search(space_of(32), costs, 1), many = search(space_of(32), costs, 20);
    ASSERT_EQ(one.grids.empty(), many.grids.empty());
    if (one.grids.empty()) continue;
    EXPECT_EQ(one.grids.front().step.step_ms, many.grids.front().step.step_ms) << limit;
    for (const Rejection& rejection : one.rejections) {
      EXPECT_GE(rejection.amount, 0) << limit;
    }
  }
}

TEST(Search, ReportsTheMemoryNeeded) {
  SimpleCosts costs;
  costs.limit = 1e4;
  const SearchResult result = search(space_of(8), costs, 10);
  EXPECT_TRUE(result.grids.empty());
  const auto least = std::ranges::min_element(
      result.rejections, {}, [](const Rejection& r) { return r.kind == Rejection::Kind::memory ? r.amount : 1e300; });
  EXPECT_EQ(least->kind, Rejection::Kind::memory);
  EXPECT_DOUBLE_EQ(least->amount, 0.5 * 1e6 / 8 / 3);  // by min_bytes: full recomputation on 8 ranks
  EXPECT_EQ(costs.rehearsals, 0);
}

TEST(Search, ImprovesALayoutAlongOtherAxes) {
  SimpleCosts costs;
  SearchSpace space = space_of(8);
  space.pipeline = 2;
  space.tensor = 1;
  EXPECT_TRUE(search(space, costs, 1).grids[0].job.execution.parallel.overlap_p2p);
  costs.p2p_gain = -10;  // overlapped messages are slower
  EXPECT_FALSE(search(space, costs, 1).grids[0].job.execution.parallel.overlap_p2p);
  space.overlap_p2p = true;
  EXPECT_TRUE(search(space, costs, 1).grids[0].job.execution.parallel.overlap_p2p);
}

TEST(Search, IsDeterministic) {
  const auto answer = [] {
    ClusterCosts costs(cluster_preset("dgx-h100"));
    std::string text;
    for (const RankedGrid& grid : search(space_of(8, 16, "gpt2-124m"), costs, 2).grids) {
      text += grid.job.grid.describe(0) + fmt::format(" {} {}\n", grid.step.step_ms, grid.max_bytes());
    }
    return text;
  };
  const std::string first = answer();
  EXPECT_THAT(first, HasSubstr("rank 0"));
  EXPECT_EQ(first, answer());
}

TEST(JobCosts, CountsChunksInFlightLikeTheSchedule) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward,
                                  ScheduleKind::interleaved, ScheduleKind::zero_bubble}) {
    for (const int stages : {1, 2, 4}) {
      for (const int micro_batches : {1, 3, 8}) {
        const int chunks = kind == ScheduleKind::interleaved ? 3 : 1;
        EXPECT_EQ(in_flight(kind, stages, chunks, micro_batches),
                  parallel::max_in_flight(parallel::make_schedule(kind, stages, micro_batches, chunks).steps[0]));
      }
    }
  }
}

/// Expects the lower bound of a job's memory to be below that of its fullest rank, but not far, and returns the latter.
std::size_t expect_bound(ClusterCosts& costs, const Job& job) {
  std::size_t most = 0;
  for (int stage = 0; stage < job.grid.pipeline_size(); ++stage) {
    most = std::max(most, costs.memory(job, stage).total());
  }
  EXPECT_LE(costs.min_bytes(job), static_cast<double>(most)) << job.grid.describe(0);
  EXPECT_GE(costs.min_bytes(job), 0.15 * static_cast<double>(most)) << job.grid.describe(0);
  return most;
}

TEST(JobCosts, GivesALowerBoundOfTheFullestRanksMemoryWithExperts) {
  for (const char* layers : {"", "01"}) {
    ClusterCosts costs(cluster_preset("dgx-h100"));
    SearchSpace space = space_of(8, 16, "gpt2-124m");
    space.base.model.linear_bias = false;
    space.base.model.experts.count = 8;
    space.base.model.experts.layers = layers;
    space.expert = 2;
    space.tensor = 2;
    std::vector<Rejection> rejections;
    for (const GridCandidates& grid : candidates(space, rejections)) {
      expect_bound(costs, grid.jobs.front());
      EXPECT_GT(costs.predict(grid.jobs.front()).work.of(Traffic::experts).exposed_ms, 0);
    }
  }
}

TEST(JobCosts, GivesALowerBoundOfTheFullestRanksMemory) {
  ClusterCosts costs(cluster_preset("dgx-h100"));
  std::vector<Rejection> rejections;
  int checked = 0;
  for (const GridCandidates& grid : candidates(space_of(8, 16, "gpt2-124m"), rejections)) {
    for (std::size_t i = 0; i < grid.jobs.size(); i += 11) {
      const Job& job = grid.jobs[i];
      // The first or the last stage is the fullest.
      EXPECT_EQ(expect_bound(costs, job),
                std::max(costs.memory(job, 0).total(), costs.memory(job, job.grid.pipeline_size() - 1).total()));
      ++checked;
    }
  }
  EXPECT_GT(checked, 10);
}

}  // namespace
}  // namespace trireme::plan

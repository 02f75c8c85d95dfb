#include "src/parallel/grid/process_grid.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/base/error.hpp"

namespace trireme::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Returns the groups of a kind as text: "0 1 | 2 3".
std::string groups(const ProcessGrid& grid, GroupKind kind) {
  std::string text;
  for (const std::vector<int>& ranks : grid.groups(kind)) {
    text += fmt::format("{}{}", text.empty() ? "" : " | ", fmt::join(ranks, " "));
  }
  return text;
}

std::string message_of(int world, int tensor, int pipeline, int data = 0, int context = 1, int expert = 1,
                       int expert_tensor = 0) {
  try {
    const ProcessGrid grid(world, tensor, pipeline, context, data, expert, expert_tensor);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

TEST(ProcessGrid, SixteenRanksMakeMegatronsGroups) {
  const ProcessGrid grid(16, 2, 4);
  EXPECT_EQ(grid.data_size(), 2);
  EXPECT_EQ(groups(grid, GroupKind::tensor), "0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10 11 | 12 13 | 14 15");
  EXPECT_EQ(groups(grid, GroupKind::pipeline), "0 4 8 12 | 1 5 9 13 | 2 6 10 14 | 3 7 11 15");
  EXPECT_EQ(groups(grid, GroupKind::data), "0 2 | 1 3 | 4 6 | 5 7 | 8 10 | 9 11 | 12 14 | 13 15");
  EXPECT_EQ(groups(grid, GroupKind::model), "0 1 4 5 8 9 12 13 | 2 3 6 7 10 11 14 15");
  EXPECT_EQ(groups(grid, GroupKind::embedding), "0 12 | 1 13 | 2 14 | 3 15");
}

TEST(ProcessGrid, ContextRanksStandBetweenTensorAndData) {
  const ProcessGrid grid(16, 2, 2, 2);
  EXPECT_EQ(grid.data_size(), 2);
  EXPECT_EQ(grid.gradient_size(), 4);
  EXPECT_EQ(groups(grid, GroupKind::context), "0 2 | 1 3 | 4 6 | 5 7 | 8 10 | 9 11 | 12 14 | 13 15");
  EXPECT_EQ(groups(grid, GroupKind::data), "0 4 | 1 5 | 2 6 | 3 7 | 8 12 | 9 13 | 10 14 | 11 15");
  EXPECT_EQ(groups(grid, GroupKind::gradient), "0 2 4 6 | 1 3 5 7 | 8 10 12 14 | 9 11 13 15");
  EXPECT_THAT(grid.groups(GroupKind::pipeline).front(), ElementsAre(0, 8));
  EXPECT_THAT(grid.groups(GroupKind::model).front(), ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(grid.groups(GroupKind::embedding).back(), ElementsAre(7, 15));
  EXPECT_EQ(grid.position(11), (GridPosition{.tensor = 1, .context = 1, .data = 0, .pipeline = 1}));
}

TEST(ProcessGrid, ExpertsAreDividedOverNeighboursInTheGradientGroup) {
  const ProcessGrid grid(16, 2, 2, 2, 0, 2);
  EXPECT_EQ(grid.expert_size(), 2);
  EXPECT_EQ(grid.expert_gradient_size(), 2);
  // Gradient groups are {0, 2, 4, 6}, {1, 3, 5, 7} and the same 8 later.
  EXPECT_EQ(groups(grid, GroupKind::expert), "0 2 | 1 3 | 4 6 | 5 7 | 8 10 | 9 11 | 12 14 | 13 15");
  EXPECT_EQ(groups(grid, GroupKind::expert_gradient), "0 4 | 1 5 | 2 6 | 3 7 | 8 12 | 9 13 | 10 14 | 11 15");
  EXPECT_EQ(groups(grid, GroupKind::expert_model), "0 1 2 3 8 9 10 11 | 4 5 6 7 12 13 14 15");
  EXPECT_EQ(grid.expert_rank(11), 1);
  EXPECT_EQ(grid.expert_gradient_rank(11), 0);
}

TEST(ProcessGrid, AnExpertGroupMaySpanContextAndDataRanks) {
  const ProcessGrid grid(8, 1, 1, 2, 4, 4);
  EXPECT_EQ(groups(grid, GroupKind::expert), "0 1 2 3 | 4 5 6 7");
  EXPECT_EQ(groups(grid, GroupKind::expert_gradient), "0 4 | 1 5 | 2 6 | 3 7");
}

TEST(ProcessGrid, CompleteExpertsDivideTheTensorRanks) {
  const ProcessGrid grid(16, 2, 2, 2, 2, 4, 1);
  EXPECT_EQ(grid.expert_gradient_size(), 2);
  EXPECT_EQ(grid.token_group_size(), 4);
  EXPECT_EQ(groups(grid, GroupKind::expert), "0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15");
  EXPECT_EQ(groups(grid, GroupKind::expert_gradient), "0 4 | 1 5 | 2 6 | 3 7 | 8 12 | 9 13 | 10 14 | 11 15");
  EXPECT_EQ(groups(grid, GroupKind::expert_model), "0 1 2 3 8 9 10 11 | 4 5 6 7 12 13 14 15");
  EXPECT_EQ(grid.groups(GroupKind::expert_tensor).size(), 16u);
  EXPECT_EQ(grid.expert_rank(11), 3);
  // Without expert ranks all ranks of a stage hold all experts.
  EXPECT_EQ(groups(ProcessGrid(8, 4, 2, 1, 1, 1, 1), GroupKind::expert_gradient), "0 1 2 3 | 4 5 6 7");
}

// Megatron Core's order: expert tensor, then expert, then expert data.
TEST(ProcessGrid, ExpertsMaySplitOverOtherRanksThanLayers) {
  const ProcessGrid grid(8, 4, 1, 1, 2, 2, 2);
  EXPECT_EQ(groups(grid, GroupKind::expert_tensor), "0 1 | 2 3 | 4 5 | 6 7");
  EXPECT_EQ(groups(grid, GroupKind::expert), "0 1 2 3 | 4 5 6 7");
  EXPECT_EQ(groups(grid, GroupKind::expert_gradient), "0 4 | 1 5 | 2 6 | 3 7");
  EXPECT_EQ(grid.expert_tensor_rank(7), 1);
  EXPECT_EQ(grid.expert_rank(7), 1);
  EXPECT_EQ(grid.expert_gradient_rank(7), 1);
  // More ranks may split an expert than a layer.
  EXPECT_EQ(groups(ProcessGrid(4, 1, 1, 1, 4, 2, 2), GroupKind::expert_tensor), "0 1 | 2 3");
}

TEST(ProcessGrid, UndividedExpertsNeedNoGroups) {
  const ProcessGrid grid(8, 2, 1);
  for (const GroupKind kind :
       {GroupKind::expert, GroupKind::expert_gradient, GroupKind::expert_model, GroupKind::expert_tensor}) {
    EXPECT_FALSE(grid.has(kind));
    EXPECT_TRUE(grid.group(kind, 0).empty());
  }
  EXPECT_TRUE(grid.has(GroupKind::embedding));
}

TEST(ProcessGrid, OneStageIsItsOwnEmbeddingGroup) {
  const ProcessGrid grid(4, 2, 1);
  EXPECT_EQ(groups(grid, GroupKind::embedding), "0 | 1 | 2 | 3");
}

TEST(ProcessGrid, RanksBetweenTheEndsAreInNoEmbeddingGroup) {
  const ProcessGrid grid(3, 1, 3);
  EXPECT_THAT(grid.group(GroupKind::embedding, 0), ElementsAre(0, 2));
  EXPECT_TRUE(grid.group(GroupKind::embedding, 1).empty());
}

TEST(ProcessGrid, RankAndPositionAreInverse) {
  const ProcessGrid grid(24, 2, 3);
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(grid.rank(grid.position(rank)), rank);
  EXPECT_EQ(grid.position(13), (GridPosition{.tensor = 1, .data = 2, .pipeline = 1}));
}

TEST(ProcessGrid, EveryKindOfGroupDividesTheWorld) {
  for (const auto& [tensor, pipeline, context, data, expert, expert_tensor] :
       {std::tuple{1, 1, 1, 1, 1, 0}, std::tuple{2, 1, 1, 3, 3, 0}, std::tuple{3, 4, 1, 2, 1, 0},
        std::tuple{4, 2, 3, 1, 3, 0}, std::tuple{2, 2, 2, 3, 2, 0}, std::tuple{2, 2, 2, 3, 4, 3},
        std::tuple{4, 2, 1, 2, 1, 1}}) {
    const ProcessGrid grid(tensor * pipeline * context * data, tensor, pipeline, context, data, expert, expert_tensor);
    for (const GroupKind kind : all_group_kinds) {
      if (kind == GroupKind::embedding || !grid.has(kind)) continue;
      std::vector<int> seen;
      for (const std::vector<int>& group : grid.groups(kind)) {
        EXPECT_TRUE(std::ranges::is_sorted(group));
        for (const int rank : group) EXPECT_EQ(grid.group(kind, rank), group);
        seen.insert(seen.end(), group.begin(), group.end());
      }
      std::ranges::sort(seen);
      std::vector<int> all(static_cast<std::size_t>(grid.world_size()));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all);
    }
  }
}

TEST(ProcessGrid, AWorldThatDoesNotDivideIsRefusedWithTheNearestGrids) {
  const std::string message = message_of(12, 8, 1);
  EXPECT_THAT(message, HasSubstr("12 ranks do not make a grid of tensor size 8 (<tp>) x pipeline size 1 (<pp>)"));
  EXPECT_THAT(message, HasSubstr("Start 8 or 16 ranks"));
  EXPECT_THAT(message, HasSubstr("<tp> 6 <pp> 1 (data 2), <tp> 12 <pp> 1 (data 1)"));
}

TEST(ProcessGrid, AnExplicitDataSizeMustFit) {
  EXPECT_THAT(message_of(8, 2, 2, 3), HasSubstr("x data size 3 = 12 ranks. Start 12 ranks"));
  EXPECT_EQ(message_of(8, 2, 2, 2), "");
}

TEST(ProcessGrid, ContextRanksThatDoNotDivideAreRefused) {
  const std::string message = message_of(12, 2, 1, 0, 4);
  EXPECT_THAT(message, HasSubstr("x context size 4 (<cp>) = 8 ranks a replica. Start 8 or 16 ranks"));
  EXPECT_THAT(message, HasSubstr("<tp> 2 <pp> 1 <cp> 3 (data 2)"));
}

TEST(ProcessGrid, ExpertRanksThatDoNotDivideAreRefused) {
  EXPECT_THAT(message_of(24, 2, 1, 0, 2, 5),
              HasSubstr("expert size 5 (<ep>) does not divide the 12 ranks of context size 2 x data size 6. Try one of "
                        "1, 2, 3, 4, 6, 12"));
  EXPECT_THAT(message_of(8, 2, 2, 0, 1, 4), HasSubstr("does not divide the 2 ranks"));
  EXPECT_EQ(message_of(8, 2, 2, 0, 1, 2), "");
}

TEST(ProcessGrid, RanksThatDoNotSplitExpertsAreRefused) {
  const auto refusal = [](int expert, int expert_tensor) { return message_of(16, 2, 2, 4, 1, expert, expert_tensor); };
  EXPECT_THAT(refusal(1, 3),
              HasSubstr("expert tensor size 3 (<expert_tensor_parallel_size>) does not divide the 8 ranks "
                        "of tensor size 2 x context size 1 x data size 4. Try one of 1, 2, 4, 8"));
  EXPECT_THAT(refusal(4, 4),
              HasSubstr("expert size 4 (<ep>) x expert tensor size 4 does not divide the 8 ranks of tensor "
                        "size 2 x context size 1 x data size 4. Try <ep> 1, 2"));
  EXPECT_THAT(refusal(1, -1), HasSubstr("expert tensor size -1"));
  EXPECT_EQ(refusal(8, 1), "");
}

TEST(ProcessGrid, SizesBelowOneAreRefused) {
  EXPECT_THAT(message_of(8, 1, 1, 0, 1, 0), HasSubstr("expert size 0"));
  EXPECT_THAT(message_of(8, 0, 1), HasSubstr("each is at least 1"));
  EXPECT_THAT(message_of(8, 1, -2), HasSubstr("each is at least 1"));
  EXPECT_THAT(message_of(8, 1, 1, 0, 0), HasSubstr("context size 0"));
}

TEST(ProcessGrid, HugeFactorsDoNotOverflow) {
  EXPECT_THAT(message_of(8, 1 << 20, 1 << 20), HasSubstr("= 1099511627776 ranks"));
  EXPECT_THAT(message_of(8, 1 << 30, 1 << 30, 0, 1 << 30), HasSubstr("8 ranks do not make a grid"));
}

TEST(ProcessGrid, DescribesARank) {
  EXPECT_EQ(ProcessGrid(8, 2, 2).describe(5), "rank 5: tensor 1 of 2, data 0 of 2, pipeline 1 of 2");
  EXPECT_EQ(ProcessGrid(8, 2, 2, 2).describe(7), "rank 7: tensor 1 of 2, context 1 of 2, data 0 of 1, pipeline 1 of 2");
  EXPECT_EQ(ProcessGrid(8, 2, 1, 1, 0, 2).describe(7),
            "rank 7: tensor 1 of 2, data 3 of 4, expert 1 of 2, pipeline 0 of 1");
  EXPECT_EQ(ProcessGrid(8, 2, 1, 1, 0, 4, 1).describe(7),
            "rank 7: tensor 1 of 2, data 3 of 4, expert 3 of 4, expert tensor 0 of 1, pipeline 0 of 1");
}

TEST(ProcessGrid, DrawsStagesAndReplicas) {
  EXPECT_EQ(ProcessGrid(8, 2, 2).diagram(),
            "8 ranks = tensor 2 x data 2 x pipeline 2\n"
            "            replica 0  replica 1\n"
            "stage 0           0-1        2-3\n"
            "stage 1           4-5        6-7\n");
  EXPECT_EQ(ProcessGrid(8, 1, 2, 2).diagram(),
            "8 ranks = tensor 1 x context 2 x data 2 x pipeline 2\n"
            "            replica 0  replica 1\n"
            "stage 0           0-1        2-3\n"
            "stage 1           4-5        6-7\n");
  EXPECT_THAT(ProcessGrid(8, 2, 1, 1, 0, 4).diagram(),
              HasSubstr("8 ranks = tensor 2 x data 4 x pipeline 1; experts over 4 ranks\n"));
  EXPECT_THAT(ProcessGrid(8, 2, 1, 1, 0, 8, 1).diagram(),
              HasSubstr("pipeline 1; experts over 8 ranks; each expert complete on one\n"));
  EXPECT_THAT(ProcessGrid(8, 4, 1, 1, 0, 1, 2).diagram(), HasSubstr("pipeline 1; each expert split over 2 ranks\n"));
}

TEST(ProcessGrid, DrawsLargeGridsShortened) {
  const std::string text = ProcessGrid(512, 8, 1).diagram();
  EXPECT_THAT(text, HasSubstr("replica 5         ...  replica 63"));
  EXPECT_THAT(text, HasSubstr("504-511"));
  EXPECT_THAT(ProcessGrid(64, 1, 64).diagram(), HasSubstr("\n...               ...\nstage 63           63\n"));
}

}  // namespace
}  // namespace trireme::parallel

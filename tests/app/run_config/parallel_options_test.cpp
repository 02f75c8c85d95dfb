#include "src/app/run_config/parallel_options.hpp"

#include "tests/app/run_config/read_config.hpp"

namespace trireme::app {
namespace {

/// Four context ranks, and experts.
const Words experts = gpt + "--cp 4 --disable-bias-linear --moe-router-topk 2 --num-experts";

TEST(ExpertRanks, DivideTheExpertsOfALayer) {
  EXPECT_EQ(read(experts + "8 --ep 4").parallel.grid.expert, 4);
  EXPECT_EQ(read(experts + "8 --expert-model-parallel-size 2").parallel.grid.of(8, 2).expert_gradient_size(), 4);
  expect_refused(experts + "6 --ep 4", "--expert-model-parallel-size 4 does not divide the 6 experts of a layer");
  expect_refused(gpt + "--cp 4 --ep 4", "--expert-model-parallel-size 4: the model has no experts");
}

TEST(ExpertRanks, AreContextAndDataRanks) {
  expect_refused(experts + "8 --ep 8",
                 "does not divide the 4 ranks of context size 4 x data size 1. Try one of 1, 2, 4");
  expect_refused(experts + "9 --ep 3", "does not divide the 4 ranks");
}

TEST(ExpertRanks, MaySplitExpertsOverOthersThanTheTensorRanks) {
  EXPECT_FALSE(read(experts + "8 --tp 2 --expert-tensor-parallel-size 2").parallel.grid.of(8, 1).folds_experts());
  const parallel::ProcessGrid grid =
      read(experts + "8 --tp 2 --ep 8 --expert-tensor-parallel-size 1").parallel.grid.of(8, 1);
  EXPECT_EQ(grid.expert_gradient_size(), 1);
  EXPECT_EQ(grid.expert_tensor_size(), 1);
  expect_refused(experts + "8 --tp 2 --expert-tensor-parallel-size 3",
                 "expert tensor size 3 (--expert-tensor-parallel-size) does not divide the 8 ranks of tensor size 2");
  expect_refused(gpt + "--tp 2 --expert-tensor-parallel-size 1",
                 "--expert-tensor-parallel-size: the model has no experts. Leave it out");
  expect_refused(experts + "8 --tp 2 --expert-tensor-parallel-size 1 --variable-seq-lengths",
                 "--variable-seq-lengths needs --expert-tensor-parallel-size equal to --tensor-model-parallel-size");
}

TEST(ExpertRanks, NeedMicroBatchesOfEqualLength) {
  expect_refused(experts + "8 --ep 2 --variable-seq-lengths",
                 "--expert-model-parallel-size and --variable-seq-lengths exclude each other");
  EXPECT_TRUE(read(experts + "8 --variable-seq-lengths").execution_config().variable_lengths);
  for (const std::string counts :
       {"--moe-aux-loss-coeff 0.1", "--moe-z-loss-coeff 0.1", "--moe-expert-capacity-factor 2",
        "--moe-router-score-function sigmoid --moe-router-enable-expert-bias"}) {
    expect_refused(experts + "8 --variable-seq-lengths " + counts,
                   "--variable-seq-lengths would change the training: padding counts");
  }
}

TEST(RowChunks, LeaveEachTensorRankItsConsecutiveTokensForExperts) {
  const Words folded = experts + "8 --tp 2 --expert-tensor-parallel-size 1 --tp-comm-overlap-chunks 2 ";
  EXPECT_EQ(read(folded).execution_config().parallel.row_chunks, 2);
  expect_refused(folded + "--sequence-parallel",
                 "--tp-comm-overlap-chunks 2 with --sequence-parallel needs --expert-tensor-parallel-size equal to "
                 "--tensor-model-parallel-size");
}

TEST(RegisteredBuffers, AreOfOneSizeOnAllRanksAndSummedInAnyOrder) {
  const Words registered = gpt + "--tp 2 --use-nccl-ub ";
  EXPECT_TRUE(read(registered).execution_config().parallel.registered_buffers);
  expect_refused(registered + "--deterministic-mode", "--use-nccl-ub and --deterministic-mode exclude each other");
  expect_refused(registered + "--communicator staged", "--use-nccl-ub and --communicator staged exclude each other");
  expect_refused(experts + "8 --use-nccl-ub", "--use-nccl-ub excludes experts");
}

TEST(Experts, AreNotRecorded) {
  expect_refused(experts + "8 --cuda-graphs", "--moe-pad-expert-input-to-capacity, or leave out --cuda-graphs");
}

}  // namespace
}  // namespace trireme::app

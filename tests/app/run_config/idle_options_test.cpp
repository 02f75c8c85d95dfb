#include "src/app/run_config/idle_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/app/run_config/run_config.hpp"
#include "tests/app/words.hpp"

namespace trireme::app {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Options of a script for many ranks.
const Words many_ranks =
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 1000 --schedule "
    "zero-bubble --overlap-p2p-communication --no-scatter-gather-tensors-in-pipeline --sequence-parallel "
    "--tp-comm-overlap-chunks 2 "
    "--distributed-timeout-minutes 5 --bf16";

std::vector<std::string> idle(const Words& words, const parallel::ProcessGrid& grid,
                              const std::string& model = "gpt2-124m") {
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(words + "--lr 1 --train-iters 1 --data-path a.h5 --model " + model);
  const RunConfig& config = reader.settle(grid.data_size());
  const bool has_padding = config.model.config(*config.batch.sequence_length, 1).is_bert();
  return idle_options(options, grid, config.precision.dtype, {has_padding, has_padding});
}

TEST(IdleOptions, OfAScriptForManyRanksAreNamedOnOne) {
  EXPECT_THAT(idle(many_ranks, parallel::ProcessGrid(1, 1, 1)),
              ElementsAre("--distributed-timeout-minutes (one rank)", "--schedule (one pipeline stage)",
                          "--overlap-p2p-communication (one pipeline stage)",
                          "--no-scatter-gather-tensors-in-pipeline (one pipeline stage)",
                          "--sequence-parallel (one tensor rank)", "--tp-comm-overlap-chunks (one tensor rank)",
                          "--use-distributed-optimizer (one data rank)", "--overlap-grad-reduce (one data rank)",
                          "--overlap-param-gather (one data rank)", "--ddp-bucket-size (one data rank)"));
}

TEST(IdleOptions, AreUsedOnALargerGrid) {
  EXPECT_THAT(idle(many_ranks, parallel::ProcessGrid(8, 2, 2)), IsEmpty());
  EXPECT_THAT(idle(many_ranks, parallel::ProcessGrid(8, 2, 2, 2)), IsEmpty());  // context ranks reduce gradients, too
  EXPECT_THAT(idle(many_ranks, parallel::ProcessGrid(4, 2, 2, 1, 1, 1, 1)),
              IsEmpty());  // tensor ranks those of experts
  EXPECT_THAT(idle(many_ranks, parallel::ProcessGrid(4, 1, 2)),
              ElementsAre("--no-scatter-gather-tensors-in-pipeline (one tensor rank)",
                          "--sequence-parallel (one tensor rank)", "--tp-comm-overlap-chunks (one tensor rank)"));
  EXPECT_THAT(idle({}, parallel::ProcessGrid(1, 1, 1)), IsEmpty());
  EXPECT_THAT(idle("--recompute-granularity full --distribute-saved-activations", parallel::ProcessGrid(1, 1, 1)),
              ElementsAre("--distribute-saved-activations (one tensor rank)"));
}

TEST(IdleOptions, OfTheLoadOfExpertsAreNamedWhereItIsKnown) {
  const Words experts =
      "--num-experts 4 --disable-bias-linear --moe-expert-capacity-factor 1 --expert-load-factor 2 --ep 2";
  const parallel::ProcessGrid grid(2, 1, 1, 1, 0, 2);
  EXPECT_THAT(idle(experts, grid), IsEmpty());
  EXPECT_THAT(idle(experts + "--moe-pad-expert-input-to-capacity", grid),
              ElementsAre("--expert-load-factor (experts are padded to equal loads)"));
  EXPECT_THAT(idle("--expert-load-factor 2", parallel::ProcessGrid(2, 1, 1)),
              ElementsAre("--expert-load-factor (one expert rank)"));
}

TEST(IdleOptions, OfTheDynamicLossScaleAreNamedInBf16) {
  const Words script = "--loss-scale 0 --initial-loss-scale 4096 --loss-scale-window 500 --bf16";
  EXPECT_THAT(idle(script, parallel::ProcessGrid(2, 1, 1)),
              ElementsAre("--loss-scale (bf16 has no dynamic loss scale)",
                          "--initial-loss-scale (bf16 has no dynamic loss scale)",
                          "--loss-scale-window (bf16 has no dynamic loss scale)"));
  EXPECT_THAT(idle("--loss-scale 8 --bf16", parallel::ProcessGrid(2, 1, 1)), IsEmpty());  // a constant one
}

TEST(IdleOptions, OfSchedulesThatDoNotReadThemAreNamedUnlessTheyAreDefaults) {
  const parallel::ProcessGrid one(1, 1, 1);
  Words schedules =
      "--lr-decay-style constant --min-lr 1e-5 --weight-decay 0.1 --weight-decay-incr-style linear "
      "--start-weight-decay 0.05 --end-weight-decay 0.1 --lr-warmup-init 0";
  EXPECT_THAT(idle(schedules, one),
              ElementsAre("--min-lr (the rate stays at --lr)",
                          "--weight-decay (it grows from --start-weight-decay to --end-weight-decay)"));
  schedules[3] = "0.0";
  schedules[5] = "1e-2";
  EXPECT_THAT(idle(schedules, one), IsEmpty());
  EXPECT_THAT(idle("--min-lr 1e-5 --weight-decay 0.1", one), IsEmpty());
}

TEST(IdleOptions, VariableLengthsAreThoseOfSamplesWithPadding) {
  EXPECT_THAT(idle("--variable-seq-lengths", parallel::ProcessGrid(1, 1, 1)),
              ElementsAre("--variable-seq-lengths (running text has no padding)"));
  EXPECT_THAT(idle("--variable-seq-lengths", parallel::ProcessGrid(1, 1, 1), "bert-base"), IsEmpty());
}

TEST(IdleOptions, OfReportsNeedTheirFileOrTimes) {
  const parallel::ProcessGrid one(1, 1, 1);
  EXPECT_THAT(idle("--log-memory-to-tensorboard --tensorboard-log-interval 2 --profile-ranks 0", one),
              ElementsAre("--tensorboard-log-interval (no --tensorboard-dir)",
                          "--log-memory-to-tensorboard (no --tensorboard-dir)", "--profile-ranks (no --profile)"));
  EXPECT_THAT(idle("--tensorboard-dir x --log-memory-to-tensorboard --log-throughput", one), IsEmpty());
  EXPECT_THAT(idle("--log-progress --log-straggler --timing-log-option all", one),
              ElementsAre("--log-progress (no --save)", "--timing-log-option (no --timing-log-level)",
                          "--log-straggler (one rank)"));
}

}  // namespace
}  // namespace trireme::app

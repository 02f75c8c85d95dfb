#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "tests/app/megatron/train_options.hpp"

namespace trireme::app::megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using DeepSpeedTable = TrainOptionsTest;
using SplitPaths = TrainOptionsTest;

/// Translates a line with a file of DeepSpeed.
class TranslateDeepSpeed : public TrainOptionsTest {
 protected:
  Translation with(const std::string& json, const Words& line = {}) const {
    const std::string path = ::testing::TempDir() + "ds_config.json";
    std::ofstream(path) << json;
    return translate(Words{"--deepspeed", "--deepspeed_config", path} + line, options_);
  }
};

TEST_F(DeepSpeedTable, HasEverySettingOfDeepSpeedOnceWithItsMeaning) {
  std::set<std::string_view> names;
  for (const Flag& setting : deepspeed_settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_TRUE(setting.kind != Kind::absent || setting.text.find("nearest: ") != setting.text.npos) << setting.name;
    if (setting.kind != Kind::works) continue;
    for (const std::string& option : options_in(setting.text)) EXPECT_NE(options_.spelling(option), "") << option;
  }
}

TEST_F(TranslateDeepSpeed, MakesOptionsOfSettings) {
  const Translation line = with(R"({"train_batch_size": 512, "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2, "overlap_comm": true,
    "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "none", "pin_memory": true}}, "fp16": {"enabled": true,
    "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1, "initial_scale_power": 12},
    "bf16": {"enabled": false}, "steps_per_print": 2000, "wall_clock_breakdown": false,
    "tensorboard": {"enabled": true, "output_path": "x"}})");
  EXPECT_EQ(line.refusal(), "");
  EXPECT_EQ(line.arguments,
            Words("--fp16 --hysteresis 2 --initial-loss-scale 4096 --loss-scale 0 --loss-scale-window 500 "
                  "--min-loss-scale 1 --micro-batches 8 --clip-grad 1.0 --global-batch-size 512 --micro-batch-size 4 "
                  "--data-parallel-sharding-strategy optim_grads"));
}

TEST_F(TranslateDeepSpeed, ComparesSettingsWithTheLine) {
  const std::string json = R"({"gradient_clipping": 1.0, "train_batch_size": "auto", "zero_optimization": {"stage": 1},
    "fp16": {"enabled": false, "loss_scale": 8}})";
  const Translation same = with(json, "--clip-grad 1 --zero-stage 1 --bf16");
  EXPECT_EQ(same.refusal(), "");
  EXPECT_EQ(same.arguments, Words("--clip-grad 1 --data-parallel-sharding-strategy optim --bf16"));
  EXPECT_THAT(with(json, "--clip-grad 0.5 --zero-stage 0 --fp16").refusal(),
              AllOf(HasSubstr("gradient_clipping 1.0: contradicts --clip-grad 0.5"),
                    HasSubstr("zero_optimization.stage 1: contradicts --data-parallel-sharding-strategy no_shard"),
                    HasSubstr("fp16.enabled false: the command line has --fp16")));
  EXPECT_EQ(with(R"({"gradient_clipping": 2})", Words("-- x")).arguments, Words("--clip-grad 2 -- x"));
}

// DeepSpeed's runtime reads the scale of the loss in its file alone.
TEST_F(TranslateDeepSpeed, TakesTheLossScaleOfTheFile) {
  const std::string json = R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12}})";
  const Translation line = with(json, "--fp16 --loss-scale 12 --lr 1");
  EXPECT_EQ(line.refusal(), "");
  EXPECT_EQ(line.arguments, Words("--fp16 --lr 1 --initial-loss-scale 4096 --loss-scale 0"));
  const std::string path = ::testing::TempDir() + "ds_config.json";
  EXPECT_THAT(translate(Words("--fp16 --loss-scale 12 --deepspeed_config " + path), options_).refusal(),
              HasSubstr("fp16.loss_scale 0: contradicts --loss-scale 12"))
      << "without --deepspeed";
}

TEST_F(TranslateDeepSpeed, CountsTokensInSamplesAndIterations) {
  const Words run("--seq-length 2048 --global-batch-size 256 --train-samples 1000000");
  EXPECT_EQ(words(run + Words("--lr-decay-samples 5 --lr-decay-tokens 260_000_000_000 --lr-warmup-tokens 375000000 "
                              "--train-tokens 300000000000")),
            run + Words("--lr-decay-samples 126953125 --lr-warmup-samples 183105"))
      << "the run ends before its last token";
  // 3e8 tokens are 572.2 batches of 2048 x 256.
  EXPECT_EQ(words(Words("--train-tokens 300000000") + run), run + Words("--exit-interval 573"));
  // 2 batches of 4 samples, 1 of 8, then of 12: 29 samples are reached by the 5th.
  const Words ramp("--seq-length 100 --global-batch-size 12 --train-samples 60 --rampup-batch-size 4 4 16");
  EXPECT_EQ(words(Words("--train-tokens 2900") + ramp), ramp + Words("--exit-interval 5"));
  EXPECT_EQ(words(Words("--train-tokens 2800") + ramp), ramp + Words("--exit-interval 4"));
  const std::pair<Words, const char*> refused[] = {
      {run + Words("--train-tokens x"), "x is not a number from 0 on; nearest: "},
      {run + Words("--train-tokens 3000 --exit-interval 7"), "--exit-interval ends the run, too; nearest: "},
      {run + Words("--train-tokens 3000 --rampup-batch-size 16 16"), "is not START INCREMENT SAMPLES"},
      {Words("--lr-decay-tokens 3000"), "the value of --seq-length is not a number from 0 on; nearest: "}};
  for (const auto& [line, problem] : refused) {
    EXPECT_THAT(translate(line, options_).refusal(), HasSubstr(problem)) << problem;
  }
}

TEST_F(TranslateDeepSpeed, DividesLayersAndEmbeddingsTogether) {
  const Words bloom("--num-layers 70 --pipeline-model-parallel-size 12");
  EXPECT_EQ(words(Words("--pp-partition-method 'type:transformer|embedding'") + bloom),
            bloom + Words("--pipeline-model-parallel-layout 5,6,6,6,6,6,6,6,6,6,6,5"));
  EXPECT_EQ(words("--num-layers 70 --pp-partition-method type:transformer|embedding"), Words("--num-layers 70"));
  EXPECT_EQ(words("--num-layers 72 --pp-partition-method type:transformer"), Words("--num-layers 72"));
  EXPECT_THAT(translate(Words("--num-layers 72 --pipeline-model-parallel-size 12 --pp-partition-method "
                              "type:transformer|embedding"),
                        options_)
                  .refusal(),
              HasSubstr("72 layers and two embeddings do not divide into 12 stages; nearest: "));
  EXPECT_THAT(translate(Words("--pp-partition-method parameters"), options_).refusal(),
              HasSubstr("nearest: --pipeline-model-parallel-layout"));
}

TEST_F(TranslateDeepSpeed, TakesItsExpertsOnlyIfThereIsOne) {
  const Words flags("--moe-loss-coeff 0.01 --moe-train-capacity-factor 1.0 --topk 1 --create-moe-param-group");
  EXPECT_EQ(words(flags + Words("--num-experts 1")), Words());
  for (const char* topk : {"--topk 1", "--topk 2", "--topk 6"}) {
    const Words one = Words("--num-experts 1 --moe-expert-parallel-size 8 --disable-moe-token-dropping") + Words(topk);
    EXPECT_EQ(words(one), Words()) << topk;
    EXPECT_EQ(translate(one, options_).refusal(), "") << topk;
  }
  EXPECT_THAT(translate(flags + Words("--num-experts 64 128"), options_).refusal(),
              AllOf(HasSubstr("--moe-loss-coeff 0.01: DeepSpeed's experts drop tokens at random"),
                    HasSubstr("--create-moe-param-group: ")));
}

TEST_F(TranslateDeepSpeed, TakesItsExpertsIfTheyKeepAllTokens) {
  const Words flags(
      "--num-experts 64 --moe-expert-parallel-size 8 --moe-loss-coeff 0.01 --moe-train-capacity-factor 1.0 "
      "--moe-eval-capacity-factor 1.0 --moe-min-capacity 4 --create-moe-param-group --mlp-type standard "
      "--disable-moe-token-dropping");
  const Words known("--num-experts 64 --expert-model-parallel-size 8 --moe-aux-loss-coeff 0.01");
  EXPECT_EQ(words(flags), known + Words("--moe-router-topk 1 --moe-router-pre-softmax"));
  EXPECT_EQ(words(flags + Words("--topk 1")), known + Words("--moe-router-pre-softmax --moe-router-topk 1"));
  EXPECT_EQ(words(flags + Words("--topk 6")), known + Words("--moe-router-topk 6"));
  EXPECT_THAT(
      translate(flags + Words("--topk 2"), options_).refusal(),
      HasSubstr("--disable-moe-token-dropping: the balance loss of two experts counts first choices alone there; "
                "nearest: --moe-router-topk 2 instead of --topk 2"));
  EXPECT_EQ(words(flags + Words("--moe-router-topk 2")), known + Words("--moe-router-topk 2"));
  EXPECT_THAT(translate(Words("--num-experts 64 --topk 2"), options_).refusal(),
              HasSubstr("--topk 2: the balance loss of two experts"));
  EXPECT_THAT(translate(flags + Words("--mlp-type residual"), options_).refusal(),
              HasSubstr("--mlp-type residual: residual experts weigh a dense block"));
}

TEST_F(TranslateDeepSpeed, RefusesSettingsByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"zero_optimization": {"stage": 3}})", "zero_optimization.stage 3: parameters are not sharded"},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})",
       "offload_optimizer.device nvme: host memory keeps"},
      {R"({"scheduler": {"type": "WarmupLR"}})", "scheduler.type WarmupLR: nearest: --lr-decay-style"},
      {R"({"curriculum_learning": {"enabled": true, "params": {}}})", "curriculum_learning.enabled true: samples have"},
      {R"({"data_efficiency": {"enabled": true, "data_sampling": {"enabled": true}}})",
       "data_efficiency.data_sampling.enabled true: samples have"},
      {R"({"gradient_clip": 1})", "gradient_clip 1: is in no release of DeepSpeed"},
      {"{", "ds_config.json: not JSON"},
      {"[]", "ds_config.json: an array instead of an object"}};
  for (const auto& [json, problem] : cases) EXPECT_THAT(with(json).refusal(), HasSubstr(problem)) << json;
  EXPECT_EQ(with(R"({"data_efficiency": {"enabled": true, "data_routing": {"enabled": false}}})").refusal(), "");
  EXPECT_THAT(translate(Words("--deepspeed_config nowhere.json"), options_).refusal(), HasSubstr("nowhere.json"));
}

TEST_F(SplitPaths, BecomeBlendsAndShares) {
  EXPECT_EQ(words({"--train-weighted-split-paths", "TRAIN: 0.3 0:1 a.h5, 0.7 0:1 b.h5", "--valid-weighted-split-paths",
                   "V: 1 0:1 c.h5", "--test-weighted-split-paths", "T: 1 0:1 d.h5"}),
            Words("--train-data-path 0.3 a.h5 0.7 b.h5 --valid-data-path c.h5 --test-data-path d.h5"));
  EXPECT_EQ(words({"--train-weighted-split-paths", "t: 1 0:1 a.h5", "--valid-weighted-split-paths", "x: 1 0:1 b.h5",
                   "y: 2 0:1 c.h5, 1 0:1 d.h5"}),
            Words("--train-data-path a.h5 --valid-set x=b.h5 y=2 c.h5 1 d.h5"));
  EXPECT_EQ(words({"--valid-weighted-split-paths", "V: 3 0.949:0.999 a.h5, 1 0.949:0.999 b.h5",
                   "--train-weighted-split-paths", "T: 3 0:0.949 a.h5, 1 0:0.949 b.h5", "--test-weighted-split-paths",
                   "X: 3 0.999:1 a.h5, 1 0.999:1.0 b.h5"}),
            Words("--data-path 3 a.h5 1 b.h5 --split 0.949,0.05,0.001"));
  EXPECT_EQ(words({"--train-weighted-split-paths", "train: 3 0:0.95 a.h5, 1 0:0.95 b.h5",
                   "--valid-weighted-split-paths", "valid: 3 0.95:1.0 a.h5, 1 0.95:1.0 b.h5", "of_a: 1 0.95:1 a.h5"}),
            Words("--data-path 3 a.h5 1 b.h5 --split 0.95,0.05,0 --valid-set of_a=a.h5 --split-valid-sets"));
  const std::string path = ::testing::TempDir() + "split_paths.txt";
  std::ofstream(path) << "\"x: 1 0:1 b.h5\" \"y: 1 0:1 c.h5\"\n";
  EXPECT_EQ(words({"--train-weighted-split-paths", "t: 1 0:1 a.h5", "--valid-weighted-split-paths-path", path}),
            Words("--train-data-path a.h5 --valid-set x=b.h5 y=c.h5"));
  const std::pair<Words, const char*> refused[] = {
      {{"TRAIN: 1 0:0.9 a.h5"}, "the last part ends at 0.9, and --split has no part without use; nearest: "},
      {{"TRAIN: 1 0:0.9 a.h5, 1 0:1 b.h5"}, "parts of corpora are shares of one --split; nearest: "},
      {{"T: 1 0:0.9 a.h5", "--valid-weighted-split-paths", "V: 1 0.9:1 b.h5"}, "parts of corpora are shares"},
      {{"TRAIN: 1 0:1 a.h5", "B: 1 0:1 b.h5"}, "training needs one group of corpora"},
      {{"TRAIN: 1 a.h5"}, "is not WEIGHT START:END PATH; nearest: "},
      {{"TRAIN"}, "'TRAIN' has no corpus; nearest: "}};
  for (const auto& [groups, problem] : refused) {
    EXPECT_THAT(translate(Words("--train-weighted-split-paths") + groups, options_).refusal(), HasSubstr(problem));
  }
  EXPECT_THAT(translate(Words("--train-weighted-split-paths-path nowhere.txt"), options_).refusal(),
              HasSubstr("nowhere.txt"));
}

}  // namespace
}  // namespace trireme::app::megatron

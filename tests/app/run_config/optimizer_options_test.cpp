#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/optim/grad_norm.hpp"
#include "tests/app/run_config/read_config.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RunConfig, RefusesOptionsOfAnotherOptimizer) {
  for (const std::string name : {"adam-beta1", "adam-beta2", "adam-eps"}) {
    expect_refused(gpt + Words{"--optimizer", "sgd", "--" + name, "0.5"},
                   "--" + name + " needs --optimizer adam or muon");
  }
  for (const std::string name : {"muon-momentum", "muon-extra-scale-factor", "muon-num-ns-steps"}) {
    expect_refused(gpt + Words{"--" + name, "1"}, "--" + name + " needs --optimizer muon");
  }
  expect_refused("--data-path a.h5 --muon-nesterov", "--muon-nesterov needs --optimizer muon");
  const RunConfig muon = read(
      "--model gpt2-124m --data-path a.h5 --optimizer muon --adam-beta2 0.9 --muon-no-split-qkv --muon-scale-mode "
      "unit_rms_norm");
  EXPECT_EQ(muon.train_options().optimizer.kind, optim::OptimizerKind::muon);
  EXPECT_EQ(muon.train_options().optimizer.adamw.beta2, 0.9);
  EXPECT_FALSE(muon.train_options().optimizer.muon.split_qkv);
  EXPECT_EQ(muon.train_options().optimizer.muon.scale, optim::MuonScale::unit_rms_norm);
  const std::string joined = "--model gpt2-124m --data-path a.h5 --optimizer muon --muon-no-split-qkv ";
  for (const char* attention : {"--group-query-attention --num-query-groups 4",
                                "--multi-latent-attention --position-embedding-type rope --disable-bias-linear"}) {
    expect_refused(joined + attention, "have no single matrix of queries, keys and values");
  }
  EXPECT_NO_THROW(read(joined + "--group-query-attention --num-query-groups 12"));
  expect_refused("--data-path a.h5 --sgd-momentum 0.5", "--sgd-momentum needs --optimizer sgd");
}

/// Reads a command line that trains by samples, in sequences of 1024 tokens.
RunConfig read_by_samples(const Words& words) {
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(words + gpt + "--lr 1 --train-samples 2000 --seq-length 1024 --micro-batch-size 4");
  return reader.settle(2);
}

TEST(RunConfig, ReadsTheSchedulesOfMegatronLm) {
  const RunConfig wsd = read(
      "--model gpt2-124m --data-path a.h5 --lr-decay-style WSD --lr-decay-iters 55 --lr-wsd-decay-iters 12 "
      "--lr-warmup-iters 5 --lr-warmup-init 0.25 --weight-decay-incr-style cosine --start-weight-decay 0.1 "
      "--end-weight-decay 0.3");
  EXPECT_EQ(wsd.optimizer.lr.style, optim::LrDecayStyle::wsd);
  EXPECT_EQ(wsd.optimizer.lr.wsd_style, optim::WsdDecayStyle::exponential);
  EXPECT_EQ(wsd.optimizer.lr.wsd_decay, 12);
  EXPECT_EQ(wsd.optimizer.lr.initial, 0.25);
  const optim::WeightDecayRamp ramp = wsd.train_options().weight_decay_ramp.value();
  EXPECT_EQ(ramp.style, optim::WeightDecayStyle::cosine);
  EXPECT_EQ((std::pair{ramp.start, ramp.end}), (std::pair{0.1, 0.3}));
  EXPECT_EQ(wsd.train_options().optimizer.weight_decay, 0.3);
  EXPECT_EQ(ramp.length, 1);
  EXPECT_FALSE(
      read("--model gpt2-124m --data-path a.h5 --weight-decay-incr-style constant").train_options().weight_decay_ramp);
  const RunConfig samples = read_by_samples(
      "--lr-decay-style WSD --lr-wsd-decay-samples 640 --lr-warmup-fraction 0.05 --weight-decay-incr-style linear "
      "--start-weight-decay 0 --end-weight-decay 0.1");
  EXPECT_EQ(samples.optimizer.lr.wsd_decay, 640);
  EXPECT_EQ(samples.optimizer.lr.warmup, 100);
  EXPECT_EQ(samples.train_options().weight_decay_ramp->length, 2000);
}

TEST(RunConfig, TakesStepsOfTheBatchInTokens) {
  const auto steps = [](const std::string& text) {
    const RunConfig config = read_by_samples(Words{"--step-batch-size-schedule", text});
    std::vector<std::pair<std::int64_t, std::int64_t>> levels;
    const train::TrainOptions options = config.train_options();
    for (const auto& level : std::get<train::BatchSteps>(*options.ramp_up).levels) {
      levels.emplace_back(level.begin, level.size);
    }
    EXPECT_EQ(config.train_options().global_batch_size,
              std::ranges::max(levels, {}, [](auto l) { return l.second; }).second);
    return levels;
  };
  using Levels = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(steps("0:32 100K:64 250K:96"), (Levels{{0, 32}, {97, 64}, {244, 96}}));
  EXPECT_EQ(steps("250k:96,0:32, 0.1M:64"), (Levels{{0, 32}, {97, 64}, {244, 96}}));
  EXPECT_EQ(steps("0:64 4B:32 1T:8"), (Levels{{0, 64}, {3906250, 32}, {976562500, 8}}));
  EXPECT_EQ(steps("0:64 8.2M:8.008K"), (Levels{{0, 64}, {8007, 8008}})) << "not one less";
  const auto refused = [&](const Words& words, const std::string& message) {
    EXPECT_THAT([&] { read_by_samples(words); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused({"--step-batch-size-schedule", "0:16 1000:32 1023:64"}, "begin at sample 0");
  refused({"--step-batch-size-schedule", "0:16 100"}, "'100' is not TOKENS:BATCH");
  refused({"--step-batch-size-schedule", "0:16 abc:32"}, "'abc' is not a number from 0 to 1e18");
  refused({"--step-batch-size-schedule", " "}, "must begin at 0");
  refused({"--step-batch-size-schedule", "0:4 64:8.9"}, "'8.9' is not a whole number");
  refused({"--step-batch-size-schedule", "0:xK"}, "'xK' is not a number");
  refused("--step-batch-size-schedule 0:16 --global-batch-size 16", "exclude each other");
  refused("--step-batch-size-schedule 0:16 --rampup-batch-size 8 8 100", "exclude each other");
  expect_refused("--data-path a.h5 --step-batch-size-schedule 0:16", "needs --train-samples instead");
}

TEST(RunConfig, RefusesSchedulesThatContradict) {
  expect_refused("--data-path a.h5 --lr-decay-style WSD", "WSD needs --lr-wsd-decay-iters");
  expect_refused("--data-path a.h5 --lr-wsd-decay-iters 5", "--lr-wsd-decay-iters needs --lr-decay-style WSD");
  expect_refused("--data-path a.h5 --lr-wsd-decay-style cosine", "--lr-wsd-decay-style needs --lr-decay-style");
  expect_refused("--data-path a.h5 --lr-wsd-decay-samples 5", "needs --train-samples");
  expect_refused("--data-path a.h5 --lr-warmup-init 0.1", "--lr-warmup-init above 0 needs a warm-up");
  expect_refused("--data-path a.h5 --start-weight-decay 0.1", "needs --weight-decay-incr-style linear");
  expect_refused("--data-path a.h5 --weight-decay-incr-style linear --start-weight-decay 0.1",
                 "needs --start-weight-decay and --end-weight-decay");
  expect_refused("--data-path a.h5 --weight-decay-incr-style linear --start-weight-decay 0.3 --end-weight-decay 0.2",
                 "--start-weight-decay 0.3 must be at least 0 and at most --end-weight-decay 0.2");
  expect_refused("--data-path a.h5 --rampup-batch-size 2 2 24", "--rampup-batch-size needs --train-samples");
  expect_refused("--data-path a.h5 --lr-decay-samples 24", "--lr-decay-samples needs --train-samples; with");
  const std::pair<const char*, const char*> by_samples[] = {
      {"--lr-warmup-iters 2", "--lr-warmup-iters needs --train-iters; with --train-samples give --lr-warmup-samples"},
      {"--lr-warmup-samples 10 --lr-warmup-fraction 0.1",
       "--lr-warmup-fraction and --lr-warmup-samples exclude each other"},
      {"--lr-warmup-samples 10 --lr-decay-samples 10", "--lr-warmup-samples 10 must be below --lr-decay-samples 10"},
      {"--lr-decay-style inverse-square-root", "give --lr-warmup-samples of at least 1"},
      {"--global-batch-size 24 --rampup-batch-size 8 12 24",
       "--rampup-batch-size 8 12 24 does not lead to --global-batch-size 24"},
      {"--rampup-batch-size 8 8", "three numbers are needed"}};
  for (const auto& [words, problem] : by_samples) {
    EXPECT_THAT([&] { read_by_samples(words); }, ThrowsMessage<ConfigError>(HasSubstr(problem)));
  }
}

TEST(RunConfig, HoldsNormsAndDecoupledRates) {
  const auto options = [](const Words& words) { return read(gpt + words).train_options(); };
  EXPECT_EQ(options({}).grad_norm_power, 2);
  EXPECT_EQ(options("--grad-norm-type inf").grad_norm_power, optim::infinity_norm);
  EXPECT_EQ(options("--grad-norm-type 3").grad_norm_power, 3);
  for (const std::string type : {"0", "17", "2.5", "max", ""}) {
    expect_refused(gpt + Words{"--grad-norm-type", type}, "is neither a whole number from 1 to 16 nor inf");
  }
  const train::DecoupledRate rate = *options("--decoupled-lr 0.5 --min-lr 0.1").decoupled_rate;
  EXPECT_EQ((std::pair{rate.maximum, rate.minimum}), (std::pair{0.5, 0.1}));
  EXPECT_EQ(options("--decoupled-lr 0.5 --decoupled-min-lr 0.2").decoupled_rate->minimum, 0.2);
  expect_refused("--data-path a.h5 --decoupled-min-lr 0.5", "--decoupled-min-lr needs --decoupled-lr");
  expect_refused("--data-path a.h5 --decoupled-lr 0.5 --decoupled-min-lr 0.6",
                 "--decoupled-min-lr 0.6 (default --min-lr) must be at most --decoupled-lr 0.5");
}

TEST(RunConfig, RefusesOptionsOfADynamicLossScaleWithoutOne) {
  for (const std::string name : {"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}) {
    const Words given = gpt + Words{"--" + name, "4"};
    expect_refused(given, "--" + name + " needs --fp16: fp32 is trained without");
    expect_refused(given + "--dtype fp64", "--" + name + " needs --fp16: fp64 is trained without");
    expect_refused(given + "--fp16 --loss-scale 8", "--" + name + " and --loss-scale exclude each other");
    EXPECT_NO_THROW(read(given + "--fp16"));
    EXPECT_NO_THROW(read(given + "--bf16"));  // ignored, with a line in the log
  }
}

TEST(RunConfig, LossScaleOfZeroIsDynamic) {
  const auto scale = [](const Words& words) { return read(gpt + words).train_options().loss_scale; };
  const optim::LossScalerOptions dynamic = scale("--fp16 --loss-scale 0 --initial-loss-scale 64");
  EXPECT_TRUE(dynamic.dynamic);
  EXPECT_EQ(dynamic.initial_scale, 64);
  EXPECT_FALSE(scale("--fp16 --loss-scale 8").dynamic);
  EXPECT_EQ(scale("--fp16 --loss-scale 8").initial_scale, 8);
  EXPECT_FALSE(scale("--bf16 --loss-scale 0").dynamic);
  EXPECT_EQ(scale("--bf16 --loss-scale 0").initial_scale, 1);
  expect_refused("--model gpt2-124m --data-path a.h5 --loss-scale 0",
                 "--loss-scale 0, a dynamic loss scale, needs --fp16, not fp32");
}

}  // namespace
}  // namespace trireme::app

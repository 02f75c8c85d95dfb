#include "src/app/run_config/run_attributes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/support/model_variants.hpp"

namespace trireme::app {
namespace {

TEST(RunAttributes, GiveBackEveryModel) {
  std::vector<Attributes> all;
  for (const test::ModelVariant& variant : test::model_variants()) {
    model::GptConfig config;
    config.layers = 3;
    config.norm_epsilon = 1e-6;
    variant.apply(config);
    const Attributes attributes = attributes_of(config);
    EXPECT_EQ(attributes_of(config_from(attributes)), attributes) << variant.name;
    EXPECT_EQ(model::parameter_count(config_from(attributes)), model::parameter_count(config)) << variant.name;
    EXPECT_THAT(all, testing::Not(testing::Contains(attributes))) << variant.name;
    all.push_back(attributes);
  }
}

TEST(RunAttributes, OfCheckpointsFromBeforeThereWereVariantsMeanGpt2) {
  Attributes attributes = attributes_of(model::GptConfig());
  for (const char* name : {"kv_heads", "normalization", "positions", "rotary_base", "rotary_percent", "swiglu",
                           "linear_bias", "tied_output"}) {
    EXPECT_EQ(attributes.erase(std::string("model.") + name), 1u) << name;
  }
  EXPECT_EQ(attributes_of(config_from(attributes)), attributes_of(model::GptConfig()));
}

TEST(RunAttributes, OfAnAbsurdStateAreRefusedByFileAndName) {
  const Attributes good = {{"state.iteration", "8"},
                           {"state.consumed_samples", "32"},
                           {"state.skipped", "2"},
                           {"state.skipped_in_row", "1"},
                           {"state.updated_samples", "24"},
                           {"state.evaluation_left", "false"},
                           {"state.updates", "6"},
                           {"state.loss_scale", "65536"},
                           {"state.loss_scale_good_updates", "0"},
                           {"state.loss_scale_hysteresis_left", "-3"}};
  EXPECT_NO_THROW(check_attributes(good, 8, "here"));
  EXPECT_NO_THROW(check_attributes({}, 8, "here"));
  for (const auto& [name, values] : std::map<std::string, std::vector<std::string>>{
           {"iteration", {"abc", "-1", "", "8x", " 8", "99999999999999999999", "7", "9", "1000000"}},
           {"consumed_samples", {"-1", "1e3", "3"}},
           {"skipped", {"-1", "9", "3"}},
           {"skipped_in_row", {"-1", "3", "4294967296"}},
           {"updated_samples", {"-1", "33"}},
           {"evaluation_left", {"yes", ""}},
           {"updates", {"-1", "nan", "7"}},
           {"loss_scale", {"nan", "-nan", "inf", "-1", "0", "big"}},
           {"loss_scale_good_updates", {"-1", "0.5"}},
           {"loss_scale_hysteresis_left", {"", "two"}}}) {
    for (const std::string& value : values) {
      Attributes attributes = good;
      attributes["state." + name] = value;
      EXPECT_THAT([&] { check_attributes(attributes, 8, "here"); },
                  testing::ThrowsMessage<CheckpointError>(testing::AllOf(
                      testing::StartsWith("here: "), testing::HasSubstr("state." + name), testing::HasSubstr(value))))
          << value;
    }
    Attributes attributes = good;
    attributes.erase("state." + name);
    if (name != "evaluation_left") {
      EXPECT_THROW(check_attributes(attributes, 8, "here"), CheckpointError) << name;
    }
  }
  EXPECT_THROW(check_attributes(good, 9, "here"), CheckpointError);
  EXPECT_THROW(check_attributes({{"data_budgets", "1,2,3x"}}, 8, "here"), CheckpointError);
  EXPECT_THROW(check_attributes({{"dtype", "fp7"}}, 8, "here"), CheckpointError);
}

TEST(RunAttributes, TellWhichOptionsOfTrainingChanged) {
  train::TrainOptions options;
  options.lr_schedule.maximum = 0.1;
  Attributes stored = attributes_of(options);
  stored["dtype"] = "fp32";
  EXPECT_THAT(changed_options(stored, stored), testing::IsEmpty());
  options.lr_schedule.maximum = 0.02;
  options.lr_schedule.style = optim::LrDecayStyle::cosine;
  options.lr_schedule.warmup = 7;
  options.optimizer.weight_decay = 0;
  options.optimizer.adamw = {0.8, 0.95, 1e-6};
  options.clip_grad = 0.5;
  options.loss_scale = {.dynamic = true, .minimum_scale = 2};
  options.global_batch_size = 3;
  Attributes now = attributes_of(options);
  now["dtype"] = "fp16";
  EXPECT_THAT(
      changed_options(stored, now),
      testing::UnorderedElementsAre(
          "--dtype was fp32 in the checkpoint, now fp16", "--lr was 0.1 in the checkpoint, now 0.02",
          "--lr-decay-style was linear in the checkpoint, now cosine",
          "--lr-warmup-iters was 0 in the checkpoint, now 7", "--adam-beta1 was 0.9 in the checkpoint, now 0.8",
          "--adam-beta2 was 0.999 in the checkpoint, now 0.95", "--adam-eps was 1e-08 in the checkpoint, now 1e-06",
          "--weight-decay was 0.01 in the checkpoint, now 0", "--clip-grad was 1 in the checkpoint, now 0.5",
          "--loss-scale was 1 in the checkpoint, now dynamic", "--min-loss-scale was not set in the checkpoint, now 2",
          "--loss-scale-window was not set in the checkpoint, now 1000",
          "--hysteresis was not set in the checkpoint, now 2", "--global-batch-size was 1 in the checkpoint, now 3"));
  EXPECT_THAT(changed_options({{"dtype", "fp32"}}, now),  // an older checkpoint
              testing::ElementsAre("--dtype was fp32 in the checkpoint, now fp16"));
}

TEST(RunAttributes, TellWhichOptimizerAStateBelongsTo) {
  train::TrainOptions options;
  const Attributes adam = attributes_of(options);
  options.optimizer.kind = optim::OptimizerKind::sgd;
  const Attributes sgd = attributes_of(options);
  EXPECT_NO_THROW(require_same_optimizer(adam, adam));
  EXPECT_NO_THROW(require_same_optimizer(sgd, sgd));
  EXPECT_NO_THROW(require_same_optimizer({{"dtype", "fp32"}}, adam));  // an older checkpoint
  EXPECT_THAT([&] { require_same_optimizer(sgd, adam); },
              testing::ThrowsMessage<CheckpointError>(testing::HasSubstr("Try --optimizer sgd")));
  EXPECT_THROW(require_same_optimizer(adam, sgd), CheckpointError);
  EXPECT_THROW(require_same_optimizer({{"dtype", "fp32"}}, sgd), CheckpointError);
  options.optimizer.sgd.momentum = 0.5;
  EXPECT_THAT(changed_options(sgd, attributes_of(options)),
              testing::ElementsAre("--sgd-momentum was 0.9 in the checkpoint, now 0.5"));
}

TEST(RunAttributes, OfAnImpossibleModelAreABadCheckpoint) {
  Attributes attributes = attributes_of(model::GptConfig());
  attributes["model.kv_heads"] = "5";
  EXPECT_THAT([&] { config_from(attributes); },
              testing::ThrowsMessage<CheckpointError>(testing::HasSubstr("<num_query_groups> 5 must divide")));
  attributes["model.kv_heads"] = "many";
  EXPECT_THROW(config_from(attributes), CheckpointError);
}

}  // namespace
}  // namespace trireme::app

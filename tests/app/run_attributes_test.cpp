#include "src/app/run_attributes.hpp"

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

TEST(RunAttributes, OfAnImpossibleModelAreABadCheckpoint) {
  Attributes attributes = attributes_of(model::GptConfig());
  attributes["model.kv_heads"] = "5";
  EXPECT_THAT([&] { config_from(attributes); },
              testing::ThrowsMessage<CheckpointError>(testing::HasSubstr("--num-query-groups 5 must divide")));
  attributes["model.kv_heads"] = "many";
  EXPECT_THROW(config_from(attributes), CheckpointError);
}

}  // namespace
}  // namespace trireme::app

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

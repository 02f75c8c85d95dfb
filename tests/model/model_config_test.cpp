#include "src/model/model_config.hpp"

#include <gmock/gmock.h>

#include "src/model/presets.hpp"
#include "tests/support/model_variants.hpp"

namespace trireme::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ModelConfigAttributes, GiveBackEveryModel) {
  std::vector<Attributes> all;
  for (const test::ModelVariant& variant : test::model_variants()) {
    ModelConfig config;
    config.layers = 3;
    config.norm_epsilon = 1e-6;
    variant.apply(config);
    const Attributes attributes = attributes_of(config);
    EXPECT_EQ(attributes_of(config_from(attributes)), attributes) << variant.name;
    EXPECT_EQ(parameter_count(config_from(attributes)), parameter_count(config)) << variant.name;
    EXPECT_THAT(all, testing::Not(testing::Contains(attributes))) << variant.name;
    all.push_back(attributes);
  }
}

TEST(ModelConfigAttributes, NameTheArchitecture) {
  const auto kind_of = [](const ModelConfig& config) { return attributes_of(config).get<std::string>("model.kind"); };
  for (const test::ModelVariant& variant : test::model_variants()) {
    ModelConfig config;
    variant.apply(config);
    EXPECT_EQ(kind_of(config), variant.name == "GPT-2"   ? "gpt2"
                               : variant.name == "Llama" ? "llama"
                               : config.is_bert()        ? "bert"
                                                         : "gpt")
        << variant.name;
  }
  EXPECT_EQ(kind_of(preset("gpt2-8.3b")), "gpt2");
  EXPECT_EQ(kind_of(preset("llama2-7b")), "llama");
  ModelConfig tied = preset("llama3-8b");
  EXPECT_EQ(kind_of(tied), "llama");
  tied.tied_output = true;
  EXPECT_EQ(kind_of(tied), "llama");
}

TEST(ModelConfigAttributes, OfAnOlderLlamaNameItGpt2) {
  const Attributes llama = attributes_of(preset("llama3-8b"));
  Attributes older = llama;
  older.put("model.kind", "gpt2");
  EXPECT_EQ(attributes_of(config_from(older)), llama);
}

TEST(ModelConfigAttributes, ThatContradictTheArchitectureAreRefused) {
  for (const char* kind : {"llama", "gpt"}) {
    Attributes attributes = attributes_of(ModelConfig());
    attributes.put("model.kind", kind);
    EXPECT_THAT(
        [&] { config_from(attributes); },
        ThrowsMessage<CheckpointError>(HasSubstr(fmt::format("the attribute model.kind is '{}' instead of ", kind))));
  }
}

TEST(ModelConfigAttributes, OfAGptThatNameItBertLackAValue) {
  Attributes attributes = attributes_of(ModelConfig());
  attributes.put("model.kind", "bert");
  EXPECT_THAT([&] { config_from(attributes); }, ThrowsMessage<CheckpointError>(HasSubstr("model.norm_placement")));
}

TEST(ModelConfigAttributes, KeepTheirNamesAndTexts) {
  EXPECT_EQ(attributes_of(ModelConfig()), (Attributes{{"model.kind", "gpt2"},
                                                      {"model.layers", "12"},
                                                      {"model.hidden", "768"},
                                                      {"model.heads", "12"},
                                                      {"model.ffn_hidden", "3072"},
                                                      {"model.max_positions", "1024"},
                                                      {"model.vocabulary", "50257"},
                                                      {"model.gelu", "tanh"},
                                                      {"model.norm_epsilon", "1.0000000000000001e-05"},
                                                      {"model.kv_heads", "12"},
                                                      {"model.normalization", "LayerNorm"},
                                                      {"model.positions", "learned_absolute"},
                                                      {"model.rotary_base", "10000"},
                                                      {"model.rotary_percent", "1"},
                                                      {"model.swiglu", "false"},
                                                      {"model.linear_bias", "true"},
                                                      {"model.tied_output", "true"},
                                                      {"model.kv_channels", "64"},
                                                      {"model.qkv_bias", "true"},
                                                      {"model.norm_1p", "false"},
                                                      {"model.qk_norm", "false"},
                                                      {"model.rotary_scaling", "none"}}));
}

TEST(ModelConfigAttributes, FromBeforeThereWereVariantsMeanGpt2) {
  Attributes::Texts texts = attributes_of(ModelConfig()).texts();
  for (const char* name :
       {"kv_heads", "normalization", "positions", "rotary_base", "rotary_percent", "swiglu", "linear_bias",
        "tied_output", "kv_channels", "qkv_bias", "norm_1p", "qk_norm", "rotary_scaling"}) {
    EXPECT_EQ(texts.erase(std::string("model.") + name), 1u) << name;
  }
  EXPECT_EQ(attributes_of(config_from(Attributes(texts))), attributes_of(ModelConfig()));
}

TEST(ModelConfigAttributes, FromBeforeHeadsHadTheirOwnSizeMeanTheHiddenSizeOverTheHeads) {
  const Attributes now = attributes_of(preset("llama3-8b"));
  Attributes::Texts texts = now.texts();
  for (const char* name : {"kv_channels", "qkv_bias", "norm_1p", "qk_norm", "rotary_scaling"}) {
    EXPECT_EQ(texts.erase(std::string("model.") + name), 1u) << name;
  }
  const ModelConfig config = config_from(Attributes(texts));
  EXPECT_EQ(config.head_dim(), 128);
  EXPECT_EQ(attributes_of(config), now);
}

TEST(ModelConfigAttributes, WithAWrongValueAreRefusedByItsName) {
  const Attributes::Texts good = attributes_of(ModelConfig()).texts();
  for (const auto& [name, text] : good) {
    Attributes::Texts texts = good;
    texts[name] = "wrong";
    EXPECT_THAT([&] { config_from(Attributes(texts)); },
                ThrowsMessage<CheckpointError>(HasSubstr("the attribute " + name + " is 'wrong' instead of ")));
    if (name == "model.kv_heads" || name == "model.kv_channels") continue;  // without them the model is a GPT-2
    texts.erase(name);
    EXPECT_THAT([&] { config_from(Attributes(texts)); },
                ThrowsMessage<CheckpointError>(HasSubstr("the attribute " + name + " is missing")));
  }
}

TEST(ModelConfigAttributes, OfAnImpossibleModelAreABadCheckpoint) {
  Attributes attributes = attributes_of(ModelConfig());
  attributes.set_source("here");
  attributes.put("model.kv_heads", 5);
  EXPECT_THAT([&] { config_from(attributes); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("here: "), HasSubstr("5 must divide"))));
}

}  // namespace
}  // namespace trireme::model

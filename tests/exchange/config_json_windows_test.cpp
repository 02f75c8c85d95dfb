// Classes of transformers whose layers have windows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/config_of.hpp"

namespace trireme::io {
namespace {

using exchange::model_class_from;
using testing::AllOf;
using testing::HasSubstr;

TEST(ConfigJson, TheWindowOfAMistralCountsThePositionItself) {
  const auto left = [](const std::string& more) { return config_of(R"(MistralForCausalLM"])" + more).window.left; };
  EXPECT_EQ(left(""), 4095);
  EXPECT_EQ(left(R"(, "sliding_window": 3)"), 2);
  EXPECT_EQ(left(R"(, "sliding_window": null)"), -1);
  EXPECT_THAT(error_of(R"(MistralForCausalLM"], "sliding_window": 0)"), HasSubstr("sliding_window is 0"));
}

TEST(ConfigJson, AGemma2HasWindowsInSomeLayersAndSoftCaps) {
  HuggingFaceModel model;
  model.model_class = &model_class_from("Gemma2ForCausalLM");
  model.config = config_of(R"(Gemma2ForCausalLM"], "num_hidden_layers": 4, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 16, "query_pre_attn_scalar": 144,
      "use_bidirectional_attention": null)");
  EXPECT_EQ(model.config.window.left, 15);
  EXPECT_EQ(model.config.window.layers, "1010");
  EXPECT_EQ(model.config.attention_soft_cap, 50);
  EXPECT_EQ(model.config.logit_soft_cap, 30);
  EXPECT_EQ(model.config.query_scalar, 144);
  EXPECT_EQ(model.config.gate, Activation::gelu_tanh);
  EXPECT_TRUE(model.config.norm_1p && model.config.sandwich_norm && model.config.scaled_embedding);
  EXPECT_THAT(config_json(model, DType::fp32),
              AllOf(HasSubstr("\"hidden_activation\": \"gelu_pytorch_tanh\""), HasSubstr("\"sliding_window\": 16"),
                    HasSubstr("\"final_logit_softcapping\": 30.0"), HasSubstr("\"sliding_attention\"")));
  const model::ModelConfig plain = config_of(R"(Gemma2ForCausalLM"], "num_hidden_layers": 2, "sliding_window": null,
      "attn_logit_softcapping": null, "final_logit_softcapping": null, "hidden_activation": "silu",
      "layer_types": ["full_attention", "full_attention"])");
  EXPECT_EQ(plain.attention_soft_cap, 0);
  EXPECT_EQ(plain.logit_soft_cap, 0);
  EXPECT_EQ(plain.gate, Activation::silu);
  EXPECT_FALSE(plain.window.any());
  model.config = plain;
  EXPECT_THAT(config_json(model, DType::fp32), HasSubstr("\"sliding_window\": 4096"));
  EXPECT_FALSE(parse_config_json(config_json(model, DType::fp32), "config.json").config.window.any());
  EXPECT_THAT(error_of(R"(Gemma2ForCausalLM"], "hidden_activation": "relu", "use_bidirectional_attention": true,
                       "layer_types": ["full_attention"], "attention_bias": true)"),
              AllOf(HasSubstr("hidden_activation is 'relu'"), HasSubstr("use_bidirectional_attention is true"),
                    HasSubstr("for each of 26 layers"), HasSubstr("attention_bias is true")));
}

TEST(ConfigJson, AGemma3HasABaseForLayersWithAWindow) {
  const model::ModelConfig older = config_of(R"(Gemma3ForCausalLM"], "num_hidden_layers": 7, "rope_theta": 5e5,
      "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
      "sliding_window_pattern": 3)");
  EXPECT_EQ(older.window.layers, "1101101");
  EXPECT_EQ(older.rotary_base, 5e5);
  EXPECT_EQ(older.rotary_base_local, 2e4);
  EXPECT_EQ(older.rotary_scaling.interpolation, 8);
  EXPECT_TRUE(older.qk_norm);
  const std::string text = R"(Gemma3ForCausalLM"], "num_hidden_layers": 2, "layer_types": ["sliding_attention",
      "full_attention"], "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
      "sliding_attention": {"rope_type": ")";
  HuggingFaceModel newer;
  newer.model_class = &model_class_from("Gemma3ForCausalLM");
  newer.config = config_of(text + R"(default", "rope_theta": 2e4}})");
  EXPECT_EQ(newer.config.rotary_base_local, 2e4);
  EXPECT_EQ(newer.config.rotary_base, 5e5);
  EXPECT_EQ(newer.config.rotary_scaling.interpolation, 8);
  EXPECT_EQ(newer.config.logit_soft_cap, 0);
  EXPECT_EQ(attributes_of(parse_config_json(config_json(newer, DType::fp32), "config.json").config),
            attributes_of(newer.config));
  EXPECT_THAT(error_of(text + R"(linear", "factor": 2.0}})"), HasSubstr("frequencies of layers with a window"));
  EXPECT_THAT(error_of(R"(Gemma3ForCausalLM"], "attn_logit_softcapping": 50.0)"),
              HasSubstr("attn_logit_softcapping is 50.0"));
  // Without windows, their base has no effect.
  EXPECT_EQ(config_of(R"(Gemma3ForCausalLM"], "sliding_window": null)").rotary_base_local, 0);
  EXPECT_THAT(error_of(R"(Gemma3ForCausalLM"], "sliding_window_pattern": 0)"),
              HasSubstr("sliding_window_pattern is 0"));
}

}  // namespace
}  // namespace trireme::io

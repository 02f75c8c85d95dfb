#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/presets.hpp"
#include "tests/exchange/config_of.hpp"
#include "tests/support/other_value.hpp"

namespace trireme::io {
namespace {

using exchange::model_class_from;
using exchange::ModelClass;
using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(ConfigJson, WhatIsWrittenReadsBackAsTheSameModel) {
  HuggingFaceModel llama;
  llama.model_class = &model_class_from("LlamaForCausalLM");
  llama.config = config_of(R"(LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 8, "head_dim": 16,
      "num_key_value_heads": 2, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "rope_theta": 500000.0,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-05)");
  EXPECT_EQ(llama.config.rotary_scaling.kind, model::RotaryScalingKind::llama3);
  EXPECT_EQ(llama.config.rotary_scaling.positions, 8192);
  EXPECT_EQ(llama.config.rotary_base, 500000);
  EXPECT_EQ(llama.config.kv_heads(), 2);
  EXPECT_EQ(llama.config.norm_epsilon, 1e-5);
  EXPECT_FALSE(llama.config.tied_output);
  llama.bos = 2, llama.pad = 5, llama.ends = {3};
  std::vector<HuggingFaceModel> models{llama};
  llama.ends = {3, 4};
  models.push_back(llama);
  EXPECT_EQ(generation_config_json(llama),
            "{\n  \"bos_token_id\": 2,\n  \"eos_token_id\": [\n    3,\n    4\n  ],\n  \"pad_token_id\": 5\n}\n");
  HuggingFaceModel yarn = llama;
  yarn.config.rotary_scaling = {model::RotaryScalingKind::yarn, 4, 32, 1, 32, 1, 0};
  models.push_back(yarn);
  yarn.config.rotary_scaling.mscale = 0.5;
  yarn.config.rotary_scaling.mscale_all_dim = 0.75;
  models.push_back(yarn);
  HuggingFaceModel linear = llama;
  linear.config = config_of(R"(LlamaForCausalLM"], "rope_scaling": {"type": "linear", "factor": 2.0})");
  EXPECT_EQ(linear.config.rotary_scaling.interpolation, 2);
  models.push_back(linear);
  for (const char* name : {"GPT2LMHeadModel",       "Qwen2ForCausalLM",        "Qwen3ForCausalLM",
                           "Qwen3MoeForCausalLM",   "MistralForCausalLM",      "MixtralForCausalLM",
                           "Starcoder2ForCausalLM", "GPTNeoXForCausalLM",      "FalconForCausalLM",
                           "Phi3ForCausalLM",       "Gemma2ForCausalLM",       "Gemma3ForCausalLM",
                           "Olmo2ForCausalLM",      "OlmoeForCausalLM",        "DeepseekV2ForCausalLM",
                           "DeepseekV3ForCausalLM", "BertForPreTraining",      "BertForSequenceClassification",
                           "BertForMultipleChoice", "BertForQuestionAnswering"}) {
    models.push_back(parse_config_json(fmt::format("{{\"architectures\": [\"{}\"]}}", name), "config.json"));
  }
  models.push_back(parse_config_json(
      R"({"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.75, "sliding_window": 8})", "config.json"));
  for (const HuggingFaceModel& model : models) {
    const HuggingFaceModel read = parse_config_json(config_json(model, DType::bf16), "config.json");
    EXPECT_EQ(attributes_of(read.config), attributes_of(model.config)) << model.model_class->name;
    EXPECT_EQ(read.model_class, model.model_class);
    EXPECT_EQ(&exchange::model_class_of(model.config, model.model_class->name), model.model_class);
    EXPECT_EQ(read.ends, model.ends);
    EXPECT_EQ(read.bos, model.bos);
    EXPECT_EQ(read.pad, model.pad);
  }
}

TEST(ConfigJson, NamesOfClassesAreKept) {
  const std::string begin = R"({"architectures": ["BertForSequenceClassification"])";
  HuggingFaceModel model = parse_config_json(begin + R"(, "id2label": {"1": "bad", "0": "good", "2": "neither"}})", "");
  EXPECT_EQ(model.labels, (std::vector<std::string>{"good", "bad", "neither"}));
  EXPECT_EQ(parse_config_json(config_json(model, DType::fp32), "").labels, model.labels);
  EXPECT_THAT(config_json(model, DType::fp32), HasSubstr("\"neither\": 2"));
  model.labels.clear();
  EXPECT_EQ(parse_config_json(config_json(model, DType::fp32), "").labels,
            (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
}

TEST(ConfigJson, EachKeyOfTheTableIsWrittenAndRead) {
  std::size_t keys = 0;
  for (const ModelClass& model_class : exchange::model_classes()) {
    const model::ModelConfig defaults = exchange::class_defaults(model_class);
    for (const model::Field& field : model::fields()) {
      const std::string key(exchange::config_key(field, model_class));
      if (key.empty() || key.find('.') != key.npos) continue;
      const auto value = test::other_value(field, defaults);
      ASSERT_TRUE(value.has_value()) << key;
      HuggingFaceModel model;
      model.model_class = &model_class;
      model.config = defaults;
      field.set(model.config, *value);
      const std::string text = config_json(model, DType::fp32);
      EXPECT_THAT(text, HasSubstr("\"" + key + "\": ")) << model_class.name;
      EXPECT_EQ(field.get(parse_config_json(text, "config.json").config), *value) << model_class.name << " " << key;
      ++keys;
    }
  }
  EXPECT_GT(keys, 50u);
}

TEST(ConfigJson, AStarCoder2HasItsOwnKeysAndANullWindowIsNone) {
  HuggingFaceModel model;
  model.model_class = &model_class_from("Starcoder2ForCausalLM");
  model.config = config_of(R"(Starcoder2ForCausalLM"], "norm_epsilon": 0.25, "use_bias": false, "hidden_act": "gelu",
      "sliding_window": 4096, "residual_dropout": 0.1, "norm_type": "layer_norm", "mlp_type": "default")");
  EXPECT_EQ(model.config.norm_epsilon, 0.25);
  EXPECT_FALSE(model.config.has_qkv_bias());
  EXPECT_EQ(model.config.activation, Activation::gelu_erf);
  EXPECT_EQ(model.config.window.left, 4095);
  EXPECT_EQ(model.config.kv_heads(), 2);
  EXPECT_TRUE(model.config.tied_output);
  EXPECT_THAT(config_json(model, DType::fp32),
              AllOf(HasSubstr("\"use_bias\": false"), HasSubstr("\"norm_epsilon\": 0.25"),
                    HasSubstr("\"sliding_window\": 4096")));
  model.config.window = {};
  EXPECT_THAT(config_json(model, DType::fp32), HasSubstr("\"sliding_window\": null"));
  EXPECT_THAT(error_of(R"(Starcoder2ForCausalLM"], "norm_type": "rms_norm", "mlp_type": "gated", "hidden_act": "relu",
                       "partial_rotary_factor": 0.5)"),
              AllOf(HasSubstr("norm_type"), HasSubstr("mlp_type"), HasSubstr("hidden_act is 'relu'"),
                    HasSubstr("partial_rotary_factor")));
}

TEST(ConfigJson, AGptNeoXHasItsOwnKeysForRotaryPositions) {
  const auto neox = [](const std::string& more) { return config_of(R"(GPTNeoXForCausalLM"])" + more); };
  EXPECT_EQ(neox("").rotary_percent, 0.25);
  EXPECT_TRUE(neox("").parallel_residual);
  EXPECT_FALSE(neox("").tied_output);
  EXPECT_FALSE(neox(R"(, "use_parallel_residual": false)").parallel_residual);
  EXPECT_EQ(neox(R"(, "hidden_act": "gelu_fast")").activation, Activation::gelu_tanh);
  EXPECT_EQ(neox(R"(, "hidden_act": "gelu_python")").activation, Activation::gelu_erf);
  EXPECT_TRUE(config_of(R"(LlamaForCausalLM"], "hidden_act": "swish")").gated);
  EXPECT_EQ(config_of(R"(Gemma2ForCausalLM"], "hidden_activation": "swish")").gate, Activation::silu);
  const model::ModelConfig older = neox(R"(, "rotary_pct": 0.5, "rotary_emb_base": 500, "rope_scaling": null)");
  EXPECT_EQ(older.rotary_percent, 0.5);
  EXPECT_EQ(older.rotary_base, 500);
  const model::ModelConfig newer = neox(R"(, "rope_parameters": {"rope_type": "linear", "factor": 2.0,
      "rope_theta": 500.0, "partial_rotary_factor": 1.0})");
  EXPECT_EQ(newer.rotary_percent, 1);
  EXPECT_EQ(newer.rotary_base, 500);
  EXPECT_EQ(newer.rotary_scaling.interpolation, 2);
  EXPECT_THAT(error_of(R"(GPTNeoXForCausalLM"], "attention_bias": false, "rope_interleave": true)"),
              AllOf(HasSubstr("attention_bias is false"), HasSubstr("rope_interleave is true")));
}

TEST(ConfigJson, AFalconHasOneNormOrInItsNewArchitectureTwo) {
  HuggingFaceModel model;
  model.model_class = &model_class_from("FalconForCausalLM");
  const auto again = [&](const std::string& more) {
    model.config = config_of(R"(FalconForCausalLM"], "hidden_size": 64, "num_attention_heads": 8)" + more);
    const model::ModelConfig read = parse_config_json(config_json(model, DType::fp32), "config.json").config;
    EXPECT_EQ(attributes_of(read), attributes_of(model.config)) << more;
    return read;
  };
  const model::ModelConfig plain = again("");
  EXPECT_TRUE(plain.parallel_residual && plain.shared_norm && plain.tied_output);
  EXPECT_EQ(plain.kv_heads(), 1);
  EXPECT_EQ(plain.ffn_hidden, 256);  // follows the hidden size
  EXPECT_FALSE(plain.has_qkv_bias());
  EXPECT_EQ(again(R"(, "multi_query": false, "bias": true)").kv_heads(), 8);
  const model::ModelConfig two = again(R"(, "new_decoder_architecture": true, "num_kv_heads": 2)");
  EXPECT_TRUE(two.parallel_residual && !two.shared_norm);
  EXPECT_EQ(two.kv_heads(), 2);
  EXPECT_TRUE(
      again(R"(, "new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1)").shared_norm);
  EXPECT_EQ(again(R"(, "new_decoder_architecture": true, "num_kv_heads": 1)").kv_heads(), 1);
  const model::ModelConfig sequential = again(R"(, "parallel_attn": false, "num_ln_in_parallel_attn": null)");
  EXPECT_FALSE(sequential.parallel_residual || sequential.shared_norm);
  EXPECT_THAT(error_of(R"(FalconForCausalLM"], "rope_interleave": true, "num_ln_in_parallel_attn": 2)"),
              AllOf(HasSubstr("rope_interleave is true"), HasSubstr("num_ln_in_parallel_attn is 2")));
  EXPECT_THAT(error_of(R"(FalconForCausalLM"], "multi_query": false, "num_kv_heads": 3)"),
              HasSubstr("num_kv_heads is 3"));
  EXPECT_THAT(error_of(R"(FalconForCausalLM"], "new_decoder_architecture": true, "parallel_attn": false)"),
              HasSubstr("parallel_attn is false"));
}

TEST(ConfigJson, APhi3RotatesPartOfAHeadAndScalesNothing) {
  HuggingFaceModel model;
  model.model_class = &model_class_from("Phi3ForCausalLM");
  model.config = config_of(R"(Phi3ForCausalLM"], "vocab_size": 100)");
  // Its default is the token 32000, which a small vocabulary lacks.
  EXPECT_THAT(config_json(model, DType::fp32), HasSubstr("\"pad_token_id\": null"));
  const auto percent = [](const std::string& more) { return config_of(R"(Phi3ForCausalLM"])" + more).rotary_percent; };
  EXPECT_EQ(percent(""), 1);
  EXPECT_EQ(percent(R"(, "partial_rotary_factor": 0.75, "rope_scaling": null)"), 0.75);
  EXPECT_EQ(percent(R"(, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})"), 0.5);
  EXPECT_EQ(config_of(R"(Phi3ForCausalLM"], "sliding_window": 2047, "num_key_value_heads": 32)").window.left, 2046);
  for (const char* kind : {"longrope", "su"}) {
    EXPECT_THAT(
        error_of(fmt::format(R"(Phi3ForCausalLM"], "rope_scaling": {{"type": "{}", "short_factor": [1.0],
                                     "long_factor": [2.0]}})",
                             kind)),
        AllOf(HasSubstr(fmt::format("rope_type is '{}'", kind)), HasSubstr("'default' alone; LongRoPE's factors")));
  }
  EXPECT_THAT(error_of(R"(Phi3ForCausalLM"], "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
                       "attention_bias": true)"),
              AllOf(HasSubstr("rope_type is 'yarn'"), HasSubstr("attention_bias is true")));
  EXPECT_THAT(error_of(R"(LlamaForCausalLM"], "rope_scaling": {"rope_type": "longrope"})"),
              HasSubstr("llama3 and yarn; LongRoPE's factors"));
}

TEST(ConfigJson, YarnFollowsThePositions) {
  const auto scaling = [](const std::string& rest) {
    const model::RotaryScaling of_file =
        config_of(fmt::format(R"(LlamaForCausalLM"], "max_position_embeddings": 64{})", rest)).rotary_scaling;
    return std::pair(of_file.positions, of_file.factor);
  };
  const auto given = scaling(R"(, "rope_scaling": {"type": "yarn", "factor": 4.0,
                                "original_max_position_embeddings": 16})");
  EXPECT_EQ(given.first, 16);
  EXPECT_EQ(given.second, 4);
  EXPECT_EQ(scaling(R"(, "rope_scaling": {"type": "yarn", "factor": null,
                       "original_max_position_embeddings": 16})"),
            given);
  EXPECT_EQ(scaling(R"(, "original_max_position_embeddings": 16, "rope_scaling": {"type": "yarn", "factor": 4.0})"),
            given);
}

TEST(ConfigJson, AMixtralHasTheWidthOfItsExperts) {
  HuggingFaceModel model;
  model.model_class = &model_class_from("MixtralForCausalLM");
  model.config = config_of(R"(MixtralForCausalLM"], "intermediate_size": 96, "router_jitter_noise": 0.0,
      "router_aux_loss_coef": 0.02)");
  EXPECT_EQ(model.config.experts.count, 8);
  EXPECT_EQ(model.config.experts.per_token, 2);
  EXPECT_EQ(model.config.expert_ffn_hidden(), 96);
  EXPECT_FALSE(model.config.experts.pre_softmax);
  EXPECT_TRUE(model.config.experts.in_layer(0));
  EXPECT_EQ(model.config.rotary_base, 1e6);
  EXPECT_EQ(model.config.window.left, -1);
  // No layer has a dense block, whose width would have the same key.
  model.config.experts.ffn_hidden = 24;
  EXPECT_THAT(config_json(model, DType::fp32),
              AllOf(HasSubstr("\"intermediate_size\": 24"), HasSubstr("\"num_local_experts\": 8")));
  EXPECT_THAT(error_of(R"(MixtralForCausalLM"], "router_jitter_noise": 0.01, "num_local_experts": 0)"),
              AllOf(HasSubstr("router_jitter_noise is 0.01"), HasSubstr("num_experts is 0")));
}

TEST(ConfigJson, AnOlmoNormalisesAcrossHeads) {
  const model::ModelConfig olmo2 = config_of(R"(Olmo2ForCausalLM"], "num_key_value_heads": 8)");
  EXPECT_TRUE(olmo2.qk_norm && olmo2.qk_norm_across_heads && olmo2.post_branch_norm);
  EXPECT_EQ(olmo2.kv_heads(), 8);
  EXPECT_EQ(olmo2.norm_epsilon, 1e-5);
  const model::ModelConfig olmoe = config_of(R"(OlmoeForCausalLM"], "intermediate_size": 96, "clip_qkv": null)");
  EXPECT_TRUE(olmoe.qk_norm_across_heads && !olmoe.post_branch_norm && olmoe.experts.pre_softmax);
  EXPECT_EQ(olmoe.experts.count, 64);
  EXPECT_EQ(olmoe.experts.per_token, 8);
  EXPECT_EQ(olmoe.expert_ffn_hidden(), 96);
  EXPECT_FALSE(config_of(R"(OlmoeForCausalLM"], "norm_topk_prob": true)").experts.pre_softmax);
  EXPECT_THAT(error_of(R"(OlmoeForCausalLM"], "clip_qkv": 8.0, "attention_bias": true)"),
              AllOf(HasSubstr("clip_qkv is 8.0"), HasSubstr("attention_bias is true")));
}

TEST(ConfigJson, AQwen3MoeHasDenseLayersWhereTheFileSaysSo) {
  const auto experts = [](const std::string& more) {
    return config_of(R"(Qwen3MoeForCausalLM"], "num_hidden_layers": 6)" + more).experts;
  };
  EXPECT_EQ(experts("").layers, "");
  EXPECT_TRUE(experts("").pre_softmax);
  EXPECT_FALSE(experts(R"(, "norm_topk_prob": true)").pre_softmax);
  EXPECT_EQ(experts(R"(, "num_experts": 16)").count, 16);
  EXPECT_EQ(experts(R"(, "num_local_experts": 16)").count, 16);  // from transformers 5 on
  EXPECT_EQ(experts(R"(, "mlp_only_layers": [5, 0, 6])").layers, "011110");
  EXPECT_EQ(experts(R"(, "mlp_only_layers": [1], "decoder_sparse_step": 2)").layers, "000101");

  HuggingFaceModel model;
  model.model_class = &model_class_from("Qwen3MoeForCausalLM");
  model.config = config_of(R"(Qwen3MoeForCausalLM"], "num_hidden_layers": 6, "decoder_sparse_step": 3,
      "intermediate_size": 96, "moe_intermediate_size": 24, "norm_topk_prob": true)");
  const std::string text = config_json(model, DType::fp32);
  EXPECT_THAT(text, AllOf(HasSubstr("\"norm_topk_prob\": true"), HasSubstr("\"decoder_sparse_step\": 1"),
                          HasSubstr("\"moe_intermediate_size\": 24"), HasSubstr("\"intermediate_size\": 96")));
  const model::ModelConfig read = parse_config_json(text, "config.json").config;
  EXPECT_EQ(attributes_of(read), attributes_of(model.config));
  EXPECT_EQ(read.experts.layers, "001001");

  EXPECT_THAT(error_of(R"(Qwen3MoeForCausalLM"], "decoder_sparse_step": 0)"), HasSubstr("decoder_sparse_step is 0"));
  EXPECT_THAT(error_of(R"(Qwen3MoeForCausalLM"], "mlp_only_layers": [-1])"), HasSubstr("not a list of layers"));
  EXPECT_THAT(error_of(R"(Qwen3MoeForCausalLM"], "mlp_only_layers": 3)"), HasSubstr("not a list of layers"));
  EXPECT_THAT(error_of(R"(Qwen3MoeForCausalLM"], "num_hidden_layers": 1, "mlp_only_layers": [0])"),
              HasSubstr("leaves no layer with experts"));
}

TEST(ConfigJson, ADeepseekHasLatentsDenseFirstLayersAndSharedExperts) {
  // DeepSeek-V2-Lite's file has these settings, and others with the value of the class.
  const std::string lite = R"(DeepseekV2ForCausalLM"], "first_k_dense_replace": 1, "hidden_size": 2048,
      "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
      "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
      "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
      "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
      "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
      "scoring_func": "softmax", "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400)";
  EXPECT_EQ(attributes_of(config_of(lite)), attributes_of(model::preset("deepseek-v2-lite")));
  HuggingFaceModel model;
  model.model_class = &model_class_from("DeepseekV2ForCausalLM");
  model.config = config_of(lite);
  const std::string text = config_json(model, DType::fp32);
  EXPECT_THAT(text, AllOf(HasSubstr("\"q_lora_rank\": null"), HasSubstr("\"n_shared_experts\": 2"),
                          HasSubstr("\"first_k_dense_replace\": 1"), HasSubstr("\"rms_norm_eps\": 1e-06")));
  EXPECT_EQ(attributes_of(parse_config_json(text, "config.json").config), attributes_of(model.config));
  EXPECT_EQ(parse_config_json(text, "config.json").rotary, exchange::RotaryLayout::interleaved);

  const model::ModelConfig v3 = config_of(R"(DeepseekV3ForCausalLM"])");
  EXPECT_EQ(v3.experts.layers, "000" + std::string(58, '1'));
  EXPECT_EQ(v3.latent.query_rank, 1536);
  EXPECT_TRUE(v3.experts.router_bias);
  // The weight of a single expert is its score.
  const std::string single = R"(DeepseekV3ForCausalLM"], "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1)";
  EXPECT_THAT(error_of(single), HasSubstr("norm_topk_prob is true"));
  HuggingFaceModel of_one;
  of_one.model_class = &model_class_from("DeepseekV3ForCausalLM");
  of_one.config = config_of(single + R"(, "norm_topk_prob": false)");
  EXPECT_THAT(config_json(of_one, DType::fp32), HasSubstr("\"norm_topk_prob\": false"));

  EXPECT_THAT(error_of(R"(DeepseekV2ForCausalLM"], "rms_norm_eps": 1e-5, "topk_method": "group_limited_greedy",
      "first_k_dense_replace": 32, "attention_bias": true, "norm_topk_prob": true)"),
              AllOf(HasSubstr("rms_norm_eps is 1e-05"), HasSubstr("topk_method is \"group_limited_greedy\""),
                    HasSubstr("first_k_dense_replace leaves no layer with experts"),
                    HasSubstr("attention_bias is true"), HasSubstr("norm_topk_prob is true")));
  EXPECT_THAT(error_of(R"(DeepseekV2ForCausalLM"], "rope_scaling": {"type": "yarn", "factor": 2.0,
      "mscale_all_dim": 0.5})"),
              HasSubstr("mscale_all_dim without mscale"));
}

TEST(ConfigJson, AFactorOfAttentionIsYarnsMagnitude) {
  const model::ModelConfig config = config_of(R"(LlamaForCausalLM"], "rope_parameters": {"rope_type": "yarn",
      "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.25, "rope_theta": 50.0})");
  EXPECT_EQ(config.rotary_base, 50);
  const RotaryEmbedding rotary = config.rotary_scaling.embedding(64, 50);
  EXPECT_NEAR(rotary.magnitude, 1.25, 1e-14);
}

TEST(ConfigJson, ABloomMayHaveTheNamesOfOlderFiles) {
  const model::ModelConfig config = config_of(
      R"(BloomForCausalLM"], "n_embed": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "seq_length": 64)");
  EXPECT_EQ(config.hidden, 32);
  EXPECT_EQ(config.ffn_hidden, 128);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.position_embedding, model::PositionEmbedding::alibi);
  EXPECT_TRUE(config.embedding_norm && config.linear_bias && config.tied_output);
  EXPECT_EQ(config_of(R"(BloomForCausalLM"], "n_layer": 2, "num_hidden_layers": 3)").layers, 2);
  EXPECT_THAT(error_of(R"(BloomForCausalLM"], "apply_residual_connection_post_layernorm": true)"),
              HasSubstr("residuals are the inputs of norms"));
}

TEST(ConfigJson, MetasOrderIsUsedIfTheFileDeclaresIt) {
  const std::string text = R"({"architectures": ["LlamaForCausalLM"], "rope_interleave": true})";
  EXPECT_EQ(parse_config_json(text, "config.json").rotary, exchange::RotaryLayout::interleaved);
}

TEST(ConfigJson, OneErrorListsEveryUnsupportedSetting) {
  EXPECT_THAT(
      error_of(R"(LlamaForCausalLM"], "rope_scaling": {"type": "dynamic", "factor": 2.0}, "hidden_act": "gelu",
                       "attention_bias": true, "partial_rotary_factor": 0.5, "num_hidden_layers": -3)"),
      AllOf(HasSubstr("rope_type is 'dynamic'"), HasSubstr("hidden_act"), HasSubstr("attention_bias and mlp_bias"),
            HasSubstr("partial_rotary_factor"), HasSubstr("num_hidden_layers is -3, not a size")));
  EXPECT_THAT(error_of(R"(GPT2LMHeadModel"], "activation_function": "swish", "scale_attn_by_inverse_layer_idx": true)"),
              AllOf(HasSubstr("'swish'"), HasSubstr("scale_attn_by_inverse_layer_idx")));
  EXPECT_THAT(error_of(R"(Qwen2ForCausalLM"], "use_sliding_window": true, "layer_types": ["sliding_attention"])"),
              AllOf(HasSubstr("use_sliding_window"), HasSubstr("layer_types")));
  EXPECT_THAT(error_of(R"(BertForPreTraining"], "position_embedding_type": "relative_key", "type_vocab_size": 1,
                       "is_decoder": true)"),
              AllOf(HasSubstr("position_embedding_type"), HasSubstr("type_vocab_size"), HasSubstr("is_decoder")));
  EXPECT_THAT(error_of(R"(GPT2LMHeadModel"], "n_head": 7)"), HasSubstr("must be a multiple"));
  EXPECT_THAT(error_of(R"(LlamaForCausalLM"], "quantization_config": {"quant_method": "gptq", "bits": 4})"),
              HasSubstr("quantization_config: quantized weights are not supported"));
}

TEST(ConfigJson, HostileFilesGiveErrors) {
  EXPECT_THAT(message_of<DataError>([] { parse_config_json("{", "config.json"); }), HasSubstr("not JSON"));
  EXPECT_THAT(message_of<DataError>([] { parse_config_json("[]", "config.json"); }), HasSubstr("'architectures'"));
  EXPECT_THAT(error_of(R"(MambaForCausalLM"])"), HasSubstr("'MambaForCausalLM'"));
  const std::string deep = "{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_THAT(message_of<DataError>([&] { parse_config_json(deep, "config.json"); }), HasSubstr("nests deeper"));
  EXPECT_THAT(error_of(R"(LlamaForCausalLM"], "hidden_size": 18446744073709551615, "rope_scaling": [1])"),
              AllOf(HasSubstr("hidden_size is 18446744073709551615"), HasSubstr("rope_scaling is not an object")));
}

}  // namespace
}  // namespace trireme::io

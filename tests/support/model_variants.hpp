#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "src/model/model_config.hpp"

namespace trireme::test {

/// GPT-2, each single option that turns it into a Llama, a Llama, and BERTs. For models with an even number of heads.
struct ModelVariant {
  std::string name;
  void (*apply)(model::ModelConfig&);
};

inline const std::vector<ModelVariant>& model_variants() {
  using model::ModelConfig;
  static const std::vector<ModelVariant> list = {
      {"GPT-2", [](ModelConfig&) {}},
      {"RMSNorm", [](ModelConfig& c) { c.normalization = model::Normalization::rms_norm; }},
      {"rope", [](ModelConfig& c) { c.position_embedding = model::PositionEmbedding::rope; }},
      {"rope of half a head",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_percent = 0.5;
         c.rotary_base = 100;
       }},
      {"SwiGLU", [](ModelConfig& c) { c.gated = true; }},
      {"two query groups", [](ModelConfig& c) { c.query_groups = 2; }},
      {"one query group", [](ModelConfig& c) { c.query_groups = 1; }},
      {"untied output", [](ModelConfig& c) { c.tied_output = false; }},
      {"no linear bias", [](ModelConfig& c) { c.linear_bias = false; }},
      {"biases of queries, keys and values",
       [](ModelConfig& c) {
         c.linear_bias = false;
         c.qkv_bias = true;
       }},
      {"Nemotron",
       [](ModelConfig& c) {
         c.kv_channels = 12;
         c.query_groups = 2;
         c.norm_1p = true;
         c.activation = Activation::squared_relu;
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_percent = 0.5;
         c.linear_bias = false;
         c.tied_output = false;
       }},
      {"norms of queries and keys", [](ModelConfig& c) { c.qk_norm = true; }},
      {"Llama 3.1's frequencies",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_base = 500;
         c.rotary_scaling = {model::RotaryScalingKind::llama3, 8, 16, 1, 4};
       }},
      {"interpolated rope",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_scaling.interpolation = 2.5;
       }},
      {"windows", [](ModelConfig& c) { c.window.left = 3; }},
      {"windows in every other layer",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.window = model::AttentionWindow::every(2, 2, c.layers);
       }},
      {"Qwen 3 with YaRN",
       [](ModelConfig& c) {
         c.kv_channels = 12;
         c.query_groups = 2;
         c.qk_norm = true;
         c.normalization = model::Normalization::rms_norm;
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_scaling = {model::RotaryScalingKind::yarn, 4, 64, 1, 32, 1, 0.5};
         c.gated = true;
         c.linear_bias = false;
       }},
      {"latent attention with YaRN",
       [](ModelConfig& c) {
         c.latent = {.used = true, .kv_rank = 12, .head_dim = 6, .rotary_dim = 4, .value_dim = 7};
         c.qk_norm = true;
         c.normalization = model::Normalization::rms_norm;
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_scaling = {model::RotaryScalingKind::yarn, 4, 64, 1, 32, 1, 0.5};
         c.linear_bias = false;
       }},
      {"latent attention with queries of low rank, without norms",
       [](ModelConfig& c) {
         c.latent = {.used = true, .query_rank = 10, .kv_rank = 12, .head_dim = 6, .rotary_dim = 2, .value_dim = 8};
         c.position_embedding = model::PositionEmbedding::rope;
         c.linear_bias = false;
       }},
      {"BERT", [](ModelConfig& c) { c.family = model::ModelFamily::bert; }},
      {"post-norm BERT",
       [](ModelConfig& c) {
         c.family = model::ModelFamily::bert;
         c.norm_placement = model::NormPlacement::post;
       }},
      {"BERT without a binary head",
       [](ModelConfig& c) {
         c.family = model::ModelFamily::bert;
         c.binary_head = false;
         c.activation = Activation::gelu_erf;
       }},
      {"experts",
       [](ModelConfig& c) {
         c.gated = true;
         c.linear_bias = false;
         c.experts = {.count = 4};
       }},
      {"experts of their own width in every other layer, by groups, beside a shared one",
       [](ModelConfig& c) {
         c.linear_bias = false;
         c.activation = Activation::squared_relu;
         c.experts = {.count = 8,
                      .per_token = 4,
                      .ffn_hidden = 16,
                      .shared_hidden = 24,
                      .layers = model::ExpertConfig::every(2, c.layers),
                      .score = RouterScore::sigmoid,
                      .scaling = 2.5,
                      .groups = 4,
                      .groups_per_token = 2};
       }},
      {"BLOOM",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::alibi;
         c.embedding_norm = true;
       }},
      {"biases by distance in grouped queries with windows",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::alibi;
         c.query_groups = 2;
         c.window.left = 3;
       }},
      {"learned positions on normalised embeddings", [](ModelConfig& c) { c.embedding_norm = true; }},
      {"Gemma 2",
       [](ModelConfig& c) {
         c.kv_channels = 12;
         c.query_groups = 2;
         c.normalization = model::Normalization::rms_norm;
         c.norm_1p = true;
         c.position_embedding = model::PositionEmbedding::rope;
         c.window = model::AttentionWindow::every(3, 2, c.layers);
         c.gated = true;
         c.gate = Activation::gelu_tanh;
         c.linear_bias = false;
         c.sandwich_norm = true;
         c.scaled_embedding = true;
         c.query_scalar = 20;
         c.attention_soft_cap = 0.5;
         c.logit_soft_cap = 2;
       }},
      {"Gemma 3",
       [](ModelConfig& c) {
         c.query_groups = 1;
         c.qk_norm = true;
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_base_local = 50;
         c.rotary_scaling.interpolation = 2;
         c.window = model::AttentionWindow::every(2, 2, c.layers);
         c.sandwich_norm = true;
         c.scaled_embedding = true;
       }},
      {"parallel branches of half-rotated heads",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_percent = 0.5;
         c.activation = Activation::gelu_erf;
         c.parallel_residual = true;
       }},
      {"parallel branches with one norm",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.query_groups = 2;
         c.linear_bias = false;
         c.parallel_residual = c.shared_norm = true;
       }},
      {"parallel experts",
       [](ModelConfig& c) {
         c.linear_bias = false;
         c.experts = {.count = 4};
         c.parallel_residual = true;
       }},
      {"modules ahead",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.linear_bias = false;
         c.experts = {.count = 4, .layers = model::ExpertConfig::every(2, c.layers)};
         c.ahead = {.depths = 2, .loss_factor = 0.3};
       }},
      {"modules ahead with untied output and windows",
       [](ModelConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.normalization = model::Normalization::rms_norm;
         c.tied_output = false;
         c.scaled_embedding = true;
         c.window = model::AttentionWindow::every(3, 2, c.layers);
         c.ahead.depths = 1;
       }},
      {"norms across heads", [](ModelConfig& c) { c.qk_norm = c.qk_norm_across_heads = true; }},
      {"norms after branches", [](ModelConfig& c) { c.post_branch_norm = true; }},
      {"OLMo 2",
       [](ModelConfig& c) {
         c.query_groups = 2;
         c.qk_norm = c.qk_norm_across_heads = c.post_branch_norm = true;
         c.normalization = model::Normalization::rms_norm;
         c.position_embedding = model::PositionEmbedding::rope;
         c.gated = true;
         c.linear_bias = false;
       }},
      {"experts with norms after branches",
       [](ModelConfig& c) {
         c.post_branch_norm = true;
         c.linear_bias = false;
         c.experts = {.count = 4, .pre_softmax = true};
       }},
      {"Llama",
       [](ModelConfig& c) {
         c.normalization = model::Normalization::rms_norm;
         c.position_embedding = model::PositionEmbedding::rope;
         c.gated = true;
         c.query_groups = 2;
         c.tied_output = false;
         c.linear_bias = false;
       }},
  };
  return list;
}

/// Returns the variant of this name.
inline const ModelVariant& model_variant(const std::string& name) {
  return *std::ranges::find(model_variants(), name, &ModelVariant::name);
}

}  // namespace trireme::test

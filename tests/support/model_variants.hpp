#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "src/model/fields.hpp"

namespace trireme::test {

/// GPT-2, each single option that turns it into a Llama, a Llama, and BERTs. For models with an even number of heads.
struct ModelVariant {
  std::string name;
  std::string_view fields;  ///< words of model::set_fields; patterns of layers are repeated

  void apply(model::ModelConfig& config) const {
    model::set_fields(config, fields);
    for (std::string* pattern : {&config.window.layers, &config.experts.layers}) {
      const std::string part = *pattern;
      while (!part.empty() && std::ssize(*pattern) < config.layers) *pattern += part;
      pattern->resize(part.empty() ? 0 : static_cast<std::size_t>(config.layers));
    }
  }
};

inline const std::vector<ModelVariant>& model_variants() {
  static const std::vector<ModelVariant> list = {
      {"GPT-2", ""},
      {"RMSNorm", "normalization RMSNorm"},
      {"rope", "position-embedding-type rope"},
      {"rope of half a head", "position-embedding-type rope rotary-percent 0.5 rotary-base 100"},
      {"SwiGLU", "swiglu"},
      {"two query groups", "num-query-groups 2"},
      {"one query group", "num-query-groups 1"},
      {"untied output", "untie-embeddings-and-output-weights"},
      {"no linear bias", "disable-bias-linear"},
      {"biases of queries, keys and values", "disable-bias-linear add-qkv-bias"},
      {"Nemotron",
       "kv-channels 12 num-query-groups 2 apply-layernorm-1p squared-relu position-embedding-type rope "
       "rotary-percent 0.5 disable-bias-linear untie-embeddings-and-output-weights"},
      {"norms of queries and keys", "qk-layernorm"},
      {"Llama 3.1's frequencies",
       "position-embedding-type rope rotary-base 500 rotary_scaling llama3 rope-scaling-factor 8 "
       "yarn-original-max-position-embeddings 16 yarn-beta-slow 1 yarn-beta-fast 4"},
      {"interpolated rope", "position-embedding-type rope rotary-seq-len-interpolation-factor 2.5"},
      {"windows", "window-size 3"},
      {"windows in every other layer", "position-embedding-type rope window-size 2 window-attn-skip-freq 10"},
      {"Qwen 3 with YaRN",
       "kv-channels 12 num-query-groups 2 qk-layernorm normalization RMSNorm position-embedding-type rope "
       "rotary_scaling yarn yarn-rotary-scaling-factor 4 yarn-original-max-position-embeddings 64 yarn-beta-slow 1 "
       "yarn-beta-fast 32 yarn-mscale 1 yarn-mscale-all-dim 0.5 swiglu disable-bias-linear"},
      {"latent attention with YaRN",
       "multi-latent-attention kv-lora-rank 12 qk-head-dim 6 qk-pos-emb-head-dim 4 v-head-dim 7 qk-layernorm "
       "normalization RMSNorm position-embedding-type rope rotary_scaling yarn yarn-rotary-scaling-factor 4 "
       "yarn-original-max-position-embeddings 64 yarn-beta-slow 1 yarn-beta-fast 32 yarn-mscale 1 "
       "yarn-mscale-all-dim 0.5 disable-bias-linear"},
      {"latent attention with queries of low rank, without norms",
       "multi-latent-attention q-lora-rank 10 kv-lora-rank 12 qk-head-dim 6 qk-pos-emb-head-dim 2 v-head-dim 8 "
       "position-embedding-type rope disable-bias-linear"},
      {"BERT", "model-type bert"},
      {"post-norm BERT", "model-type bert apply-residual-connection-post-layernorm"},
      {"BERT without a binary head", "model-type bert bert-no-binary-head gelu erf"},
      {"experts", "swiglu disable-bias-linear num-experts 4"},
      {"experts of their own width in every other layer, by groups, beside a shared one",
       "disable-bias-linear squared-relu num-experts 8 moe-router-topk 4 moe-ffn-hidden-size 16 "
       "moe-shared-expert-intermediate-size 24 moe-layer-freq 10 moe-router-score-function sigmoid "
       "moe-router-topk-scaling-factor 2.5 moe-router-num-groups 4 moe-router-group-topk 2"},
      {"BLOOM", "position-embedding-type alibi embed-layernorm"},
      {"biases by distance in grouped queries with windows",
       "position-embedding-type alibi num-query-groups 2 window-size 3"},
      {"learned positions on normalised embeddings", "embed-layernorm"},
      {"Gemma 2",
       "kv-channels 12 num-query-groups 2 normalization RMSNorm apply-layernorm-1p position-embedding-type rope "
       "window-size 3 window-attn-skip-freq 10 geglu disable-bias-linear sandwich-norm scale-embeddings "
       "query-pre-attn-scalar 20 attn-logit-softcapping 0.5 final-logit-softcapping 2"},
      {"Gemma 3",
       "num-query-groups 1 qk-layernorm position-embedding-type rope rotary-base-local 50 "
       "rotary-seq-len-interpolation-factor 2 window-size 2 window-attn-skip-freq 10 sandwich-norm scale-embeddings"},
      {"parallel branches of half-rotated heads",
       "position-embedding-type rope rotary-percent 0.5 gelu erf parallel-residual"},
      {"parallel branches with one norm",
       "position-embedding-type rope num-query-groups 2 disable-bias-linear parallel-residual shared-norm"},
      {"parallel experts", "disable-bias-linear num-experts 4 parallel-residual"},
      {"modules ahead",
       "position-embedding-type rope disable-bias-linear num-experts 4 moe-layer-freq 10 mtp-num-layers 2 "
       "mtp-loss-scaling-factor 0.3"},
      {"modules ahead with untied output and windows",
       "position-embedding-type rope normalization RMSNorm untie-embeddings-and-output-weights scale-embeddings "
       "window-size 3 window-attn-skip-freq 10 mtp-num-layers 1"},
      {"norms across heads", "qk-layernorm qk-layernorm-across-heads"},
      {"norms after branches", "post-branch-norm"},
      {"OLMo 2",
       "num-query-groups 2 qk-layernorm qk-layernorm-across-heads post-branch-norm normalization RMSNorm "
       "position-embedding-type rope swiglu disable-bias-linear"},
      {"experts with norms after branches",
       "post-branch-norm disable-bias-linear num-experts 4 moe-router-pre-softmax"},
      {"adapters", "lora-rank 3 lora-alpha 6"},
      {"adapters of a Llama's attention and expansion",
       "normalization RMSNorm position-embedding-type rope swiglu num-query-groups 2 "
       "untie-embeddings-and-output-weights disable-bias-linear lora-rank 2 use-rslora lora-targets qkv,fc1"},
      {"adapters of a BERT", "model-type bert lora-rank 2 lora-targets proj,fc2"},
      {"Llama",
       "normalization RMSNorm position-embedding-type rope swiglu num-query-groups 2 "
       "untie-embeddings-and-output-weights disable-bias-linear"},
  };
  return list;
}

/// Returns the variant of this name.
inline const ModelVariant& model_variant(const std::string& name) {
  return *std::ranges::find(model_variants(), name, &ModelVariant::name);
}

}  // namespace trireme::test

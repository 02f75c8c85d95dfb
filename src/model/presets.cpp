#include "src/model/presets.hpp"

#include <algorithm>
#include <iterator>

#include "src/base/check.hpp"
#include "src/model/fields.hpp"

namespace trireme::model {
namespace {

/// A model as settings of the fields, applied in order: words of set_fields().
struct Preset {
  const char* name;
  int layers;
  std::int64_t hidden, heads;  // feed-forward width 4 h unless the settings have another
  std::string_view settings[3] = {};
};

constexpr std::string_view llama =
    "normalization RMSNorm position-embedding-type rope swiglu disable-bias-linear hidden-dropout 0 attention-dropout "
    "0";
constexpr std::string_view llama3 = "num-query-groups 8 rotary-base 500000 vocab-size 128256";
constexpr std::string_view qwen = "rotary-base 1e6 layernorm-epsilon 1e-6 vocab-size 151936";
constexpr std::string_view starcoder2 =
    "position-embedding-type rope window-size 4095 vocab-size 49152 max-position-embeddings 16384";
constexpr std::string_view gemma =
    "normalization RMSNorm apply-layernorm-1p position-embedding-type rope geglu disable-bias-linear sandwich-norm "
    "scale-embeddings layernorm-epsilon 1e-6 kv-channels 256 query-pre-attn-scalar 256 hidden-dropout 0 "
    "attention-dropout 0";
constexpr std::string_view pythia =
    "position-embedding-type rope rotary-percent 0.25 gelu erf parallel-residual hidden-dropout 0 attention-dropout 0 "
    "untie-embeddings-and-output-weights vocab-size 50304 max-position-embeddings 2048";
constexpr std::string_view falcon =
    "position-embedding-type rope gelu erf parallel-residual disable-bias-linear hidden-dropout 0 attention-dropout 0 "
    "vocab-size 65024 max-position-embeddings 2048";
constexpr std::string_view bloom =
    "position-embedding-type alibi embed-layernorm hidden-dropout 0 attention-dropout 0 vocab-size 250880 "
    "max-position-embeddings 2048";
constexpr std::string_view olmo =
    "qk-layernorm qk-layernorm-across-heads untie-embeddings-and-output-weights max-position-embeddings 4096";
/// Megatron-LM's BERT: pre-norm.
constexpr std::string_view bert = "model-type bert max-position-embeddings 512 vocab-size 30522";
/// BERT as first published.
constexpr std::string_view original = "apply-residual-connection-post-layernorm gelu erf layernorm-epsilon 1e-12";

constexpr Preset presets[] = {
    {"gpt2-124m", 12, 768, 12},
    {"gpt2-355m", 24, 1024, 16},
    {"gpt2-774m", 36, 1280, 20},
    {"gpt2-1.5b", 48, 1600, 25},
    {"gpt2-1.2b", 40, 1536, 16},
    {"gpt2-2.5b", 54, 1920, 20},
    {"gpt2-4.2b", 64, 2304, 24},
    {"gpt2-8.3b", 72, 3072, 24},
    {"gpt2-8.3b-scaling", 72, 3072, 32},
    {"llama2-7b",
     32,
     4096,
     32,
     {llama,
      "ffn-hidden-size 11008 max-position-embeddings 4096 vocab-size 32000 untie-embeddings-and-output-weights"}},
    {"llama3-8b",
     32,
     4096,
     32,
     {llama, llama3, "ffn-hidden-size 14336 max-position-embeddings 8192 untie-embeddings-and-output-weights"}},
    {"llama3.1-8b",
     32,
     4096,
     32,
     {llama, llama3,
      "ffn-hidden-size 14336 max-position-embeddings 131072 untie-embeddings-and-output-weights rotary_scaling llama3 "
      "rope-scaling-factor 8 yarn-original-max-position-embeddings 8192 yarn-beta-fast 4"}},
    {"llama3.2-1b",
     16,
     2048,
     32,
     {llama, llama3,
      "ffn-hidden-size 8192 max-position-embeddings 131072 rotary_scaling llama3 rope-scaling-factor 32 "
      "yarn-original-max-position-embeddings 8192 yarn-beta-fast 4"}},
    {"qwen2.5-0.5b",
     24,
     896,
     14,
     {llama, qwen, "num-query-groups 2 ffn-hidden-size 4864 add-qkv-bias max-position-embeddings 32768"}},
    {"qwen3-0.6b",
     28,
     1024,
     16,
     {llama, qwen,
      "num-query-groups 8 ffn-hidden-size 3072 kv-channels 128 qk-layernorm max-position-embeddings 40960"}},
    {"mixtral-8x7b",
     32,
     4096,
     32,
     {llama, "num-query-groups 8 rotary-base 1e6 ffn-hidden-size 14336 max-position-embeddings 32768 vocab-size 32000",
      "untie-embeddings-and-output-weights num-experts 8 moe-aux-loss-coeff 0.02"}},
    {"qwen3-30b-a3b",
     48,
     2048,
     32,
     {llama, qwen,
      "num-query-groups 4 ffn-hidden-size 6144 kv-channels 128 qk-layernorm max-position-embeddings 40960 "
      "untie-embeddings-and-output-weights num-experts 128 moe-router-topk 8 moe-ffn-hidden-size 768 "
      "moe-aux-loss-coeff 0.001"}},
    {"deepseek-v2-lite",
     27,
     2048,
     16,
     {llama,
      "multi-latent-attention qk-layernorm kv-lora-rank 512 layernorm-epsilon 1e-6 ffn-hidden-size 10944 vocab-size "
      "102400 untie-embeddings-and-output-weights max-position-embeddings 163840 rotary_scaling yarn "
      "yarn-rotary-scaling-factor 40 yarn-original-max-position-embeddings 4096 yarn-mscale 0.707 yarn-mscale-all-dim "
      "0.707",
      "num-experts 64 moe-router-topk 6 moe-router-pre-softmax moe-ffn-hidden-size 1408 "
      "moe-shared-expert-intermediate-size 2816 moe-layer-freq 011111111111111111111111111 moe-aux-loss-coeff 0.001 "
      "moe-router-load-balancing-type seq_aux_loss"}},
    {"gemma2-2b",
     26,
     2304,
     8,
     {gemma, "num-query-groups 4 ffn-hidden-size 9216 max-position-embeddings 8192 vocab-size 256000",
      "attn-logit-softcapping 50 final-logit-softcapping 30 window-size 4095 window-attn-skip-freq "
      "10101010101010101010101010"}},
    {"gemma3-1b",
     26,
     1152,
     4,
     {gemma, "num-query-groups 1 ffn-hidden-size 6912 max-position-embeddings 32768 vocab-size 262144",
      "qk-layernorm rotary-base 1e6 rotary-base-local 10000 window-size 511 window-attn-skip-freq "
      "11111011111011111011111011"}},
    {"starcoder2-3b", 30, 3072, 24, {starcoder2, "num-query-groups 2 rotary-base 999999.4420358813"}},
    {"starcoder2-7b", 32, 4608, 36, {starcoder2, "num-query-groups 4 rotary-base 1e6"}},
    {"phi-3-mini",
     32,
     3072,
     32,
     {llama,
      "ffn-hidden-size 8192 max-position-embeddings 4096 vocab-size 32064 window-size 2046 "
      "untie-embeddings-and-output-weights"}},
    {"pythia-1.4b", 24, 2048, 16, {pythia}},
    {"falcon-7b", 32, 4544, 71, {falcon, "shared-norm num-query-groups 1"}},
    {"bloom-560m", 24, 1024, 16, {bloom}},
    {"bloom-7b1", 30, 4096, 32, {bloom}},
    {"olmo2-7b",
     32,
     4096,
     32,
     {llama, olmo,
      "post-branch-norm rotary-base 500000 layernorm-epsilon 1e-6 ffn-hidden-size 11008 vocab-size 100352"}},
    {"olmoe-1b-7b",
     16,
     2048,
     16,
     {llama, olmo,
      "vocab-size 50304 ffn-hidden-size 1024 num-experts 64 moe-router-topk 8 moe-router-pre-softmax "
      "moe-aux-loss-coeff 0.01"}},
    {"bert-336m", 24, 1024, 16, {bert}},
    {"bert-1.3b", 24, 2048, 32, {bert}},
    {"bert-3.9b", 48, 2560, 40, {bert}},
    {"bert-base", 12, 768, 12, {bert, original}},
    {"bert-large", 24, 1024, 16, {bert, original}},
};

}  // namespace

ModelConfig preset(const std::string& name) {
  const auto* const found =
      std::ranges::find_if(presets, [&](const Preset& p) { return name == p.name || "gpt2-" + name == p.name; });
  TRIREME_CHECK(found != std::end(presets), ConfigError, "unknown <model> '{}'. Try one of {}", name, preset_names());
  ModelConfig config;
  config.layers = found->layers;
  config.hidden = found->hidden;
  config.heads = found->heads;
  config.ffn_hidden = 4 * found->hidden;
  for (const std::string_view settings : found->settings) set_fields(config, settings);
  return config;
}

std::string preset_names() {
  std::string names;
  for (const Preset& p : presets) names += (names.empty() ? "" : ", ") + std::string(p.name);
  return names;
}

}  // namespace trireme::model

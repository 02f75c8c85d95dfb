#include "src/model/presets.hpp"

#include <algorithm>
#include <vector>

#include "src/base/check.hpp"

namespace trireme::model {
namespace {

struct Preset {
  const char* name;
  ModelConfig config;
};

ModelConfig gpt2(int layers, std::int64_t hidden, std::int64_t heads) {
  ModelConfig config;
  config.layers = layers;
  config.hidden = hidden;
  config.heads = heads;
  config.ffn_hidden = 4 * hidden;
  return config;
}

ModelConfig llama(int layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn_hidden) {
  ModelConfig config = gpt2(layers, hidden, heads);
  config.ffn_hidden = ffn_hidden;
  config.normalization = Normalization::rms_norm;
  config.position_embedding = PositionEmbedding::rope;
  config.swiglu = true;
  config.linear_bias = false;
  config.tied_output = false;
  config.hidden_dropout = 0;
  config.attention_dropout = 0;
  return config;
}

ModelConfig llama2_7b() {
  ModelConfig config = llama(32, 4096, 32, 11008);
  config.max_positions = 4096;
  config.vocabulary = 32000;
  return config;
}

ModelConfig llama3_8b() {
  ModelConfig config = llama(32, 4096, 32, 14336);
  config.query_groups = 8;
  config.rotary_base = 500000;
  config.max_positions = 8192;
  config.vocabulary = 128256;
  return config;
}

/// Llama 3.1's and 3.2's: the frequencies of Llama 3, scaled for 131072 positions.
ModelConfig with_long_positions(ModelConfig config, double factor) {
  config.rotary_scaling = RotaryScaling::llama3(factor);
  config.max_positions = 131072;
  return config;
}

ModelConfig llama3_2_1b() {
  ModelConfig config = llama(16, 2048, 32, 8192);
  config.query_groups = 8;
  config.rotary_base = 500000;
  config.vocabulary = 128256;
  config.tied_output = true;
  return with_long_positions(config, 32);
}

/// Parts that the small Qwens share.
ModelConfig qwen(int layers, std::int64_t hidden, std::int64_t heads, std::int64_t query_groups,
                 std::int64_t ffn_hidden) {
  ModelConfig config = llama(layers, hidden, heads, ffn_hidden);
  config.query_groups = query_groups;
  config.rotary_base = 1e6;
  config.norm_epsilon = 1e-6;
  config.vocabulary = 151936;
  config.tied_output = true;
  return config;
}

ModelConfig qwen2_5_0_5b() {
  ModelConfig config = qwen(24, 896, 14, 2, 4864);
  config.qkv_bias = true;
  config.max_positions = 32768;
  return config;
}

ModelConfig qwen3_0_6b() {
  ModelConfig config = qwen(28, 1024, 16, 8, 3072);
  config.kv_channels = 128;
  config.qk_norm = true;
  config.max_positions = 40960;
  return config;
}

/// Megatron-LM's BERT, with its arrangement of the residual and activation.
ModelConfig bert(int layers, std::int64_t hidden, std::int64_t heads) {
  ModelConfig config = gpt2(layers, hidden, heads);
  config.family = ModelFamily::bert;
  config.max_positions = 512;
  config.vocabulary = 30522;
  return config;
}

/// BERT as first published.
ModelConfig original_bert(int layers, std::int64_t hidden, std::int64_t heads) {
  ModelConfig config = bert(layers, hidden, heads);
  config.norm_placement = NormPlacement::post;
  config.activation = Activation::gelu_erf;
  config.norm_epsilon = 1e-12;
  return config;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> list = {
      {"gpt2-124m", gpt2(12, 768, 12)},
      {"gpt2-355m", gpt2(24, 1024, 16)},
      {"gpt2-774m", gpt2(36, 1280, 20)},
      {"gpt2-1.5b", gpt2(48, 1600, 25)},
      {"gpt2-1.2b", gpt2(40, 1536, 16)},
      {"gpt2-2.5b", gpt2(54, 1920, 20)},
      {"gpt2-4.2b", gpt2(64, 2304, 24)},
      {"gpt2-8.3b", gpt2(72, 3072, 24)},
      {"gpt2-8.3b-scaling", gpt2(72, 3072, 32)},
      {"llama2-7b", llama2_7b()},
      {"llama3-8b", llama3_8b()},
      {"llama3.1-8b", with_long_positions(llama3_8b(), 8)},
      {"llama3.2-1b", llama3_2_1b()},
      {"qwen2.5-0.5b", qwen2_5_0_5b()},
      {"qwen3-0.6b", qwen3_0_6b()},
      {"bert-336m", bert(24, 1024, 16)},
      {"bert-1.3b", bert(24, 2048, 32)},
      {"bert-3.9b", bert(48, 2560, 40)},
      {"bert-base", original_bert(12, 768, 12)},
      {"bert-large", original_bert(24, 1024, 16)},
  };
  return list;
}

}  // namespace

ModelConfig preset(const std::string& name) {
  const auto found =
      std::ranges::find_if(presets(), [&](const Preset& p) { return name == p.name || "gpt2-" + name == p.name; });
  TRIREME_CHECK(found != presets().end(), ConfigError, "unknown <model> '{}'. Try one of {}", name, preset_names());
  return found->config;
}

std::string preset_names() {
  std::string names;
  for (const Preset& p : presets()) names += (names.empty() ? "" : ", ") + std::string(p.name);
  return names;
}

}  // namespace trireme::model

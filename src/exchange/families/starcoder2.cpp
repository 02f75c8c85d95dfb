#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

TensorMap map_starcoder2(const model::ModelConfig& config, const MapOptions& options) {
  return map_around(config, options, map_attention,
                    [](TensorMapBuilder& map, const MapOptions&, const std::string& ours, const std::string& theirs) {
                      map_layer(map, ours + ".fc", theirs + ".mlp.c_fc");
                      map_layer(map, ours + ".proj", theirs + ".mlp.c_proj");
                    });
}

}  // namespace

std::vector<ModelClass> starcoder2_family() {
  return {{
      .name = "Starcoder2ForCausalLM",
      .type = "starcoder2",
      .defaults = "num-layers 30 hidden-size 3072 num-attention-heads 24 num-query-groups 2 ffn-hidden-size 12288 "
                  "vocab-size 49152 max-position-embeddings 4096 position-embedding-type rope",
      .fits = rotates_plain,
      .keys = &model::ConfigKeys::llama,
      .own_keys = {{"norm_epsilon", "norm_epsilon"},
                   {"gelu", "hidden_act"},
                   {"linear_bias", "use_bias"},
                   {"window", "sliding_window."}},
      .fixed = {{"norm_type", std::string_view("layer_norm"), "only layer normalisation is supported"},
                {"mlp_type", std::string_view("default"), "only a feed-forward block without a gate is supported"}},
      .tanh_gelu = "gelu_pytorch_tanh",
      .map = map_starcoder2,
      .base = "model.",
      .buffers = {".rotary_emb.inv_freq"},
  }};
}

}  // namespace trireme::exchange

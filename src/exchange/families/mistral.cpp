#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

/// A window in all layers: without one the model is a Llama.
bool has_one_window(const model::ModelConfig& config) {
  return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope && config.window.any() &&
         config.window.layers.empty();
}

}  // namespace

Family mistral_family() {
  return {
      .classes = {{.id = ModelClass::mistral,
                   .name = "MistralForCausalLM",
                   .type = "mistral",
                   .defaults = std::string(llama_defaults) +
                               "ffn-hidden-size 14336 vocab-size 32000 "
                               "max-position-embeddings 131072 num-query-groups 8 window-size 4095",
                   .is_nearest = has_one_window,
                   .has_window = true}},
      .form = ConfigForm::llama,
      .is_nearest = has_one_window,
      .map = map_llama,
      .base = "model.",
  };
}

}  // namespace trireme::exchange

#include "src/exchange/families/family.hpp"

namespace trireme::exchange {

std::vector<ModelClass> mistral_family() {
  ModelClass mistral = llama_like(
      "MistralForCausalLM", "mistral",
      "ffn-hidden-size 14336 vocab-size 32000 max-position-embeddings 131072 num-query-groups 8 window-size 4095",
      [](const model::ModelConfig& config) {  // a window in all layers: without one the model is a Llama
        return !config.is_bert() && config.position_embedding == model::PositionEmbedding::rope &&
               config.window.any() && config.window.layers.empty();
      });
  mistral.has_window = true;
  return {mistral};
}

}  // namespace trireme::exchange

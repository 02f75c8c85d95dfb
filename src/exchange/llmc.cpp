#include "src/exchange/llmc.hpp"

namespace trireme::exchange {
namespace {

struct LayerTensor {
  const char* name;
  const char* parameter;
};
/// Per-layer tensors, in the order of the file.
constexpr LayerTensor layer_tensors[] = {{"ln1w", "ln_1.weight"},          {"ln1b", "ln_1.bias"},
                                         {"qkvw", "attn.qkv.weight"},      {"qkvb", "attn.qkv.bias"},
                                         {"attprojw", "attn.proj.weight"}, {"attprojb", "attn.proj.bias"},
                                         {"ln2w", "ln_2.weight"},          {"ln2b", "ln_2.bias"},
                                         {"fcw", "mlp.fc.weight"},         {"fcb", "mlp.fc.bias"},
                                         {"fcprojw", "mlp.proj.weight"},   {"fcprojb", "mlp.proj.bias"}};

}  // namespace

TensorMap llmc_tensor_map(const model::ModelConfig& config, std::int64_t padded_vocabulary) {
  TensorMapBuilder map(config);
  map.tokens("wte", "wte", padded_vocabulary, {});
  map.same("wpe", "wpe");
  for (const auto& [name, parameter] : layer_tensors) {
    const MappedParameter& first = map.parameter(layer_prefix(0) + "." + parameter);
    const std::int64_t rows = first.rows();
    const std::size_t tensor = map.tensor({.name = name, .shape = first.shape_of(config.layers * rows)});
    for (int layer = 0; layer < config.layers; ++layer) {
      map.run(layer_prefix(layer) + "." + parameter, {.count = rows, .tensor = tensor, .foreign_first = layer * rows});
    }
  }
  map.same("ln_f.weight", "lnfw");
  map.same("ln_f.bias", "lnfb");
  return map.finish();
}

}  // namespace trireme::exchange

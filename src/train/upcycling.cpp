#include "src/train/upcycling.hpp"

#include <string_view>

#include "src/base/check.hpp"

namespace trireme::train {

model::ModelConfig dense_form(const model::ModelConfig& config) {
  const model::ExpertConfig& experts = config.experts;
  TRIREME_CHECK(experts.any(), ConfigError, "<moe_use_upcycling> makes experts of dense blocks: give <num_experts>");
  TRIREME_CHECK(config.expert_ffn_hidden() == config.ffn_hidden, ConfigError,
                "<moe_use_upcycling>: an expert is a copy of the dense block, of width <ffn_hidden_size> {}, not {}: "
                "leave out <moe_ffn_hidden_size>",
                config.ffn_hidden, config.expert_ffn_hidden());
  TRIREME_CHECK(experts.shared_hidden == 0, ConfigError,
                "<moe_use_upcycling>: a dense model has no weights for a shared expert: leave out "
                "<moe_shared_expert_intermediate_size>");
  model::ModelConfig dense = config;
  dense.experts = {};
  return dense;
}

std::vector<checkpoint::StateTensor> tensors_of_dense_form(std::vector<checkpoint::StateTensor> weights) {
  constexpr std::string_view experts = ".mlp.experts.";
  std::erase_if(weights, [](const checkpoint::StateTensor& tensor) {
    return tensor.name.find(".mlp.router.") != std::string::npos;
  });
  for (checkpoint::StateTensor& tensor : weights) {
    const std::size_t at = tensor.name.find(experts);
    if (at == std::string::npos) continue;
    // "model/h.0.mlp.experts.3.fc.weight" is "model/h.0.mlp.fc.weight".
    const std::size_t weight = tensor.name.find('.', at + experts.size());
    tensor.name.replace(at, weight - at, ".mlp");
  }
  return weights;
}

}  // namespace trireme::train

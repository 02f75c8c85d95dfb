#include "src/train/upcycling.hpp"

#include <cmath>
#include <string_view>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::train {

Upcycling::Upcycling(const model::ModelConfig& config, std::int64_t granularity)
    : dense_(config), granularity_(granularity) {
  const model::ExpertConfig& experts = config.experts;
  TRIREME_CHECK(experts.any(), ConfigError,
                "<moe_use_upcycling> makes experts of dense blocks: give <num_experts> and <disable_bias_linear>");
  TRIREME_CHECK(experts.shared_hidden == 0, ConfigError,
                "<moe_use_upcycling>: a dense model has no weights for a shared expert: leave out "
                "<moe_shared_expert_intermediate_size>");
  TRIREME_CHECK(
      experts.count % granularity == 0 && experts.per_token % granularity == 0, ConfigError,
      "<moe_upcycling_granularity> {}: the parts of a block must divide <num_experts> {} and <moe_router_topk> "
      "{}",
      granularity, experts.count, experts.per_token);
  // Without a width of their own, experts have <ffn_hidden_size>, and no layer shows the dense model's.
  const std::int64_t width = config.expert_ffn_hidden() * granularity;
  const bool has_own_width = config.expert_ffn_hidden() != config.ffn_hidden;
  const bool has_dense_layers = experts.layers.find('0') != std::string::npos;
  TRIREME_CHECK(
      width == config.ffn_hidden || !(has_own_width || has_dense_layers), ConfigError,
      "<moe_use_upcycling>: an expert is one of <moe_upcycling_granularity> {} parts of a dense block of width "
      "<ffn_hidden_size> {}: give <moe_ffn_hidden_size> {}, not {}",
      granularity, config.ffn_hidden, config.ffn_hidden / granularity, config.expert_ffn_hidden());
  dense_.experts = {};
  dense_.ffn_hidden = width;
  const double scale = experts.score == RouterScore::softmax && experts.pre_softmax
                           ? static_cast<double>(experts.count * granularity) / static_cast<double>(experts.per_token)
                           : static_cast<double>(granularity);
  const bool is_cubic = config.gated || config.activation == Activation::squared_relu;
  factor_ = is_cubic ? std::cbrt(scale) : std::sqrt(scale);
}

std::vector<checkpoint::StateTensor> Upcycling::tensors(std::vector<checkpoint::StateTensor> weights) {
  constexpr std::string_view experts = ".mlp.experts.";
  std::erase_if(weights, [](const checkpoint::StateTensor& tensor) {
    return tensor.name.find(".mlp.router.") != std::string::npos;
  });
  of_experts_.clear();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    checkpoint::StateTensor& tensor = weights[i];
    const std::size_t at = tensor.name.find(experts);
    if (at == std::string::npos) continue;
    of_experts_.push_back(i);
    // "model/h.0.mlp.experts.3.fc.weight" is part 3 mod G of "model/h.0.mlp.fc.weight".
    const std::size_t number = at + experts.size(), weight = tensor.name.find('.', number);
    const auto expert = parse_number<std::int64_t>(std::string_view(tensor.name).substr(number, weight - number));
    tensor.name.replace(at, weight - at, ".mlp");
    // The width: rows of fc, [f, h] or [2, f, h], and columns of proj [h, f].
    const int width = tensor.shape.rank() - (tensor.name.ends_with(".proj.weight") ? 1 : 2);
    tensor.box.offset[width] += expert.value() % granularity_ * tensor.shape[width];
    tensor.shape[width] *= granularity_;
  }
  return weights;
}

void Upcycling::scale(std::span<const checkpoint::StateTensor> loaded) const {
  if (factor_ == 1) return;
  for (const std::size_t i : of_experts_) {
    const TensorView& data = loaded[i].data;
    dispatch_float(data.dtype(), [&]<class T>() {
      for (T& value : std::span(data.as<T>(), static_cast<std::size_t>(data.numel()))) {
        value = T(static_cast<Accumulation<T>>(value) * static_cast<Accumulation<T>>(factor_));
      }
    });
  }
}

}  // namespace trireme::train

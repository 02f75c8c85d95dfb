#include "src/optim/make_optimizer.hpp"

#include <algorithm>

namespace trireme::optim {
namespace {

Attributes attributes_of(const MuonOptions& options) {
  Attributes attributes;
  attributes.put_shortest("training.muon-momentum", options.momentum);
  attributes.put("training.muon-nesterov", options.nesterov);
  attributes.put("training.muon-num-ns-steps", options.newton_schulz.steps);
  attributes.put("training.muon-coefficient-type", options.newton_schulz.coefficients, newton_schulz_coefficients);
  if (options.newton_schulz.products == NewtonSchulzProducts::full) {
    attributes.put("training.muon-fp32-matmul-prec", std::string("high"));  // older checkpoints have none
  }
  attributes.put("training.muon-scale-mode", options.scale, muon_scales);
  attributes.put_shortest("training.muon-extra-scale-factor", options.extra_scale);
  attributes.put("training.muon-no-split-qkv", !options.split_qkv);
  return attributes;
}

}  // namespace

std::string_view name_of(OptimizerKind kind) {
  return std::ranges::find(optimizer_kinds, kind, &Choice<OptimizerKind>::value)->name;
}

std::size_t moment_bytes(const OptimizerOptions& options, DType dtype) {
  const std::size_t wide = size_of(accumulation_type(dtype));
  if (options.kind != OptimizerKind::adam) return wide;
  const auto bytes = [&](DType moment) { return moment == DType::fp32 ? wide : size_of(moment); };
  return bytes(options.adamw.exp_avg_dtype) + bytes(options.adamw.exp_avg_sq_dtype);
}

void check_offload(const OptimizerOptions& options) {
  TRIREME_CHECK(options.offload.fraction == 0 || options.kind != OptimizerKind::muon, ConfigError,
                "<optimizer_cpu_offload> and <optimizer> muon exclude each other: Muon updates full matrices, whose "
                "state is on the device. Try <optimizer> adam.");
}

std::unique_ptr<Optimizer> make_optimizer(Backend& backend, parallel::ParameterBuffer& parameters,
                                          std::vector<parallel::GradientGroup> groups,
                                          const OptimizerOptions& options) {
  check_offload(options);
  switch (options.kind) {
    case OptimizerKind::sgd:
      return std::make_unique<Sgd>(backend, parameters, options.weight_decay, options.sgd, options.offload);
    case OptimizerKind::muon:
      return std::make_unique<Muon>(backend, parameters, std::move(groups), options.weight_decay, options.muon,
                                    options.adamw);
    case OptimizerKind::adam:
      break;
  }
  return std::make_unique<AdamW>(backend, parameters, options.weight_decay, options.adamw, options.offload);
}

Attributes attributes_of(const OptimizerOptions& options) {
  Attributes attributes;
  attributes.put("optimizer", options.kind, optimizer_kinds);
  attributes.put_shortest("training.weight-decay", options.weight_decay);
  if (options.decays_all) attributes.put("training.do-layernorm-bias-weight-decay", true);
  if (options.kind == OptimizerKind::sgd) {
    attributes.put_shortest("training.sgd-momentum", options.sgd.momentum);
    return attributes;
  }
  if (options.kind == OptimizerKind::muon) attributes.merge(attributes_of(options.muon));
  attributes.put_shortest("training.adam-beta1", options.adamw.beta1);
  attributes.put_shortest("training.adam-beta2", options.adamw.beta2);
  attributes.put_shortest("training.adam-eps", options.adamw.epsilon);
  for (const auto& [name, dtype] : {std::pair{"training.exp-avg-dtype", options.adamw.exp_avg_dtype},
                                    {"training.exp-avg-sq-dtype", options.adamw.exp_avg_sq_dtype}}) {
    if (dtype != DType::fp32) attributes.put(name, name_of(dtype));
  }
  return attributes;
}

OptimizerKind optimizer_from(const Attributes& attributes) {
  // Checkpoints from before the optimizer was stored hold adam's state.
  return attributes.contains("optimizer") ? attributes.get("optimizer", optimizer_kinds) : OptimizerKind::adam;
}

}  // namespace trireme::optim

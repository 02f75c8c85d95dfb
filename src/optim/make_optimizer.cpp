#include "src/optim/make_optimizer.hpp"

namespace trireme::optim {
namespace {

constexpr Choice<OptimizerKind> kind_names[] = {{"adam", OptimizerKind::adam}, {"sgd", OptimizerKind::sgd}};

}  // namespace

std::string_view name_of(OptimizerKind kind) { return kind == OptimizerKind::sgd ? "sgd" : "adam"; }

std::size_t moment_count(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? Sgd::moment_names.size() : AdamW::moment_names.size();
}

std::unique_ptr<Optimizer> make_optimizer(Backend& backend, parallel::ParameterBuffer& parameters,
                                          const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::sgd) {
    return std::make_unique<Sgd>(backend, parameters, options.weight_decay, options.sgd);
  }
  return std::make_unique<AdamW>(backend, parameters, options.weight_decay, options.adamw);
}

Attributes attributes_of(const OptimizerOptions& options) {
  Attributes attributes;
  attributes.put("optimizer", options.kind, kind_names);
  attributes.put_shortest("training.weight-decay", options.weight_decay);
  if (options.kind == OptimizerKind::sgd) {
    attributes.put_shortest("training.sgd-momentum", options.sgd.momentum);
  } else {
    attributes.put_shortest("training.adam-beta1", options.adamw.beta1);
    attributes.put_shortest("training.adam-beta2", options.adamw.beta2);
    attributes.put_shortest("training.adam-eps", options.adamw.epsilon);
  }
  return attributes;
}

OptimizerKind optimizer_from(const Attributes& attributes) {
  // Checkpoints from before the optimizer was stored hold adam's state.
  return attributes.contains("optimizer") ? attributes.get("optimizer", kind_names) : OptimizerKind::adam;
}

}  // namespace trireme::optim

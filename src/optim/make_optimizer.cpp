#include "src/optim/make_optimizer.hpp"

namespace trireme::optim {

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

}  // namespace trireme::optim

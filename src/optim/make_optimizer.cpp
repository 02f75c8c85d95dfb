#include "src/optim/make_optimizer.hpp"

namespace trireme::optim {

std::string_view name_of(OptimizerKind) { return "adam"; }

std::unique_ptr<Optimizer> make_optimizer(Backend& backend, parallel::ParameterBuffer& parameters,
                                          const OptimizerOptions& options) {
  return std::make_unique<AdamW>(backend, parameters, options.weight_decay, options.adamw);
}

}  // namespace trireme::optim

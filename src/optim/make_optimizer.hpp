#pragma once

#include <memory>
#include <string_view>

#include "src/optim/adamw.hpp"

namespace trireme::optim {

enum class OptimizerKind { adam };
/// "adam"
std::string_view name_of(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  double weight_decay = 0.01;
  AdamWOptions adamw = {};
};

/// Throws ConfigError for options out of range. `parameters` must live longer.
std::unique_ptr<Optimizer> make_optimizer(Backend& backend, parallel::ParameterBuffer& parameters,
                                          const OptimizerOptions& options);

}  // namespace trireme::optim

#pragma once

#include <optional>
#include <string>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

/// Options of sliding-window attention.
struct WindowOptions {
  std::optional<std::string> size;
  std::optional<std::string> skip_frequency;

  void declare(Options& options);
  /// Applies the options to `config`, whose number of layers is known.
  void apply(model::ModelConfig& config, Problems& problems) const;
};

}  // namespace trireme::app

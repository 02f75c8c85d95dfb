#pragma once

#include <array>

#include "src/optim/optimizer.hpp"

namespace trireme::optim {

struct SgdOptions {
  double momentum = 0.9;
};

/// SGD with momentum. Weight decay is L2 regularisation: it is added to the gradient.
class Sgd final : public Optimizer {
 public:
  static constexpr std::array moment_names = {MomentSpec{"sgd_m"}};

  /// Throws ConfigError for options out of range. `parameters` must live longer.
  Sgd(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay, const SgdOptions& options,
      const Offload& offload = {})
      : Optimizer(backend, parameters, weight_decay, moment_names, offload), options_(options) {
    TRIREME_CHECK(options.momentum >= 0 && options.momentum < 1, ConfigError,
                  "<sgd_momentum> {} must be from 0 to less than 1", options.momentum);
  }

 private:
  void update_ranges(const Update& update, const UpdateRanges& ranges, const Arrays& arrays) override {
    const SgdStep step{.rates = update.rates,
                       .momentum = options_.momentum,
                       .gradient_scale = update.gradient_scale,
                       .factor = update.factor};
    backend().optimizer().sgd(update.stream, step, ranges, arrays.gradients, arrays.masters, arrays.moments[0],
                              arrays.rounded);
  }

  SgdOptions options_;
};

}  // namespace trireme::optim

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
  Sgd(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay, const SgdOptions& options);

 private:
  void update_stretch(const Update& update, const Stretch& stretch) override;

  SgdOptions options_;
};

}  // namespace trireme::optim

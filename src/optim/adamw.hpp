#pragma once

#include <array>

#include "src/optim/optimizer.hpp"

namespace trireme::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

/// Throws ConfigError for options out of range.
void validate(const AdamWOptions& options);
/// Numbers of update `number`, from 1, without its rates.
AdamWStep adamw_step(const AdamWOptions& options, std::int64_t number, double gradient_scale);

/// AdamW, which keeps both moments. Weight decay is decoupled: it does not enter the moments.
class AdamW final : public Optimizer {
 public:
  static constexpr std::array moment_names = {MomentName{"adamw_m"}, MomentName{"adamw_v"}};

  /// Throws ConfigError for options out of range. `parameters` must live longer.
  AdamW(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay, const AdamWOptions& options);

 private:
  void update_stretch(const Update& update, const Stretch& stretch) override;

  AdamWOptions options_;
};

}  // namespace trireme::optim

#include "src/optim/loss_scaler.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/check.hpp"

namespace trireme::optim {

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(options), state_{options.initial_scale, 0, options.hysteresis} {
  TRIREME_CHECK(std::isfinite(options.initial_scale) && options.initial_scale > 0, ConfigError,
                "the loss scale {} must be above 0", options.initial_scale);
  if (!options.dynamic) return;
  TRIREME_CHECK(options.minimum_scale > 0 && options.minimum_scale <= options.initial_scale, ConfigError,
                "<min_loss_scale> {} must be above 0 and at most the initial scale {}", options.minimum_scale,
                options.initial_scale);
  TRIREME_CHECK(options.growth_window >= 1 && options.hysteresis >= 1, ConfigError,
                "<loss_scale_window> {} and <hysteresis> {} must be at least 1", options.growth_window,
                options.hysteresis);
}

void LossScaler::update(bool overflow) {
  if (!options_.dynamic) return;
  if (overflow) {
    state_.good_updates = 0;
    state_.hysteresis_left -= 1;
    if (state_.hysteresis_left <= 0) state_.scale = std::max(state_.scale * 0.5, options_.minimum_scale);
  } else if (++state_.good_updates >= options_.growth_window) {
    state_.good_updates = 0;
    state_.hysteresis_left = options_.hysteresis;
    state_.scale *= 2;
  }
}

Attributes attributes_of(const LossScalerOptions& options) {
  Attributes attributes;
  if (options.dynamic) {
    attributes.put("training.loss-scale", "dynamic");
    attributes.put_shortest("training.min-loss-scale", options.minimum_scale);
    attributes.put("training.loss-scale-window", options.growth_window);
    attributes.put("training.hysteresis", options.hysteresis);
  } else {
    attributes.put_shortest("training.loss-scale", options.initial_scale);
  }
  return attributes;
}

}  // namespace trireme::optim

#include "src/optim/sgd.hpp"

namespace trireme::optim {

Sgd::Sgd(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay, const SgdOptions& options)
    : Optimizer(backend, parameters, weight_decay, moment_names), options_(options) {
  TRIREME_CHECK(options.momentum >= 0 && options.momentum < 1, ConfigError,
                "<sgd_momentum> {} must be from 0 to less than 1", options.momentum);
}

void Sgd::update_stretch(const Update& update, const Stretch& stretch) {
  SgdStep step;
  step.learning_rate = stretch.learning_rate;
  step.momentum = options_.momentum;
  step.weight_decay = stretch.weight_decay;
  step.gradient_scale = update.gradient_scale;
  backend().optimizer().sgd(backend().compute_stream(), step, stretch.gradients, stretch.masters, stretch.moments[0],
                            stretch.rounded);
}

}  // namespace trireme::optim

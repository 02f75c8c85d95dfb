#include "src/optim/adamw.hpp"

namespace trireme::optim {

void validate(const AdamWOptions& options) {
  TRIREME_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, ConfigError,
                "<adam_beta1> {} and <adam_beta2> {} must be from 0 to less than 1", options.beta1, options.beta2);
  // With 0 an element that never had a gradient, padding for one, would become 0 / 0.
  TRIREME_CHECK(options.epsilon > 0, ConfigError, "<adam_eps> {} must be above 0", options.epsilon);
}

AdamWStep adamw_step(const AdamWOptions& options, std::int64_t number, double gradient_scale) {
  AdamWStep step;
  step.beta1 = options.beta1;
  step.beta2 = options.beta2;
  step.epsilon = options.epsilon;
  step.update = number;
  step.gradient_scale = gradient_scale;
  return step;
}

AdamW::AdamW(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay, const AdamWOptions& options)
    : Optimizer(backend, parameters, weight_decay, moment_names), options_(options) {
  validate(options);
}

void AdamW::update_stretch(const Update& update, const Stretch& stretch) {
  AdamWStep step = adamw_step(options_, update.number, update.gradient_scale);
  step.learning_rate = stretch.learning_rate;
  step.weight_decay = stretch.weight_decay;
  backend().optimizer().adamw(backend().compute_stream(), step, stretch.gradients, stretch.masters, stretch.moments[0],
                              stretch.moments[1], stretch.rounded);
}

}  // namespace trireme::optim

#include "src/optim/adamw.hpp"

namespace trireme::optim {

AdamW::AdamW(Backend& backend, parallel::ParameterBuffer& parameters, const AdamWOptions& options)
    : backend_(backend), parameters_(parameters), options_(options) {
  TRIREME_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, ConfigError,
                "--adam-beta1 {} and --adam-beta2 {} must be from 0 to less than 1", options.beta1, options.beta2);
  // With 0 an element that never had a gradient, padding for one, would become 0 / 0.
  TRIREME_CHECK(options.epsilon > 0, ConfigError, "--adam-eps {} must be above 0", options.epsilon);
  TRIREME_CHECK(options.weight_decay >= 0, ConfigError, "--weight-decay {} must not be negative", options.weight_decay);
  const DType type = parameters.gradients().dtype();
  const Shape size = parameters.values().shape();
  first_moments_ = Tensor(backend, type, size);
  second_moments_ = Tensor(backend, type, size);
  Stream& stream = backend.compute_stream();
  backend.elementwise().fill(stream, 0, first_moments_);
  backend.elementwise().fill(stream, 0, second_moments_);
  if (parameters.values().dtype() != type) {
    masters_ = Tensor(backend, type, size);
    reset_masters();
  }
}

void AdamW::reset_masters() {
  if (rounds()) backend_.elementwise().convert(backend_.compute_stream(), parameters_.values(), masters_);
}

void AdamW::step(double learning_rate, double gradient_scale) {
  AdamWStep step;
  step.learning_rate = learning_rate;
  step.beta1 = options_.beta1;
  step.beta2 = options_.beta2;
  step.epsilon = options_.epsilon;
  step.update = ++updates_;
  step.gradient_scale = gradient_scale;
  const std::vector<parallel::Parameter>& list = parameters_.parameters();
  // Neighbours with the same decay are updated together, the zeros between them too: they stay zero.
  for (std::size_t begin = 0; begin < list.size();) {
    const bool decays = parallel::decays(list[begin].role);
    std::size_t end = begin + 1;
    while (end < list.size() && parallel::decays(list[end].role) == decays) ++end;
    const std::int64_t first = parameters_.offset(begin);
    const std::int64_t count = parameters_.offset(end - 1) + list[end - 1].stored_numel() - first;
    step.weight_decay = decays ? options_.weight_decay : 0;
    backend_.optimizer().adamw(backend_.compute_stream(), step, parameters_.gradients().flat(first, count),
                               masters().flat(first, count), first_moments_.view().flat(first, count),
                               second_moments_.view().flat(first, count),
                               rounds() ? parameters_.values().flat(first, count) : TensorView());
    begin = end;
  }
}

void AdamW::restore(std::int64_t updates) {
  updates_ = updates;
  if (rounds()) backend_.elementwise().convert(backend_.compute_stream(), masters_, parameters_.values());
}

}  // namespace trireme::optim

#include "src/optim/adamw.hpp"

namespace trireme::optim {

AdamW::AdamW(Backend& backend, parallel::ParameterBuffer& parameters, const AdamWOptions& options)
    : backend_(backend), parameters_(parameters), options_(options) {
  TRIREME_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, ConfigError,
                "--adam-beta1 {} and --adam-beta2 {} must be from 0 to less than 1", options.beta1, options.beta2);
  // With 0 an element that never had a gradient, padding for one, would become 0 / 0.
  TRIREME_CHECK(options.epsilon > 0, ConfigError, "--adam-eps {} must be above 0", options.epsilon);
  TRIREME_CHECK(options.weight_decay >= 0, ConfigError, "--weight-decay {} must not be negative", options.weight_decay);
  const DType type = accumulation_type(parameters.values().dtype());
  const Shape size = {parameters.layout().shard_elements()};
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
  if (!rounds()) return;
  for (std::size_t bucket = 0; bucket < parameters_.layout().buckets().size(); ++bucket) {
    backend_.elementwise().convert(backend_.compute_stream(), parameters_.shard_values(bucket), masters(bucket));
  }
}

void AdamW::step(double learning_rate, double gradient_scale, const std::function<void(std::size_t)>& updated) {
  AdamWStep step;
  step.learning_rate = learning_rate;
  step.beta1 = options_.beta1;
  step.beta2 = options_.beta2;
  step.epsilon = options_.epsilon;
  step.update = ++updates_;
  step.gradient_scale = gradient_scale;
  for (std::size_t bucket = parameters_.layout().buckets().size(); bucket-- > 0;) {
    step_bucket(bucket, step);
    if (updated) updated(bucket);
  }
}

void AdamW::step_bucket(std::size_t bucket, AdamWStep& step) {
  const TensorView gradients = parameters_.shard_gradients(bucket);
  const TensorView values = parameters_.shard_values(bucket);
  const TensorView masters = this->masters(bucket);
  const TensorView first_moments = of_bucket(first_moments_, bucket);
  const TensorView second_moments = of_bucket(second_moments_, bucket);
  const auto decay = [this](const parallel::Parameter& p) {
    return parallel::decays(p.role) ? options_.weight_decay : 0;
  };
  // The zeros between parameters are updated, too: they stay zero.
  parameters_.for_each_stretch(bucket, decay, [&](double weight_decay, std::int64_t begin, std::int64_t count) {
    step.weight_decay = weight_decay;
    backend_.optimizer().adamw(backend_.compute_stream(), step, gradients.flat(begin, count),
                               masters.flat(begin, count), first_moments.flat(begin, count),
                               second_moments.flat(begin, count), rounds() ? values.flat(begin, count) : TensorView());
  });
}

void AdamW::restore(std::int64_t updates) {
  updates_ = updates;
  if (!rounds()) return;
  for (std::size_t bucket = 0; bucket < parameters_.layout().buckets().size(); ++bucket) {
    backend_.elementwise().convert(backend_.compute_stream(), masters(bucket), parameters_.shard_values(bucket));
  }
}

}  // namespace trireme::optim

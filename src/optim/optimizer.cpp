#include "src/optim/optimizer.hpp"

namespace trireme::optim {

Optimizer::Optimizer(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay,
                     std::span<const char* const> moments)
    : backend_(backend), parameters_(parameters), weight_decay_(weight_decay) {
  TRIREME_CHECK(weight_decay >= 0, ConfigError, "<weight_decay> {} must not be negative", weight_decay);
  const DType type = accumulation_type(parameters.values().dtype());
  const Shape size = {parameters.layout().shard_elements()};
  for (const char* name : moments) {
    moments_.push_back({name, Tensor(backend, type, size)});
    backend.elementwise().fill(backend.compute_stream(), 0, moments_.back().array);
  }
  if (parameters.values().dtype() != type) {
    masters_ = Tensor(backend, type, size);
    reset_masters();
  }
}

std::size_t Optimizer::bytes() const {
  std::size_t sum = masters_.view().size_bytes();
  for (const Moment& moment : moments_) sum += moment.array.view().size_bytes();
  return sum;
}

std::vector<Optimizer::State> Optimizer::state(std::size_t i) const {
  const std::size_t bucket = parameters_.layout().bucket_of(i);
  const parallel::ShardRange own = parameters_.shard_range(i);
  std::vector<State> states = {{"model", masters(bucket).flat(own.at, own.count)}};
  for (const Moment& moment : moments_) {
    states.push_back({moment.name, of_bucket(moment.array, bucket).flat(own.at, own.count)});
  }
  return states;
}

void Optimizer::reset_masters() {
  if (!rounds()) return;
  for (std::size_t bucket = 0; bucket < parameters_.layout().buckets().size(); ++bucket) {
    backend_.elementwise().convert(backend_.compute_stream(), parameters_.shard_values(bucket), masters(bucket));
  }
}

void Optimizer::restore(std::int64_t updates) {
  updates_ = updates;
  if (!rounds()) return;
  for (std::size_t bucket = 0; bucket < parameters_.layout().buckets().size(); ++bucket) {
    backend_.elementwise().convert(backend_.compute_stream(), masters(bucket), parameters_.shard_values(bucket));
  }
}

void Optimizer::step(const Rates& rates, double gradient_scale, const std::function<void(std::size_t)>& updated) {
  const Update update{gradient_scale, ++updates_};
  for (std::size_t bucket = parameters_.layout().buckets().size(); bucket-- > 0;) {
    update_bucket(bucket, rates, update);
    if (updated) updated(bucket);
  }
}

void Optimizer::update_bucket(std::size_t bucket, const Rates& rates, const Update& update) {
  const TensorView gradients = parameters_.shard_gradients(bucket);
  const TensorView values = parameters_.shard_values(bucket);
  const TensorView masters = this->masters(bucket);
  const auto of_parameter = [&](const parallel::Parameter& p) {
    return std::pair(p.rows_are_tokens ? rates.of_tokens.value_or(rates.learning_rate) : rates.learning_rate,
                     parallel::decays(p.role) ? rates.weight_decay.value_or(weight_decay_) : 0);
  };
  parameters_.for_each_stretch(bucket, of_parameter, [&](const auto& own, std::int64_t begin, std::int64_t count) {
    Stretch stretch{own.first,
                    own.second,
                    gradients.flat(begin, count),
                    masters.flat(begin, count),
                    {},
                    rounds() ? values.flat(begin, count) : TensorView()};
    for (const Moment& moment : moments_) {
      stretch.moments.push_back(of_bucket(moment.array, bucket).flat(begin, count));
    }
    update_stretch(update, stretch);
  });
}

}  // namespace trireme::optim

#include "src/optim/optimizer.hpp"

#include <algorithm>
#include <tuple>

namespace trireme::optim {

Optimizer::Optimizer(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay,
                     std::span<const MomentSpec> moments, MatrixFilter is_matrix)
    : backend_(backend), parameters_(parameters), weight_decay_(weight_decay), is_matrix_(is_matrix) {
  TRIREME_CHECK(weight_decay >= 0, ConfigError, "<weight_decay> {} must not be negative", weight_decay);
  const DType type = accumulation_type(parameters.values().dtype());
  for (const auto& [name, of_matrices, dtype] : moments) {
    TRIREME_CHECK(dtype == DType::fp32 || type == DType::fp32, ConfigError,
                  "moments in {} are not supported with <dtype> fp64, which is for proofs. Try fp32 or bf16.",
                  name_of(dtype));
    Moment& moment = moments_.emplace_back();
    moment.name = name;
    moment.of_matrices = of_matrices;
    std::int64_t elements = 0;
    moment.ranges = ranges_of(of_matrices, elements);
    moment.array = Tensor(backend, dtype == DType::fp32 ? type : dtype, {elements});
    backend.elementwise().fill(backend.compute_stream(), 0, moment.array);
  }
  if (parameters.values().dtype() != type) {
    masters_ = Tensor(backend, type, {parameters.layout().shard_elements()});
    reset_masters();
  }
}

std::vector<std::vector<Optimizer::Range>> Optimizer::ranges_of(bool matrices, std::int64_t& elements) const {
  std::vector<std::vector<Range>> ranges(parameters_.layout().buckets().size());
  constexpr std::int64_t alignment = 32;  // elements: 128 bytes in fp32
  for (std::size_t bucket = 0; bucket < ranges.size(); ++bucket) {
    if (is_matrix_ == nullptr) {
      const parallel::Bucket& bounds = parameters_.layout().buckets()[bucket];
      ranges[bucket] = {{0, bounds.shard_size(), bounds.shard_begin}};
      continue;
    }
    const auto kind = [this](const parallel::Parameter& p) { return is_matrix(p); };
    parameters_.for_each_stretch(bucket, kind, [&](bool is_matrix, std::int64_t begin, std::int64_t count) {
      if (is_matrix != matrices) return;
      ranges[bucket].push_back({begin, count, elements});
      elements += (count + alignment - 1) / alignment * alignment;
    });
  }
  elements = is_matrix_ == nullptr ? parameters_.layout().shard_elements() : std::max(elements, alignment);
  return ranges;
}

std::size_t Optimizer::bytes() const {
  std::size_t sum = masters_.view().size_bytes();
  for (const Moment& moment : moments_) sum += moment.array.view().size_bytes();
  return sum;
}

Optimizer::Stretch Optimizer::stretch_at(std::size_t bucket, bool matrices, std::int64_t begin,
                                         std::int64_t count) const {
  Stretch stretch;
  stretch.gradients = parameters_.shard_gradients(bucket).flat(begin, count);
  stretch.masters = masters(bucket).flat(begin, count);
  if (rounds()) stretch.rounded = parameters_.shard_values(bucket).flat(begin, count);
  for (const Moment& moment : moments_) {
    if (moment.of_matrices != matrices) continue;
    const std::vector<Range>& ranges = moment.ranges[bucket];
    const auto after = std::ranges::upper_bound(ranges, begin, {}, &Range::begin);
    const Range range = after == ranges.begin() ? Range{} : *std::prev(after);
    stretch.moments.push_back(moment.array.view().flat(range.offset + (count == 0 ? 0 : begin - range.begin), count));
  }
  return stretch;
}

std::pair<double, double> Optimizer::rates_of(const parallel::Parameter& p, const Rates& rates) const {
  return {p.rows_are_tokens ? rates.of_tokens.value_or(rates.learning_rate) : rates.learning_rate,
          rates.decays_all || parallel::decays(p.role) ? rates.weight_decay.value_or(weight_decay_) : 0};
}

Optimizer::Stretch Optimizer::stretch_of(std::size_t i, const Rates& rates) const {
  const parallel::Parameter& p = parameters_.parameters()[i];
  const parallel::ShardRange own = parameters_.shard_range(i);
  Stretch stretch = stretch_at(parameters_.layout().bucket_of(i), is_matrix(p), own.at, own.count);
  std::tie(stretch.learning_rate, stretch.weight_decay) = rates_of(p, rates);
  return stretch;
}

std::vector<Optimizer::State> Optimizer::state(std::size_t i) const {
  const Stretch stretch = stretch_of(i, 0);
  const bool matrix = is_matrix(parameters_.parameters()[i]);
  std::vector<State> states = {{"model", stretch.masters}};
  for (const Moment& moment : moments_) {
    if (moment.of_matrices == matrix) states.push_back({moment.name, stretch.moments[states.size() - 1]});
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
  const Update update{rates, gradient_scale, ++updates_};
  for (std::size_t bucket = parameters_.layout().buckets().size(); bucket-- > 0;) {
    update_bucket(bucket, update);
    update_matrices(update, bucket);
    if (updated) updated(bucket);
  }
}

void Optimizer::update_bucket(std::size_t bucket, const Update& update) {
  const auto kind = [&](const parallel::Parameter& p) { return std::pair(rates_of(p, update.rates), is_matrix(p)); };
  parameters_.for_each_stretch(bucket, kind, [&](const auto& own, std::int64_t begin, std::int64_t count) {
    const auto& [rates, matrix] = own;
    if (matrix) return;
    Stretch stretch = stretch_at(bucket, false, begin, count);
    std::tie(stretch.learning_rate, stretch.weight_decay) = rates;
    update_stretch(update, stretch);
  });
}

}  // namespace trireme::optim

#include "src/optim/optimizer.hpp"

#include <algorithm>

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
  make_tables();
}

void Optimizer::make_tables() {
  std::int64_t elements = 0;
  const std::vector<std::vector<Range>> state = ranges_of(false, elements);
  const auto kind = [this](const parallel::Parameter& p) { return std::pair(rates_of(p), is_matrix(p)); };
  for (std::size_t bucket = 0; bucket < state.size(); ++bucket) {
    parallel::RangeTable& updated = updated_.emplace_back();
    parameters_.for_each_stretch(bucket, kind, [&](const auto& of_all, std::int64_t begin, std::int64_t count) {
      const auto& [rates, matrix] = of_all;
      if (!matrix) updated.add(begin, count, state_of(state[bucket], begin), rates);
    });
    updated.upload(backend_);
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

std::int64_t Optimizer::state_of(const std::vector<Range>& ranges, std::int64_t begin) {
  const auto after = std::ranges::upper_bound(ranges, begin, {}, &Range::begin);
  if (after == ranges.begin()) return 0;
  const Range& range = *std::prev(after);
  return range.offset + begin - range.begin;
}

UpdateRateTable Optimizer::table_of(const Rates& rates) const {
  const double decay = rates.weight_decay.value_or(weight_decay_), rest = rates.decays_all ? decay : 0;
  const double of_tokens = rates.of_tokens.value_or(rates.learning_rate);
  return {{{rates.learning_rate, rest}, {rates.learning_rate, decay}, {of_tokens, rest}, {of_tokens, decay}}};
}

Optimizer::Arrays Optimizer::arrays_of(std::size_t i) const {
  const bool matrix = is_matrix(parameters_.parameters()[i]);
  const std::size_t bucket = parameters_.layout().bucket_of(i);
  const parallel::ShardRange own = parameters_.shard_range(i);
  Arrays arrays;
  arrays.gradients = parameters_.shard_gradients(bucket).flat(own.at, own.count);
  arrays.masters = masters(bucket).flat(own.at, own.count);
  if (rounds()) arrays.rounded = parameters_.shard_values(bucket).flat(own.at, own.count);
  for (const Moment& moment : moments_) {
    if (moment.of_matrices != matrix) continue;
    const std::int64_t begin = own.count == 0 ? 0 : state_of(moment.ranges[bucket], own.at);
    arrays.moments.push_back(moment.array.view().flat(begin, own.count));
  }
  return arrays;
}

std::vector<Optimizer::State> Optimizer::state(std::size_t i) const {
  const Arrays arrays = arrays_of(i);
  const bool matrix = is_matrix(parameters_.parameters()[i]);
  std::vector<State> states = {{"model", arrays.masters}};
  for (const Moment& moment : moments_) {
    if (moment.of_matrices == matrix) states.push_back({moment.name, arrays.moments[states.size() - 1]});
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

void Optimizer::step(const Rates& rates, double gradient_scale, const std::function<void(std::size_t)>& updated,
                     Stream* stream) {
  const Update update{table_of(rates), gradient_scale, ++updates_,
                      stream == nullptr ? backend_.compute_stream() : *stream};
  for (std::size_t bucket = parameters_.layout().buckets().size(); bucket-- > 0;) {
    update_bucket(bucket, update);
    update_matrices(update, bucket);
    if (updated) updated(bucket);
  }
}

void Optimizer::update_bucket(std::size_t bucket, const Update& update) {
  if (updated_[bucket].elements() == 0) return;
  Arrays arrays{
      .gradients = parameters_.shard_gradients(bucket), .masters = masters(bucket), .moments = {}, .rounded = {}};
  if (rounds()) arrays.rounded = parameters_.shard_values(bucket);
  for (const Moment& moment : moments_) {
    if (!moment.of_matrices) arrays.moments.push_back(moment.array);
  }
  update_ranges(update, updated_[bucket].ranges(), arrays);
}

}  // namespace trireme::optim

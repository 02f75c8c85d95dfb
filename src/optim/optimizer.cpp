#include "src/optim/optimizer.hpp"

#include <algorithm>

namespace trireme::optim {

Optimizer::Array::Array(Backend& backend, DType dtype, std::int64_t elements, std::int64_t on_host)
    : on_host_(on_host) {
  if (on_host > 0) host_ = Tensor(backend.host_memory(), dtype, {on_host});
  if (on_host < elements || elements == 0) device_ = Tensor(backend, dtype, {elements - on_host});
  for (const Tensor* part : {&host_, &device_}) {
    if (part->view()) backend.elementwise().fill(backend.compute_stream(), 0, *part);
  }
}

Optimizer::Optimizer(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay,
                     std::span<const MomentSpec> moments, const Offload& offload, MatrixFilter is_matrix)
    : backend_(backend),
      parameters_(parameters),
      weight_decay_(weight_decay),
      is_matrix_(is_matrix),
      on_host_(elements_of(offload.fraction)) {
  TRIREME_CHECK(weight_decay >= 0, ConfigError, "<weight_decay> {} must not be negative", weight_decay);
  const DType type = accumulation_type(parameters.values().dtype());
  std::vector<DType> state;
  for (const auto& [name, of_matrices, dtype] : moments) {
    TRIREME_CHECK(dtype == DType::fp32 || type == DType::fp32, ConfigError,
                  "moments in {} are not supported with <dtype> fp64, which is for proofs. Try fp32 or bf16.",
                  name_of(dtype));
    Moment& moment = moments_.emplace_back();
    moment.name = name;
    moment.of_matrices = of_matrices;
    std::int64_t elements = 0;
    moment.ranges = ranges_of(of_matrices, elements);
    moment.array = Array(backend, dtype == DType::fp32 ? type : dtype, elements, on_host_);
  }
  if (parameters.values().dtype() != type) {
    masters_ = Array(backend, type, parameters.layout().shard_elements(), on_host_);
    state.push_back(type);
  }
  for (const Moment& moment : moments_) state.push_back(moment.array.dtype());
  make_tables(offload.piece_elements);
  if (on_host_ > 0) {
    std::int64_t longest = 0;
    for (std::size_t bucket = 0; bucket < pieces_.size(); ++bucket) {
      for (const Piece& piece : pieces_[bucket]) {
        if (is_on_host(bucket)) longest = std::max(longest, piece.count);
      }
    }
    host_.emplace(backend, state, longest);
  }
  reset_masters();
}

std::int64_t Optimizer::elements_of(double fraction) const {
  const double wanted = fraction * static_cast<double>(parameters_.layout().shard_elements());
  std::int64_t elements = 0;
  for (const parallel::Bucket& bucket : parameters_.layout().buckets()) {
    if (static_cast<double>(elements) >= wanted) break;
    elements = bucket.shard_begin + bucket.shard_size();
  }
  return elements;
}

void Optimizer::make_tables(std::int64_t piece_elements) {
  std::int64_t elements = 0;
  const std::vector<std::vector<Range>> state = ranges_of(false, elements);
  const auto kind = [this](const parallel::Parameter& p) {
    return std::pair(rates_of(p), p.has_gradient && !is_matrix(p));
  };
  for (std::size_t bucket = 0; bucket < state.size(); ++bucket) {
    std::vector<Piece>& pieces = pieces_.emplace_back();
    const std::int64_t size = bounds_of(bucket).shard_size(), step = is_on_host(bucket) ? piece_elements : size;
    for (std::int64_t at = 0; at < size; at += step) pieces.push_back({at, std::min(step, size - at)});
    parameters_.for_each_stretch(bucket, kind, [&](const auto& of_all, std::int64_t begin, std::int64_t count) {
      const auto& [rates, is_updated] = of_all;
      if (!is_updated) return;
      for (Piece& piece : pieces) {
        const std::int64_t first = std::max(begin, piece.begin);
        const std::int64_t own = std::min(begin + count, piece.begin + piece.count) - first;
        if (own <= 0) continue;
        const std::int64_t moment =
            is_on_host(bucket) ? first - piece.begin : state_of(state[bucket], first) - on_host_;
        piece.updated.add(first - piece.begin, own, moment, rates);
      }
    });
    for (Piece& piece : pieces) {
      if (piece.updated.elements() > 0) piece.updated.upload(backend_);
    }
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
  std::size_t sum = masters_.device().view().size_bytes() + (host_ ? host_->bytes() : 0);
  for (const Moment& moment : moments_) sum += moment.array.device().view().size_bytes();
  return sum;
}

std::size_t Optimizer::host_bytes() const {
  std::size_t sum = masters_.host().view().size_bytes();
  for (const Moment& moment : moments_) sum += moment.array.host().view().size_bytes();
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
    arrays.moments.push_back(moment.array.flat(begin, own.count));
  }
  return arrays;
}

std::vector<Optimizer::State> Optimizer::state(std::size_t i) const {
  const parallel::Parameter& parameter = parameters_.parameters()[i];
  if (parameter.frozen) return {{"model", parameter.value.flat(0, parameter.stored_numel())}};
  const Arrays arrays = arrays_of(i);
  const bool matrix = is_matrix(parameters_.parameters()[i]);
  std::vector<State> states = {{"model", arrays.masters}};
  for (const Moment& moment : moments_) {
    if (moment.of_matrices == matrix) states.push_back({moment.name, arrays.moments[states.size() - 1]});
  }
  return states;
}

void Optimizer::reset_masters() {
  if (rounds()) {
    for (std::size_t bucket = 0; bucket < parameters_.layout().buckets().size(); ++bucket) {
      backend_.elementwise().convert(backend_.compute_stream(), parameters_.shard_values(bucket), masters(bucket));
    }
  }
  // The host may write state there next.
  if (host_) backend_.compute_stream().synchronize();
}

void Optimizer::restore(std::int64_t updates) {
  updates_ = updates;
  if (!rounds()) return;
  for (std::size_t bucket = 0; bucket < parameters_.layout().buckets().size(); ++bucket) {
    backend_.elementwise().convert(backend_.compute_stream(), masters(bucket), parameters_.shard_values(bucket));
  }
}

void Optimizer::step(const Rates& rates, double gradient_scale, const std::function<void(std::size_t)>& updated,
                     Stream* stream, const double* factor) {
  const Update update{table_of(rates), gradient_scale, ++updates_,
                      stream == nullptr ? backend_.compute_stream() : *stream, factor};
  update_matrices(update);
  if (host_) host_->begin(update.stream);
  for (std::size_t bucket = parameters_.layout().buckets().size(); bucket-- > 0;) {
    for (const Piece& piece : pieces_[bucket]) update_piece(bucket, piece, update);
    // Those who wait for the last bucket may use all state.
    if (bucket == 0 && host_) host_->end(update.stream);
    if (updated) updated(bucket);
  }
}

void Optimizer::update_piece(std::size_t bucket, const Piece& piece, const Update& update) {
  if (piece.updated.elements() == 0) return;
  const auto part_of = [&](TensorView shard) { return shard.flat(piece.begin, piece.count); };
  Arrays arrays{.gradients = part_of(parameters_.shard_gradients(bucket)),
                .masters = part_of(masters(bucket)),
                .moments = {},
                .rounded = {}};
  if (rounds()) arrays.rounded = part_of(parameters_.shard_values(bucket));
  const auto run = [&] { update_ranges(update, piece.updated.ranges(), arrays); };
  if (!is_on_host(bucket)) {
    for (const Moment& moment : moments_) {
      if (!moment.of_matrices) arrays.moments.push_back(moment.array.device());
    }
    return run();
  }
  std::vector<TensorView> state;
  if (rounds()) state.push_back(arrays.masters);
  for (const Moment& moment : moments_) state.push_back(part_of(moment.array.of(bounds_of(bucket))));
  host_->update(update.stream, state, [&](const std::vector<TensorView>& fetched) {
    auto next = fetched.begin();
    if (rounds()) arrays.masters = *next++;
    arrays.moments.assign(next, fetched.end());
    run();
  });
}

}  // namespace trireme::optim

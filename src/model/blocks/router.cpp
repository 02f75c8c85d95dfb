#include "src/model/blocks/router.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/backend/host_numbers.hpp"
#include "src/parallel/context/sequence_shard.hpp"

namespace trireme::model {
namespace {

/// `data` for a lookup, which copies rows bit by bit: int32 viewed as fp32.
TensorView as_numbers(TensorView data) {
  return data.dtype() == DType::int32 ? TensorView(data.data(), DType::fp32, data.shape()) : data;
}

}  // namespace

void Router::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  const ExpertConfig& experts = config.experts;
  parallel::Parameter& router =
      list.replicated(prefix + ".router.weight", ParameterList::Role::matrix, {experts.count, config.hidden});
  // The gradient of an expert's weight for a token is a sum over the columns of the tensor ranks.
  router.gradient_is_partial = list.shard().tensor_size > 1;
  if (experts.router_bias) {
    parallel::Parameter& bias = list.replicated(prefix + ".router.bias", ParameterList::Role::bias, {experts.count});
    bias.has_gradient = false;
    bias.gradient_is_partial = false;
  }
}

Router::Router(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
               const std::string& prefix, const ModelConfig& config, int layer)
    : context_(context),
      config_(config.experts),
      balance_(config.experts.balance_terms()),
      layer_(layer),
      weight_(parameters.at(prefix + ".router.weight").value),
      gradient_(parameters.at(prefix + ".router.weight").gradient) {
  const auto make = [&](const Shape& shape, double value) {
    Tensor tensor(context.backend, accumulation_type(weight_.dtype()), shape);
    context.backend.elementwise().fill(context.stream(), value, tensor);
    return tensor;
  };
  if (config_.router_bias) bias_ = make({config_.count}, 0);
  for (const BalanceTerm& term : balance_) balance_coefficient_ += term.coefficient;
  if (config_.balances_by(BalanceLoss::global)) relative_load_ = make({1, config_.count}, 1);
  load_ = make({2 * config_.count + 3}, 0);
}

void Router::set_bias(std::span<const double> bias) const {
  write_numbers(context_.backend, context_.stream(), bias, bias_);
}

void Router::set_balance_load(std::span<const double> chosen) const {
  TRIREME_CHECK(chosen.empty() || std::ssize(chosen) == config_.count, ShapeError,
                "{} loads for a balance loss of {} experts", chosen.size(), config_.count);
  const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  std::vector<double> relative(static_cast<std::size_t>(config_.count), 1);
  for (std::size_t e = 0; e < chosen.size() && sum > 0; ++e)
    relative[e] = chosen[e] * static_cast<double>(config_.count) / sum;
  write_numbers(context_.backend, context_.stream(), relative, relative_load_);
}

RouterProblem Router::problem(const LayerShape& shape) const {
  return {.per_token = config_.per_token,
          .score = config_.score,
          .softmax_of_chosen = !config_.pre_softmax,
          .scaling = config_.scaling,
          .groups = config_.groups,
          .groups_per_token = config_.groups_per_token,
          .segments = config_.balances_by(BalanceLoss::sequence) ? shape.b : 1};
}

std::int64_t Router::capacity(const LayerShape& shape) const {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(all_tokens(shape) * config_.per_token) /
                                             static_cast<double>(config_.count) * config_.capacity_factor));
}

parallel::TokenDispatcher::Room Router::room(const LayerShape& shape) const {
  if (!context_.pad_experts || !shape.limits_experts) return {};
  const std::int64_t ranks = context_.expert_group == nullptr ? 1 : context_.expert_group->size();
  const int shares = context_.folds_experts() ? context_.tensor_group.size() : 1;
  const std::int64_t of_batch = std::int64_t{context_ranks()} * shares;  // ranks that share a micro-batch
  const std::int64_t most = std::min(capacity(shape), shape.rows() / shares);
  // Ranks that share a micro-batch are neighbours.
  const bool divides = ranks % of_batch == 0 || of_batch % ranks == 0;
  const std::int64_t batches = divides ? std::max<std::int64_t>(1, ranks / of_batch) : ranks;
  return {.of_rank = most, .of_group = std::min(ranks * most, batches * capacity(shape))};
}

double Router::balance_scale(const LayerShape& shape, BalanceLoss loss) const {
  const std::int64_t segments = loss == BalanceLoss::sequence ? shape.b : 1;
  const auto tokens = static_cast<double>(all_tokens(shape) / segments);
  if (loss == BalanceLoss::global) return 1 / tokens;
  return static_cast<double>(config_.count) /
         (static_cast<double>(config_.per_token) * tokens * tokens * static_cast<double>(segments));
}

void Router::set_balance(const LayerShape& shape, TensorView counts, Arena& arena, Saved& saved) const {
  if (balance_.size() == 1) {
    const BalanceLoss loss = balance_.front().loss;
    saved.counts = loss == BalanceLoss::global ? relative_load_.view() : counts;
    saved.balance_scale = balance_scale(shape, loss);
    return;
  }
  Stream& stream = context_.stream();
  ElementwiseKernels& elementwise = context_.backend.elementwise();
  const std::int64_t segments = counts.shape()[0];
  const ArenaScope scope(context_.workspace);
  const TensorView term = context_.workspace.allocate(counts.dtype(), counts.shape());
  saved.counts = arena.allocate(counts.dtype(), counts.shape());
  elementwise.fill(stream, 0, saved.counts);
  for (const auto& [loss, coefficient] : balance_) {
    elementwise.fill(stream, 0, term);
    for (std::int64_t to = 0; to < segments; ++to) {
      if (loss == BalanceLoss::sequence) elementwise.add(stream, counts.rows(to, 1), term.rows(to, 1));
      if (loss == BalanceLoss::global) elementwise.add(stream, relative_load_, term.rows(to, 1));
      for (std::int64_t from = 0; loss == BalanceLoss::micro_batch && from < segments; ++from) {
        elementwise.add(stream, counts.rows(from, 1), term.rows(to, 1));
      }
    }
    elementwise.scale(stream, balance_scale(shape, loss) * coefficient / balance_coefficient_, term);
    elementwise.add(stream, term, saved.counts);
  }
}

ConstTensorView Router::in_type_of(ConstTensorView logits, ConstTensorView data) const {
  if (data.dtype() == logits.dtype()) return data;
  const TensorView converted = context_.workspace.allocate(logits.dtype(), data.shape());
  context_.backend.elementwise().convert(context_.stream(), data, converted);
  return converted;
}

ConstTensorView Router::with_noise(const LayerShape& shape, const RouterJitter& noise, ConstTensorView rows) const {
  if (!noise.enabled()) return rows;
  const Shape sequences = {rows.shape()[0] / shape.b, shape.b, shape.h};
  const TensorView noisy = context_.workspace.allocate(shape.dtype, rows.shape());
  context_.backend.experts().jitter(context_.stream(), noise, rows.reshape(sequences), noisy.reshape(sequences));
  return noisy;
}

Router::Saved Router::forward(const LayerShape& shape, ConstTensorView rows, const RouterJitter& noise,
                              Arena& arena) const {
  Stream& stream = context_.stream();
  Arena& workspace = context_.workspace;
  const std::int64_t n = shape.rows(), k = config_.per_token, count = config_.count;
  const DType accumulation = accumulation_type(shape.dtype);
  const RouterProblem problem = this->problem(shape);

  Saved saved;
  saved.noise = noise;
  saved.logits = arena.allocate(config_.fp32_router ? accumulation : shape.dtype, {n, count});
  saved.chosen = arena.allocate(DType::int32, {n, k});
  TensorView counts;
  if (!balance_.empty()) {
    const Shape loads = {problem.segments, count};
    counts = arena.allocate(accumulation, loads);
    saved.sums = arena.allocate(accumulation, loads);
  }
  saved.token_sums = arena.allocate(accumulation, {2});
  {
    const ArenaScope scope(workspace);
    const RepeatedProducts repeated(context_.backend.gemm(), context_.tensor_group.size() > 1);
    context_.backend.gemm().linear(stream, in_type_of(saved.logits, with_noise(shape, noise, rows)),
                                   in_type_of(saved.logits, weight_), {}, Activation::none, {},
                                   context_.own_tokens(saved.logits));
  }
  context_.gather_tokens(saved.logits).wait(stream);
  saved.weights = arena.allocate(accumulation, {n, k});
  context_.backend.experts().route(stream, problem, saved.logits, bias_, saved.chosen, saved.weights, counts,
                                   saved.sums, saved.token_sums);
  if (context_.context_group != nullptr) {
    for (const TensorView data : {counts, saved.sums, saved.token_sums}) {
      if (data) context_.context_group->all_reduce(stream, data, ReduceOp::sum).wait(stream);
    }
  }
  if (counts) set_balance(shape, counts, arena, saved);
  saved.kept = saved.chosen;
  if (config_.capacity_factor > 0 && shape.limits_experts) {
    saved.kept = arena.allocate(DType::int32, {n, k});
    limit(shape, saved.chosen, saved.weights, saved.kept);
  }
  return saved;
}

void Router::limit(const LayerShape& shape, ConstTensorView chosen, ConstTensorView weights, TensorView kept) const {
  Stream& stream = context_.stream();
  Arena& workspace = context_.workspace;
  ExpertKernels& kernels = context_.backend.experts();
  EmbeddingKernels& rows = context_.backend.embedding();
  const std::int64_t n = shape.rows(), k = config_.per_token, all = all_tokens(shape), capacity = this->capacity(shape);
  const ArenaScope scope(workspace);
  Communicator* group = context_.context_group;
  if (group == nullptr) {
    kernels.limit_load(stream, chosen, weights, config_.count, capacity, config_.drop_by_position, kept);
    return;
  }
  // Rows gathered from the ranks, by their place in the micro-batch, and the places of the rows here.
  const int ranks = group->size();
  const auto places_of = [&](int rank) {
    const Positions positions = parallel::SequenceShard::of(shape.s * ranks, rank, ranks).positions;
    std::vector<std::int32_t> places(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      places[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(positions[i / shape.b] * shape.b + i % shape.b);
    }
    return places;
  };
  const TensorView order = order_.at(context_.backend, {shape.s, shape.b}, [&] {
    std::vector<std::int32_t> row_at(static_cast<std::size_t>(all));
    std::int32_t row = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const std::int32_t place : places_of(rank)) row_at[static_cast<std::size_t>(place)] = row++;
    }
    return row_at;
  });
  const TensorView own_places =
      place_.at(context_.backend, {shape.s, shape.b}, [&] { return places_of(group->rank()); });
  const auto in_order = [&](ConstTensorView data) {
    const TensorView gathered = workspace.allocate(data.dtype(), {all, k});
    const TensorView ordered = workspace.allocate(data.dtype(), {all, k});
    group->all_gather(stream, data, gathered).wait(stream);
    rows.lookup(stream, order, as_numbers(gathered), 0, as_numbers(ordered));
    return ordered;
  };
  const TensorView all_chosen = in_order(chosen), all_weights = in_order(weights);
  const TensorView all_kept = workspace.allocate(DType::int32, {all, k});
  kernels.limit_load(stream, all_chosen, all_weights, config_.count, capacity, config_.drop_by_position, all_kept);
  rows.lookup(stream, own_places, as_numbers(all_kept), 0, as_numbers(kept));
}

TensorView Router::backward(const LayerShape& shape, const Saved& saved, ConstTensorView rows, ConstTensorView dweights,
                            double mean_gradient) const {
  Stream& stream = context_.stream();
  GemmKernels& gemm = context_.backend.gemm();
  const RepeatedProducts repeated(gemm, context_.tensor_group.size() > 1);
  const double of_token = 1 / static_cast<double>(all_tokens(shape));
  context_.backend.experts().add_load(stream, config_.count, saved.chosen, saved.kept, saved.counts, saved.sums,
                                      saved.balance_scale, saved.token_sums, of_token, load_);
  const TensorView drouter = context_.workspace.allocate(shape.dtype, rows.shape());
  const ArenaScope scope(context_.workspace);
  const TensorView logits = context_.own_tokens(saved.logits);
  const TensorView dlogits = context_.workspace.allocate(logits.dtype(), logits.shape());
  BalanceGradient balance;
  if (context_.folds_experts() || context_.tensor_group.rank() == 0) {  // once a token in the sum over the tensor group
    balance.counts = saved.counts;
    balance.factor = mean_gradient * balance_coefficient_ * saved.balance_scale;
    balance.z_factor = mean_gradient * config_.z_coefficient * of_token;
  }
  context_.backend.experts().route_backward(stream, problem(shape), logits, context_.own_tokens(saved.chosen), dweights,
                                            balance, dlogits);
  if (gradient_) {
    gemm.linear_backward_weight(stream, dlogits, in_type_of(dlogits, with_noise(shape, saved.noise, rows)), gradient_,
                                {});
  }
  const TensorView product =
      dlogits.dtype() == drouter.dtype() ? drouter : context_.workspace.allocate(dlogits.dtype(), drouter.shape());
  gemm.linear_backward_input(stream, dlogits, in_type_of(dlogits, weight_), Activation::none, {}, product);
  if (dlogits.dtype() != drouter.dtype()) context_.backend.elementwise().convert(stream, product, drouter);
  if (saved.noise.enabled()) {
    const TensorView noisy = drouter.reshape({rows.shape()[0] / shape.b, shape.b, shape.h});
    context_.backend.experts().jitter(stream, saved.noise, noisy, noisy);
  }
  return drouter;
}

ExpertLoad Router::take_load() const {
  const std::vector<double> sums = read_numbers(context_.backend, context_.stream(), load_);
  context_.backend.elementwise().fill(context_.stream(), 0, load_);
  const auto kept = sums.begin() + config_.count, losses = kept + config_.count;
  ExpertLoad load{.layer = layer_, .tokens = {kept, losses}, .chosen = {sums.begin(), kept}, .balance = losses[0]};
  load.dropped = std::accumulate(sums.begin(), kept, 0.0) - std::accumulate(kept, losses, 0.0);
  if (config_.z_coefficient > 0) load.z = losses[1];
  load.entropy = losses[2];
  return load;
}

}  // namespace trireme::model

#include "src/model/blocks/experts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/backend/host_numbers.hpp"
#include "src/parallel/context/sequence_shard.hpp"

namespace trireme::model {
namespace {

std::string expert_prefix(const std::string& prefix, std::int64_t expert) {
  return prefix + ".experts." + std::to_string(expert);
}

/// Copies chosen experts to the host. A rehearsal, which has none, returns a single zero.
std::vector<std::int32_t> read_choices(Backend& backend, Stream& stream, ConstTensorView choices) {
  const bool has_results = backend.supports(Capability::results);
  std::vector<std::int32_t> experts(has_results ? static_cast<std::size_t>(choices.numel()) : 1, 0);
  backend.copy_to_host(stream, choices, TensorView(experts.data(), choices.shape()));
  stream.synchronize();
  return experts;
}

/// `data` for a lookup, which copies rows bit by bit: int32 viewed as fp32.
TensorView as_numbers(TensorView data) {
  return data.dtype() == DType::int32 ? TensorView(data.data(), DType::fp32, data.shape()) : data;
}

void add(std::vector<double>& to, const std::vector<double>& terms) {
  to.resize(terms.size());
  for (std::size_t i = 0; i < terms.size(); ++i) to[i] += terms[i];
}

void add(ExpertLoad& to, const ExpertLoad& load) {
  to.layer = load.layer;
  add(to.tokens, load.tokens);
  add(to.chosen, load.chosen);
  to.dropped += load.dropped;
  to.balance += load.balance;
  to.z += load.z;
  to.entropy += load.entropy;
}

}  // namespace

void Experts::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
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
  const std::int64_t first = list.shard().first_expert(experts.count);
  for (std::int64_t i = 0; i < list.shard().local_experts(experts.count); ++i) {
    list.of_expert(
        [&] { FeedForward::declare(list, config, config.expert_ffn_hidden(), expert_prefix(prefix, first + i)); });
  }
  if (experts.shared_hidden > 0) FeedForward::declare(list, config, experts.shared_hidden, prefix + ".shared");
}

Experts::Experts(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                 const std::string& prefix, const ModelConfig& config, int layer)
    : context_(context),
      config_(config.experts),
      activation_{config.gated, config.gated ? config.gate : config.activation},
      router_(parameters.at(prefix + ".router.weight").value),
      router_gradient_(parameters.at(prefix + ".router.weight").gradient) {
  if (config_.router_bias) {
    bias_ = Tensor(context.backend, accumulation_type(router_.dtype()), {config_.count});
    context.backend.elementwise().fill(context.stream(), 0, bias_);
  }
  if (config_.balance == BalanceLoss::global) {
    relative_load_ = Tensor(context.backend, accumulation_type(router_.dtype()), {1, config_.count});
    context.backend.elementwise().fill(context.stream(), 1, relative_load_);
  }
  using enum parallel::TokenDispatch;
  dispatcher_ = parallel::TokenDispatcher::make(context.exchange_tokens ? all_to_all : all_gather, context.backend,
                                                context.expert_group, context.workspace, config_.count,
                                                context.expert_load, std::max(context.expert_splits, 1));
  for (std::int64_t i = 0; i < dispatcher_->local_experts(); ++i) {
    const std::string name = expert_prefix(prefix, dispatcher_->first_expert() + i);
    const parallel::Parameter& fc = parameters.at(name + ".fc.weight");
    const parallel::Parameter& proj = parameters.at(name + ".proj.weight");
    const Shape expansion = {fc.storage.numel() / config.hidden, config.hidden};
    expansions_.push_back(fc.value.reshape(expansion));
    projections_.push_back(proj.value);
    expansion_gradients_.push_back(fc.gradient.reshape(expansion));
    projection_gradients_.push_back(proj.gradient);
  }
  if (config_.shared_hidden > 0) shared_.emplace(context, parameters, prefix + ".shared", config);
  load_.layer = layer;
}

void Experts::set_bias(std::span<const double> bias) const {
  write_numbers(context_.backend, context_.stream(), bias, bias_);
}

void Experts::set_balance_load(std::span<const double> chosen) const {
  TRIREME_CHECK(chosen.empty() || std::ssize(chosen) == config_.count, ShapeError,
                "{} loads for a balance loss of {} experts", chosen.size(), config_.count);
  const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  std::vector<double> relative(count(), 1);
  for (std::size_t e = 0; e < chosen.size() && sum > 0; ++e)
    relative[e] = chosen[e] * static_cast<double>(count()) / sum;
  write_numbers(context_.backend, context_.stream(), relative, relative_load_);
}

Experts::Saved Experts::make_saved(const LayerShape& shape, const RecomputedModules& recomputed, Arena& arena) const {
  Saved saved;
  saved.arena = &arena;
  saved.recomputed = recomputed.experts;
  if (shared_ && !saved.recomputed) saved.shared = shared_->make_saved(shape, recomputed.activation, arena);
  return saved;
}

Experts::Gradients Experts::make_gradients(const LayerShape& shape, Arena& arena) const {
  Gradients gradients;
  if (shared_) {
    gradients.shared = shared_->make_gradients(shape, arena);
    gradients.output = gradients.shared->output;
  } else {
    gradients.output = shape.allocate_residual(arena);
  }
  return gradients;
}

RouterProblem Experts::problem(const LayerShape& shape) const {
  return {.per_token = config_.per_token,
          .score = config_.score,
          .softmax_of_chosen = !config_.pre_softmax,
          .scaling = config_.scaling,
          .groups = config_.groups,
          .groups_per_token = config_.groups_per_token,
          .segments = config_.balance == BalanceLoss::sequence ? shape.b : 1};
}

double Experts::segment_tokens(const LayerShape& shape) const {
  const int context_ranks = context_.context_group == nullptr ? 1 : context_.context_group->size();
  const std::int64_t sequences = config_.balance == BalanceLoss::sequence ? 1 : shape.b;
  return static_cast<double>(shape.s * context_ranks * sequences);
}

Experts::BalanceScale Experts::balance_scale(const LayerShape& shape) const {
  const double tokens = segment_tokens(shape);
  if (config_.balance == BalanceLoss::global) return {1, tokens};
  const auto segments = static_cast<double>(problem(shape).segments);
  return {static_cast<double>(config_.count), static_cast<double>(config_.per_token) * tokens * tokens * segments};
}

template <class View>
View Experts::own_of(View all) const {
  if (!context_.folds_experts()) return all;
  const std::int64_t count = all.shape()[0] / context_.tensor_group.size();
  return all.rows(count * context_.tensor_group.rank(), count);
}

ConstTensorView Experts::tokens_of(ConstTensorView rows) const {
  if (!context_.folds_experts()) return context_.gather_now(rows);
  return context_.sequence_parallel ? rows : own_of(rows);
}

Work Experts::gather_own(TensorView all) const {
  if (!context_.folds_experts() || context_.tensor_group.size() == 1) return {};
  return context_.tensor_group.all_gather(context_.stream(), own_of(all), all);
}

Work Experts::sum_tokens(const Saved& saved, ConstTensorView rows, TensorView y, ConstTensorView more) const {
  Stream& stream = context_.stream();
  if (context_.folds_experts()) {
    const TensorView own = context_.sequence_parallel ? y : own_of(y);
    dispatcher_->combine(saved.route, rows, own);
    if (more) context_.backend.elementwise().add(stream, more, own);
    return context_.sequence_parallel ? Work() : gather_own(y);
  }
  const TensorView term = context_.term_of(y);
  dispatcher_->combine(saved.route, rows, term);
  if (more) context_.backend.elementwise().add(stream, more, term);
  return context_.sum_into(y, term);
}

ConstTensorView Experts::in_type_of(ConstTensorView logits, ConstTensorView data) const {
  if (data.dtype() == logits.dtype()) return data;
  const TensorView converted = context_.workspace.allocate(logits.dtype(), data.shape());
  context_.backend.elementwise().convert(context_.stream(), data, converted);
  return converted;
}

void Experts::route(const LayerShape& shape, ConstTensorView rows, Saved& saved) const {
  Stream& stream = context_.stream();
  Arena &arena = *saved.arena, &workspace = context_.workspace;
  const std::int64_t n = shape.rows(), k = config_.per_token, count = config_.count;
  const DType accumulation = accumulation_type(shape.dtype);
  const RouterProblem problem = this->problem(shape);

  saved.logits = arena.allocate(config_.fp32_router ? accumulation : shape.dtype, {n, count});
  saved.chosen = arena.allocate(DType::int32, {n, k});
  const bool balances = config_.balance != BalanceLoss::none && config_.balance_coefficient > 0;
  const bool by_last_batch = config_.balance == BalanceLoss::global;
  TensorView counts, sums;
  if (balances) {
    const Shape loads = {problem.segments, count};
    counts = (by_last_batch ? workspace : arena).allocate(accumulation, loads);
    sums = workspace.allocate(accumulation, loads);
    saved.counts = by_last_batch ? relative_load_.view() : counts;
  }
  const TensorView token_sums = workspace.allocate(accumulation, {2});
  {
    const ArenaScope scope(workspace);
    context_.backend.gemm().linear(stream, in_type_of(saved.logits, with_noise(shape, saved, rows)),
                                   in_type_of(saved.logits, router_), {}, Activation::none, {}, own_of(saved.logits));
  }
  gather_own(saved.logits).wait(stream);
  const TensorView weights = arena.allocate(accumulation, {n, k});
  context_.backend.experts().route(stream, problem, saved.logits, bias_, saved.chosen, weights, counts, sums,
                                   token_sums);
  if (context_.context_group != nullptr) {
    for (const TensorView data : {counts, sums, token_sums}) {
      if (data) context_.context_group->all_reduce(stream, data, ReduceOp::sum).wait(stream);
    }
  }
  const ConstTensorView kept =
      config_.capacity_factor > 0 ? within_capacity(shape, saved.chosen, weights) : ConstTensorView(saved.chosen);
  saved.route = dispatcher_->assign(own_of(kept), own_of(weights), arena);
  read_load(shape, kept, sums, token_sums, saved);
}

ConstTensorView Experts::with_noise(const LayerShape& shape, const Saved& saved, ConstTensorView rows) const {
  if (!saved.noise.enabled()) return rows;
  const Shape sequences = {rows.shape()[0] / shape.b, shape.b, shape.h};
  const TensorView noisy = context_.workspace.allocate(shape.dtype, rows.shape());
  context_.backend.experts().jitter(context_.stream(), saved.noise, rows.reshape(sequences), noisy.reshape(sequences));
  return noisy;
}

ConstTensorView Experts::within_capacity(const LayerShape& shape, ConstTensorView chosen,
                                         ConstTensorView weights) const {
  Stream& stream = context_.stream();
  Arena& workspace = context_.workspace;
  ExpertKernels& kernels = context_.backend.experts();
  EmbeddingKernels& rows = context_.backend.embedding();
  const std::int64_t n = shape.rows(), k = config_.per_token;
  const TensorView kept = workspace.allocate(DType::int32, {n, k});
  const ArenaScope scope(workspace);
  Communicator* group = context_.context_group;
  const int ranks = group == nullptr ? 1 : group->size();
  const auto capacity = static_cast<std::int64_t>(
      std::ceil(static_cast<double>(n * ranks * k) / static_cast<double>(config_.count) * config_.capacity_factor));
  if (group == nullptr) {
    kernels.limit_load(stream, chosen, weights, config_.count, capacity, config_.drop_by_position, kept);
    return kept;
  }
  // Rows gathered from the ranks, by their place in the micro-batch, and the places of the rows here.
  std::vector<std::int32_t> row_at(static_cast<std::size_t>(n * ranks)), own(static_cast<std::size_t>(n));
  std::int32_t row = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Positions positions = parallel::SequenceShard::of(shape.s * ranks, rank, ranks).positions;
    for (std::int64_t i = 0; i < n; ++i, ++row) {
      const std::int64_t place = positions[i / shape.b] * shape.b + i % shape.b;
      row_at[static_cast<std::size_t>(place)] = row;
      if (rank == group->rank()) own[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(place);
    }
  }
  const auto to_device = [&](const std::vector<std::int32_t>& numbers) {
    const TensorView device = workspace.allocate(DType::int32, {std::ssize(numbers)});
    context_.backend.copy_from_host(stream, ConstTensorView(numbers.data(), device.shape()), device);
    return device;
  };
  const TensorView order = to_device(row_at), own_places = to_device(own);
  const auto in_order = [&](ConstTensorView data) {
    const TensorView gathered = workspace.allocate(data.dtype(), {n * ranks, k});
    const TensorView ordered = workspace.allocate(data.dtype(), {n * ranks, k});
    group->all_gather(stream, data, gathered).wait(stream);
    rows.lookup(stream, order, as_numbers(gathered), 0, as_numbers(ordered));
    return ordered;
  };
  const TensorView all_chosen = in_order(chosen), all_weights = in_order(weights);
  const TensorView all_kept = workspace.allocate(DType::int32, {n * ranks, k});
  kernels.limit_load(stream, all_chosen, all_weights, config_.count, capacity, config_.drop_by_position, all_kept);
  rows.lookup(stream, own_places, as_numbers(all_kept), 0, as_numbers(kept));
  return kept;
}

void Experts::read_load(const LayerShape& shape, ConstTensorView kept, ConstTensorView sums, ConstTensorView token_sums,
                        Saved& saved) const {
  Stream& stream = context_.stream();
  const bool is_limited = kept.data() != saved.chosen.data();
  const std::vector<std::int32_t> chosen = read_choices(context_.backend, stream, saved.chosen);
  const std::vector<std::int32_t> computed =
      is_limited ? read_choices(context_.backend, stream, kept) : std::vector<std::int32_t>();
  ExpertLoad& load = saved.load;
  load.layer = load_.layer;
  load.chosen.assign(static_cast<std::size_t>(config_.count), 0);
  for (const std::int32_t expert : chosen) ++load.chosen[static_cast<std::size_t>(expert)];
  load.tokens = load.chosen;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    if (computed[i] >= 0) continue;
    --load.tokens[static_cast<std::size_t>(chosen[i])];
    ++load.dropped;
  }
  if (sums) {
    const std::vector<double> counts = read_numbers(context_.backend, stream, saved.counts);
    const std::vector<double> scores = read_numbers(context_.backend, stream, sums);
    const double product = std::inner_product(counts.begin(), counts.end(), scores.begin(), 0.0);
    const BalanceScale scale = balance_scale(shape);
    load.balance = product * scale.numerator / scale.denominator;
  }
  const int context_ranks = context_.context_group == nullptr ? 1 : context_.context_group->size();
  const auto tokens = static_cast<double>(shape.rows() * context_ranks);
  const std::vector<double> of_tokens = read_numbers(context_.backend, stream, token_sums);
  if (config_.z_coefficient > 0) load.z = of_tokens[0] / tokens;
  load.entropy = of_tokens[1] / tokens;
}

TensorView Experts::dispatch(const Saved& saved, ConstTensorView rows, const std::function<void()>& run_shared) const {
  if (shared_ && context_.overlap_shared_expert) return dispatcher_->dispatch(saved.route, rows, run_shared);
  if (shared_) run_shared();
  return dispatcher_->dispatch(saved.route, rows);
}

void Experts::expand(const LayerShape& shape, ConstTensorView rows, Saved& saved, TensorView of_shared) const {
  Arena& arena = saved.recomputed ? context_.workspace : *saved.arena;
  const std::int64_t all_rows = saved.route.slots.numel();
  saved.expanded = arena.allocate(shape.dtype, {all_rows, expansions_.front().shape()[0]});
  if (shared_ && saved.recomputed) saved.shared = shared_->make_saved(shape, false, arena);
  const ArenaScope scope(context_.workspace);
  const TensorView permuted =
      dispatch(saved, rows, [&] { shared_->forward(shape, saved.input, *saved.shared, of_shared); });
  context_.backend.gemm().grouped_linear(context_.stream(), saved.route.rows, permuted, expansions_, saved.expanded);
}

void Experts::forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                      TensorView y) const {
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  const int shares = context_.folds_experts() ? context_.tensor_group.size() : 1;
  saved.noise = dropout.router_noise(
      load_.layer, shape.positions.from(shares == 1 ? 0 : shape.s / shares * context_.tensor_group.rank()));
  const ConstTensorView rows = tokens_of(shape.as_rows(x));
  route(shape, rows, saved);
  if (saved.recomputed && !y) return;
  const TensorView of_shared = shared_ && y ? shape.allocate_residual(context_.workspace) : TensorView();
  expand(shape, rows, saved, of_shared);
  if (!y) return;
  const TensorView activated = activation_.forward(context_.backend, stream, saved.expanded, context_.workspace);
  context_.backend.experts().scale_rows(stream, activated, saved.route.weights, saved.route.slots, activated);
  const TensorView results = context_.workspace.allocate(shape.dtype, {activated.shape()[0], shape.h});
  context_.backend.gemm().grouped_linear(stream, saved.route.rows, activated, projections_, results);
  sum_tokens(saved, results, shape.as_rows(y)).wait(stream);
  if (of_shared) context_.backend.elementwise().add(stream, of_shared, y);
}

void Experts::backward(const LayerShape& shape, Saved& saved, const Gradients& gradients, TensorView dx,
                       double mean_gradient) const {
  Stream& stream = context_.stream();
  GemmKernels& gemm = context_.backend.gemm();
  ExpertKernels& kernels = context_.backend.experts();
  ElementwiseKernels& elementwise = context_.backend.elementwise();
  const ArenaScope scope(context_.workspace);
  if (saved.recomputed) expand(shape, tokens_of(shape.as_rows(saved.input)), saved, {});
  const TensorView of_shared = shared_ ? shape.allocate_residual(context_.workspace) : TensorView();
  const TensorView dweights = context_.workspace.allocate(saved.route.weights.dtype(), saved.route.weights.shape());
  elementwise.fill(stream, 0, dweights);
  const TensorView dscaled = activation_.allocate(context_.workspace, saved.expanded);
  {
    const ArenaScope inner(context_.workspace);
    const TensorView doutput = dispatch(saved, tokens_of(shape.as_rows(gradients.output)), [&] {
      shared_->backward_input(shape, *saved.shared, *gradients.shared, of_shared, parallel::WeightGradient::now);
    });
    const TensorView activated = activation_.forward(context_.backend, stream, saved.expanded, context_.workspace);
    const TensorView scaled = activation_.allocate(context_.workspace, saved.expanded);
    kernels.scale_rows(stream, activated, saved.route.weights, saved.route.slots, scaled);
    gemm.grouped_backward_input(stream, saved.route.rows, doutput, projections_, dscaled);
    gemm.grouped_backward_weight(stream, saved.route.rows, doutput, scaled, projection_gradients_);
    kernels.scale_rows_backward(stream, dscaled, activated, saved.route.weights, saved.route.slots, dscaled, dweights);
  }
  const TensorView dexpanded = activation_.gated ? saved.expanded : dscaled;
  activation_.backward(context_.backend, stream, dscaled, saved.expanded, dexpanded);
  const ConstTensorView rows = tokens_of(shape.as_rows(saved.input));
  const TensorView permuted = dispatcher_->dispatch(saved.route, rows);
  const TensorView dpermuted = context_.workspace.allocate(permuted.dtype(), permuted.shape());
  gemm.grouped_backward_input(stream, saved.route.rows, dexpanded, expansions_, dpermuted);
  gemm.grouped_backward_weight(stream, saved.route.rows, dexpanded, permuted, expansion_gradients_);
  const TensorView drouter =
      backward_of_router(shape, saved, rows, dispatcher_->weight_gradients(saved.route, dweights), mean_gradient);
  sum_tokens(saved, dpermuted, shape.as_rows(dx), drouter).wait(stream);
  if (of_shared) elementwise.add(stream, of_shared, dx);
  add(load_, saved.load);
}

TensorView Experts::backward_of_router(const LayerShape& shape, const Saved& saved, ConstTensorView rows,
                                       ConstTensorView dweights, double mean_gradient) const {
  Stream& stream = context_.stream();
  GemmKernels& gemm = context_.backend.gemm();
  const TensorView drouter = context_.workspace.allocate(shape.dtype, rows.shape());
  const ArenaScope scope(context_.workspace);
  const TensorView logits = own_of(saved.logits);
  const TensorView dlogits = context_.workspace.allocate(logits.dtype(), logits.shape());
  BalanceGradient balance;
  if (context_.folds_experts() || context_.tensor_group.rank() == 0) {  // once a token in the sum over the tensor group
    const BalanceScale scale = balance_scale(shape);
    balance.counts = saved.counts;
    balance.factor = mean_gradient * config_.balance_coefficient * scale.numerator / scale.denominator;
    const int context_ranks = context_.context_group == nullptr ? 1 : context_.context_group->size();
    balance.z_factor = mean_gradient * config_.z_coefficient / static_cast<double>(shape.rows() * context_ranks);
  }
  context_.backend.experts().route_backward(stream, problem(shape), logits, own_of(saved.chosen), dweights, balance,
                                            dlogits);
  gemm.linear_backward_weight(stream, dlogits, in_type_of(dlogits, with_noise(shape, saved, rows)), router_gradient_,
                              {});
  const TensorView product =
      dlogits.dtype() == drouter.dtype() ? drouter : context_.workspace.allocate(dlogits.dtype(), drouter.shape());
  gemm.linear_backward_input(stream, dlogits, in_type_of(dlogits, router_), Activation::none, {}, product);
  if (dlogits.dtype() != drouter.dtype()) context_.backend.elementwise().convert(stream, product, drouter);
  if (saved.noise.enabled()) {
    const TensorView noisy = drouter.reshape({rows.shape()[0] / shape.b, shape.b, shape.h});
    context_.backend.experts().jitter(stream, saved.noise, noisy, noisy);
  }
  return drouter;
}

ExpertLoad Experts::take_load() const {
  ExpertLoad taken;
  taken.layer = load_.layer;
  std::swap(taken, load_);
  return taken;
}

}  // namespace trireme::model

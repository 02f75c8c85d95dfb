#include "src/model/blocks/experts.hpp"

#include <cmath>
#include <numeric>

#include "src/backend/host_numbers.hpp"

namespace trireme::model {
namespace {

std::string expert_prefix(const std::string& prefix, std::int64_t expert) {
  return prefix + ".experts." + std::to_string(expert);
}

/// Copies chosen experts to the host. A rehearsal returns zeros.
std::vector<std::int32_t> read_choices(Backend& backend, Stream& stream, ConstTensorView choices) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(choices.numel()), 0);
  backend.copy_to_host(stream, choices, TensorView(experts.data(), choices.shape()));
  stream.synchronize();
  return experts;
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
  using enum parallel::TokenDispatch;
  dispatcher_ =
      parallel::TokenDispatcher::make(context.exchange_tokens ? all_to_all : all_gather, context.backend,
                                      context.expert_group, context.workspace, config_.count, context.expert_load);
  for (std::int64_t i = 0; i < dispatcher_->local_experts(); ++i) {
    const std::string name = expert_prefix(prefix, dispatcher_->first_expert() + i);
    const parallel::Parameter& fc = parameters.at(name + ".fc.weight");
    const parallel::Parameter& proj = parameters.at(name + ".proj.weight");
    const Shape expansion = {fc.storage.numel() / config.hidden, config.hidden};
    experts_.push_back({fc.value.reshape(expansion), proj.value, fc.gradient.reshape(expansion), proj.gradient});
  }
  if (config_.shared_hidden > 0) shared_.emplace(context, parameters, prefix + ".shared", config);
  load_.layer = layer;
}

void Experts::set_bias(std::span<const double> bias) const {
  write_numbers(context_.backend, context_.stream(), bias, bias_);
}

Experts::Saved Experts::make_saved(const LayerShape& shape, bool selective, Arena& arena) const {
  Saved saved;
  saved.arena = &arena;
  if (shared_) saved.shared = shared_->make_saved(shape, selective, arena);
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

template <class Function>
void Experts::for_each_expert(const Saved& saved, const Function& function) const {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    if (saved.route.rows[i] > 0) function(experts_[i], first, saved.route.rows[i]);
    first += saved.route.rows[i];
  }
}

Work Experts::sum_tokens(const Saved& saved, ConstTensorView rows, TensorView y, ConstTensorView more) const {
  Stream& stream = context_.stream();
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
  ExpertKernels& kernels = context_.backend.experts();
  const std::int64_t n = shape.rows(), k = config_.per_token, count = config_.count;
  const DType accumulation = accumulation_type(shape.dtype);
  const RouterProblem problem = this->problem(shape);

  saved.logits = arena.allocate(config_.fp32_router ? accumulation : shape.dtype, {n, count});
  saved.chosen = arena.allocate(DType::int32, {n, k});
  const bool balances = config_.balance != BalanceLoss::none && config_.balance_coefficient > 0;
  TensorView sums, squares;
  if (balances) {
    saved.counts = arena.allocate(accumulation, {problem.segments, count});
    sums = workspace.allocate(accumulation, {problem.segments, count});
  }
  if (config_.z_coefficient > 0) squares = workspace.allocate(accumulation, {1});
  {
    const ArenaScope scope(workspace);
    context_.backend.gemm().linear(stream, in_type_of(saved.logits, rows), in_type_of(saved.logits, router_), {},
                                   Activation::none, {}, saved.logits);
  }
  const TensorView weights = arena.allocate(accumulation, {n, k});
  kernels.route(stream, problem, saved.logits, bias_, saved.chosen, weights, saved.counts, sums, squares);
  if (context_.context_group != nullptr) {
    for (const TensorView data : {saved.counts, sums, squares}) {
      if (data) context_.context_group->all_reduce(stream, data, ReduceOp::sum).wait(stream);
    }
  }
  TensorView kept = saved.chosen;
  if (config_.capacity_factor > 0) {
    const auto capacity = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(n * k) / static_cast<double>(count) * config_.capacity_factor));
    kept = workspace.allocate(DType::int32, {n, k});
    kernels.limit_load(stream, saved.chosen, weights, count, capacity, config_.drop_by_position, kept);
  }
  saved.route = dispatcher_->assign(kept, weights, arena);
  read_load(shape, kept, sums, squares, saved);
}

void Experts::read_load(const LayerShape& shape, ConstTensorView kept, ConstTensorView sums, ConstTensorView squares,
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
  const double tokens = segment_tokens(shape);
  if (sums) {
    const std::vector<double> counts = read_numbers(context_.backend, stream, saved.counts);
    const std::vector<double> scores = read_numbers(context_.backend, stream, sums);
    const double product = std::inner_product(counts.begin(), counts.end(), scores.begin(), 0.0);
    const auto segments = static_cast<double>(saved.counts.shape()[0]);
    load.balance = product * static_cast<double>(config_.count) /
                   (static_cast<double>(config_.per_token) * tokens * tokens * segments);
  }
  if (squares) {
    const int context_ranks = context_.context_group == nullptr ? 1 : context_.context_group->size();
    load.z = read_numbers(context_.backend, stream, squares)[0] / static_cast<double>(shape.rows() * context_ranks);
  }
}

void Experts::forward(const LayerShape& shape, ConstTensorView x, Saved& saved, TensorView y) const {
  Stream& stream = context_.stream();
  GemmKernels& gemm = context_.backend.gemm();
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  const ConstTensorView rows = context_.gather_now(shape.as_rows(x));
  route(shape, rows, saved);
  const std::int64_t all_rows = saved.route.slots.numel();
  saved.expanded = saved.arena->allocate(shape.dtype, {all_rows, experts_.front().expansion.shape()[0]});
  {
    const ArenaScope input_scope(context_.workspace);
    const TensorView permuted = dispatcher_->dispatch(saved.route, rows);
    for_each_expert(saved, [&](const Expert& expert, std::int64_t first, std::int64_t count) {
      gemm.linear(stream, permuted.rows(first, count), expert.expansion, {}, Activation::none, {},
                  saved.expanded.rows(first, count));
    });
  }
  if (!y) {
    if (shared_) shared_->forward(shape, x, *saved.shared, {});
    return;
  }
  const TensorView activated = activation_.forward(context_.backend, stream, saved.expanded, context_.workspace);
  context_.backend.experts().scale_rows(stream, activated, saved.route.weights, saved.route.slots, activated);
  const TensorView results = context_.workspace.allocate(shape.dtype, {all_rows, shape.h});
  for_each_expert(saved, [&](const Expert& expert, std::int64_t first, std::int64_t count) {
    gemm.linear(stream, activated.rows(first, count), expert.projection, {}, Activation::none, {},
                results.rows(first, count));
  });
  sum_tokens(saved, results, shape.as_rows(y)).wait(stream);
  if (!shared_) return;
  const TensorView of_shared = shape.allocate_residual(context_.workspace);
  shared_->forward(shape, x, *saved.shared, of_shared);
  context_.backend.elementwise().add(stream, of_shared, y);
}

void Experts::backward(const LayerShape& shape, Saved& saved, const Gradients& gradients, TensorView dx,
                       double mean_gradient) const {
  Stream& stream = context_.stream();
  GemmKernels& gemm = context_.backend.gemm();
  ExpertKernels& kernels = context_.backend.experts();
  ElementwiseKernels& elementwise = context_.backend.elementwise();
  const ArenaScope scope(context_.workspace);
  const TensorView dweights = context_.workspace.allocate(saved.route.weights.dtype(), saved.route.weights.shape());
  elementwise.fill(stream, 0, dweights);
  const TensorView dscaled = activation_.allocate(context_.workspace, saved.expanded);
  {
    const ArenaScope inner(context_.workspace);
    const TensorView doutput = dispatcher_->dispatch(saved.route, context_.gather_now(shape.as_rows(gradients.output)));
    const TensorView activated = activation_.forward(context_.backend, stream, saved.expanded, context_.workspace);
    const TensorView scaled = activation_.allocate(context_.workspace, saved.expanded);
    kernels.scale_rows(stream, activated, saved.route.weights, saved.route.slots, scaled);
    for_each_expert(saved, [&](const Expert& expert, std::int64_t first, std::int64_t count) {
      gemm.linear_backward_input(stream, doutput.rows(first, count), expert.projection, Activation::none, {},
                                 dscaled.rows(first, count));
      gemm.linear_backward_weight(stream, doutput.rows(first, count), scaled.rows(first, count),
                                  expert.projection_gradient, {});
    });
    kernels.scale_rows_backward(stream, dscaled, activated, saved.route.weights, saved.route.slots, dscaled, dweights);
  }
  const TensorView dexpanded = activation_.gated ? saved.expanded : dscaled;
  activation_.backward(context_.backend, stream, dscaled, saved.expanded, dexpanded);
  const ConstTensorView rows = context_.gather_now(shape.as_rows(saved.input));
  const TensorView permuted = dispatcher_->dispatch(saved.route, rows);
  const TensorView dpermuted = context_.workspace.allocate(permuted.dtype(), permuted.shape());
  for_each_expert(saved, [&](const Expert& expert, std::int64_t first, std::int64_t count) {
    gemm.linear_backward_input(stream, dexpanded.rows(first, count), expert.expansion, Activation::none, {},
                               dpermuted.rows(first, count));
    gemm.linear_backward_weight(stream, dexpanded.rows(first, count), permuted.rows(first, count),
                                expert.expansion_gradient, {});
  });
  const TensorView drouter =
      backward_of_router(shape, saved, rows, dispatcher_->weight_gradients(saved.route, dweights), mean_gradient);
  sum_tokens(saved, dpermuted, shape.as_rows(dx), drouter).wait(stream);
  if (shared_) {
    const TensorView of_shared = shape.allocate_residual(context_.workspace);
    shared_->backward_input(shape, *saved.shared, *gradients.shared, of_shared, parallel::WeightGradient::now);
    elementwise.add(stream, of_shared, dx);
  }
  add(load_, saved.load);
}

TensorView Experts::backward_of_router(const LayerShape& shape, const Saved& saved, ConstTensorView rows,
                                       ConstTensorView dweights, double mean_gradient) const {
  Stream& stream = context_.stream();
  GemmKernels& gemm = context_.backend.gemm();
  const TensorView drouter = context_.workspace.allocate(shape.dtype, rows.shape());
  const ArenaScope scope(context_.workspace);
  const TensorView dlogits = context_.workspace.allocate(saved.logits.dtype(), saved.logits.shape());
  BalanceGradient balance;
  if (context_.tensor_group.rank() == 0) {  // once in the sum over the tensor group
    const double tokens = segment_tokens(shape);
    balance.counts = saved.counts;
    if (saved.counts) {
      balance.factor =
          mean_gradient * config_.balance_coefficient * static_cast<double>(config_.count) /
          (static_cast<double>(config_.per_token) * tokens * tokens * static_cast<double>(saved.counts.shape()[0]));
    }
    const int context_ranks = context_.context_group == nullptr ? 1 : context_.context_group->size();
    balance.z_factor = mean_gradient * config_.z_coefficient / static_cast<double>(shape.rows() * context_ranks);
  }
  context_.backend.experts().route_backward(stream, problem(shape), saved.logits, saved.chosen, dweights, balance,
                                            dlogits);
  gemm.linear_backward_weight(stream, dlogits, in_type_of(dlogits, rows), router_gradient_, {});
  const TensorView product =
      dlogits.dtype() == drouter.dtype() ? drouter : context_.workspace.allocate(dlogits.dtype(), drouter.shape());
  gemm.linear_backward_input(stream, dlogits, in_type_of(dlogits, router_), Activation::none, {}, product);
  if (dlogits.dtype() != drouter.dtype()) context_.backend.elementwise().convert(stream, product, drouter);
  return drouter;
}

ExpertLoad Experts::take_load() const {
  ExpertLoad taken;
  taken.layer = load_.layer;
  std::swap(taken, load_);
  return taken;
}

}  // namespace trireme::model

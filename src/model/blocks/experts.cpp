#include "src/model/blocks/experts.hpp"

#include <algorithm>

namespace trireme::model {
namespace {

std::string expert_prefix(const std::string& prefix, std::int64_t expert) {
  return prefix + ".experts." + std::to_string(expert);
}

}  // namespace

void Experts::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix) {
  const ExpertConfig& experts = config.experts;
  Router::declare(list, config, prefix);
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
      router_(context, parameters, prefix, config, layer),
      layer_(layer),
      expansion_adapter_(context),
      projection_adapter_(context) {
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
    adapt(expansion_adapter_, parameters, name + ".fc", config);
    adapt(projection_adapter_, parameters, name + ".proj", config);
    if (fc.frozen) continue;
    expansion_gradients_.push_back(fc.gradient.reshape(expansion));
    projection_gradients_.push_back(proj.gradient);
    expansion_sums_.push_back(fc.sum);
    projection_sums_.push_back(proj.sum);
    fc.sum.defer();
    proj.sum.defer();
  }
  if (config_.shared_hidden > 0) shared_.emplace(context, parameters, prefix + ".shared", config);
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

ConstTensorView Experts::tokens_of(ConstTensorView rows) const {
  if (!context_.folds_experts()) return context_.gather_now(rows);
  return context_.sequence_parallel ? rows : context_.own_tokens(rows);
}

void Experts::sum_tokens(const Saved& saved, ConstTensorView rows, TensorView y, ConstTensorView more) const {
  Stream& stream = context_.stream();
  if (context_.folds_experts()) {
    const TensorView own = context_.sequence_parallel ? y : context_.own_tokens(y);
    dispatcher_->combine(saved.route, rows, own);
    if (more) context_.backend.elementwise().add(stream, more, own);
    if (!context_.sequence_parallel) context_.gather_tokens(y).wait(stream);
    return;
  }
  const TensorView term = context_.term_of(y);
  dispatcher_->combine(saved.route, rows, term);
  if (more) context_.backend.elementwise().add(stream, more, term);
  context_.sum_into(y, term).wait(stream);
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
  if (expansion_adapter_.any()) expansion_adapter_.forward(permuted, saved.expanded, saved.route.rows);
}

void Experts::forward(const LayerShape& shape, ConstTensorView x, const DropoutPlan& dropout, Saved& saved,
                      TensorView y) const {
  Stream& stream = context_.stream();
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  const int shares = context_.folds_experts() ? context_.tensor_group.size() : 1;
  const RouterJitter noise = dropout.router_noise(
      layer_, shape.positions.from(shares == 1 ? 0 : shape.s / shares * context_.tensor_group.rank()));
  const ConstTensorView rows = tokens_of(shape.as_rows(x));
  saved.router = router_.forward(shape, rows, noise, *saved.arena);
  saved.route = dispatcher_->assign(context_.own_tokens(ConstTensorView(saved.router.kept)),
                                    context_.own_tokens(saved.router.weights), *saved.arena, router_.room(shape));
  if (saved.recomputed && !y) return;
  const TensorView of_shared = shared_ && y ? shape.allocate_residual(context_.workspace) : TensorView();
  expand(shape, rows, saved, of_shared);
  if (!y) return;
  const TensorView activated = activation_.forward(context_.backend, stream, saved.expanded, context_.workspace);
  context_.backend.experts().scale_rows(stream, activated, saved.route.weights, saved.route.slots, activated);
  const TensorView results = context_.workspace.allocate(shape.dtype, {activated.shape()[0], shape.h});
  context_.backend.gemm().grouped_linear(stream, saved.route.rows, activated, projections_, results);
  if (projection_adapter_.any()) projection_adapter_.forward(activated, results, saved.route.rows);
  sum_tokens(saved, results, shape.as_rows(y));
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
    gemm.grouped_backward_input(stream, saved.route.rows, doutput, projections_, dscaled);
    if (projection_adapter_.any()) projection_adapter_.backward_input(doutput, dscaled, saved.route.rows);
    const bool trains = !projection_gradients_.empty();
    if (trains || projection_adapter_.any()) {
      const TensorView scaled = activation_.allocate(context_.workspace, saved.expanded);
      kernels.scale_rows(stream, activated, saved.route.weights, saved.route.slots, scaled);
      if (projection_adapter_.any()) projection_adapter_.backward_weight(doutput, scaled, saved.route.rows);
      if (trains) {
        gemm.grouped_backward_weight(stream, saved.route.rows, doutput, scaled, projection_gradients_,
                                     next_sums(projection_sums_, saved.route.rows));
      }
    }
    kernels.scale_rows_backward(stream, dscaled, activated, saved.route.weights, saved.route.slots, dscaled, dweights);
  }
  const TensorView dexpanded = activation_.gated ? saved.expanded : dscaled;
  activation_.backward(context_.backend, stream, dscaled, saved.expanded, dexpanded);
  const ConstTensorView rows = tokens_of(shape.as_rows(saved.input));
  const TensorView dpermuted = context_.workspace.allocate(shape.dtype, {dexpanded.shape()[0], shape.h});
  gemm.grouped_backward_input(stream, saved.route.rows, dexpanded, expansions_, dpermuted);
  if (expansion_adapter_.any()) expansion_adapter_.backward_input(dexpanded, dpermuted, saved.route.rows);
  const bool trains = !expansion_gradients_.empty();
  if (trains || expansion_adapter_.any()) {
    const ArenaScope inner(context_.workspace);
    const TensorView permuted = dispatcher_->dispatch(saved.route, rows);
    if (expansion_adapter_.any()) expansion_adapter_.backward_weight(dexpanded, permuted, saved.route.rows);
    if (trains) {
      gemm.grouped_backward_weight(stream, saved.route.rows, dexpanded, permuted, expansion_gradients_,
                                   next_sums(expansion_sums_, saved.route.rows));
    }
  }
  const TensorView drouter =
      router_.backward(shape, saved.router, rows, dispatcher_->weight_gradients(saved.route, dweights), mean_gradient);
  sum_tokens(saved, dpermuted, shape.as_rows(dx), drouter);
  if (of_shared) elementwise.add(stream, of_shared, dx);
}

}  // namespace trireme::model

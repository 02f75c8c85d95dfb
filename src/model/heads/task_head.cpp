#include "src/model/heads/task_head.hpp"

#include "src/model/model_parameters.hpp"

namespace trireme::model {

TaskHead::TaskHead(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const ModelConfig& config, std::int64_t sequence, std::int64_t b)
    : context_(context), epsilon_(config.norm_epsilon) {
  if (!config.post_norm()) final_norm_.emplace(parameters, outer_norm_name(config));
  if (config.output == ModelOutput::spans) {
    spans_.emplace(context, parameters, sequence, b);
  } else {
    samples_.emplace(context, parameters, task_head_name(config),
                     config.has_task_pooler() ? SampleSummary::pooled_first : SampleSummary::last,
                     config.samples_per_label());
  }
}

std::unique_ptr<OutputHead::Saved> TaskHead::forward(const LayerShape& shape, const MicroBatch& batch,
                                                     const StageMode& mode, ConstTensorView x, Arena& arena) {
  auto saved = std::make_unique<Saved>();
  saved->mark = arena.mark();
  saved->input = x;
  if (final_norm_) {
    saved->final_normed = shape.allocate_residual(arena);
    saved->final_statistics = shape.allocate_statistics(arena);
    context_.backend.norm().normalise(context_.stream(), x, final_norm_->weight, final_norm_->bias, epsilon_,
                                      saved->final_normed, saved->final_statistics);
    x = saved->final_normed;
  }
  if (spans_) {
    saved->spans = spans_->forward(shape, batch, mode, x, arena);
  } else {
    saved->samples = samples_->forward(shape, batch, mode, x, arena);
  }
  return saved;
}

void TaskHead::backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& of_forward, TensorView dx) const {
  const auto& saved = static_cast<const Saved&>(of_forward);
  const ArenaScope scope(context_.workspace);
  const TensorView dhidden = final_norm_ ? shape.allocate_residual(context_.workspace) : dx;
  if (spans_) {
    spans_->backward(shape, batch, mode.sample_loss_gradient, saved.spans, dhidden);
  } else {
    context_.backend.elementwise().fill(context_.stream(), 0, dhidden);
    samples_->backward(shape, batch, mode.sample_loss_gradient, saved.samples, dhidden);
  }
  if (final_norm_) {
    context_.backend.norm().normalise_backward(context_.stream(), dhidden, saved.input, final_norm_->weight,
                                               saved.final_statistics, {}, dx, final_norm_->weight_gradient,
                                               final_norm_->bias_gradient);
  }
}

}  // namespace trireme::model

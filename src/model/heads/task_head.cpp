#include "src/model/heads/task_head.hpp"

#include "src/model/heads/sample_classification.hpp"
#include "src/model/heads/span_prediction.hpp"
#include "src/model/parameter_list.hpp"

namespace trireme::model {
namespace {

std::unique_ptr<SamplePrediction> make_prediction(const parallel::TensorContext& context,
                                                  const parallel::ParameterBuffer& parameters,
                                                  const ModelConfig& config, std::int64_t sequence, std::int64_t b) {
  if (config.output == ModelOutput::spans) {
    return std::make_unique<SpanPrediction>(context, parameters, sequence, b);
  }
  const SampleSummary summary = config.has_task_pooler() ? SampleSummary::pooled_first : SampleSummary::last;
  return std::make_unique<SampleClassification>(context, parameters, task_head_name(config), summary,
                                                config.samples_per_label());
}

}  // namespace

TaskHead::TaskHead(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                   const ModelConfig& config, std::int64_t sequence, std::int64_t b)
    : context_(context),
      norm_(context, parameters, config),
      prediction_(make_prediction(context, parameters, config, sequence, b)) {}

std::unique_ptr<OutputHead::Saved> TaskHead::forward(const LayerShape& shape, const MicroBatch& batch,
                                                     const StageMode& mode, ConstTensorView x, Arena& arena) {
  auto saved = std::make_unique<Saved>();
  saved->mark = arena.mark();
  saved->norm = norm_.forward(shape, x, arena);
  saved->prediction = prediction_->forward(shape, batch, mode, saved->norm.output, arena);
  return saved;
}

void TaskHead::backward(const LayerShape& shape, const MicroBatch& batch, const StageMode& mode,
                        const OutputHead::Saved& of_forward, TensorView dx) {
  const auto& saved = static_cast<const Saved&>(of_forward);
  const ArenaScope scope(context_.workspace);
  const TensorView dnormed = norm_.gradient(shape, dx);
  context_.backend.elementwise().fill(context_.stream(), 0, dnormed);
  prediction_->backward(shape, batch, mode.sample_loss_gradient, *saved.prediction, dnormed);
  norm_.backward(saved.norm, dnormed, dx);
}

}  // namespace trireme::model

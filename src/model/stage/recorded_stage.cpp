#include "src/model/stage/recorded_stage.hpp"

#include <algorithm>
#include <iterator>

#include "src/base/check.hpp"

namespace trireme::model {
namespace {

constexpr int recording_round = 2;

/// Fields of a micro-batch that are copied to fixed addresses: all except the loss gradients, which are computed there,
/// and the three per-token results, which training does not request.
constexpr std::array copied_data = {&MicroBatch::tokens,
                                    &MicroBatch::labels,
                                    &MicroBatch::loss_weights,
                                    &MicroBatch::samples,
                                    &MicroBatch::token_types,
                                    &MicroBatch::positions,
                                    &MicroBatch::first_visible,
                                    &MicroBatch::lengths,
                                    &MicroBatch::sample_labels,
                                    &MicroBatch::sample_weights,
                                    &MicroBatch::span_ends,
                                    &MicroBatch::last_rows,
                                    &MicroBatch::tokens_ahead,
                                    &MicroBatch::labels_ahead,
                                    &MicroBatch::ahead_weights,
                                    &MicroBatch::predictions,
                                    &MicroBatch::prediction_numbers};

/// Gradient of one kind of loss: its weights times the mode's factor.
struct LossGradient {
  ConstTensorView MicroBatch::*gradient;
  ConstTensorView MicroBatch::*weights;
  double StageMode::*factor;
};
constexpr std::array loss_gradients = {
    LossGradient{&MicroBatch::loss_gradient, &MicroBatch::loss_weights, &StageMode::loss_gradient},
    LossGradient{&MicroBatch::sample_loss_gradient, &MicroBatch::sample_weights, &StageMode::sample_loss_gradient},
    LossGradient{&MicroBatch::ahead_loss_gradient, &MicroBatch::ahead_weights, &StageMode::ahead_loss_gradient}};
static_assert(sizeof(MicroBatch) == (copied_data.size() + loss_gradients.size() + 3) * sizeof(ConstTensorView));

GraphRecorder& recorder_of(Backend& backend) {
  auto* recorder = dynamic_cast<GraphRecorder*>(&backend);
  TRIREME_CHECK(recorder != nullptr, ConfigError, "<cuda_graphs>: the backend {} has no graphs", backend.name());
  return *recorder;
}

}  // namespace

RecordedStage::RecordedStage(Backend& backend, ModelStage& stage, parallel::GradientSums& sums,
                             const Unrecorded& unrecorded)
    : backend_(backend), recorder_(recorder_of(backend)), stage_(stage), sums_(sums), unrecorded_(unrecorded) {}

void RecordedStage::begin(std::vector<MicroBatch> micro_batches, const StageMode& mode) {
  micro_batches_ = std::move(micro_batches);
  mode_ = mode;
  loaded_number_ = -1;
  if (!mode.backward) return stage_.begin(micro_batches_, mode);
  if (mode.hidden_dropout != recorded_mode_.hidden_dropout ||
      mode.attention_dropout != recorded_mode_.attention_dropout ||
      mode.router_jitter != recorded_mode_.router_jitter || mode.seed != recorded_mode_.seed ||
      mode.mean_gradient != recorded_mode_.mean_gradient) {
    recordings_.clear();
    rounds_.clear();
    runs_ = 0;
  }
  ++runs_;
  recorded_mode_ = mode;
  const MicroBatch& like = micro_batches_.front();
  for (std::size_t i = 0; i < copied_data.size(); ++i) {
    if (like.*copied_data[i]) loaded_.*copied_data[i] = fixed('b', i, like.*copied_data[i]);
  }
  for (std::size_t i = 0; i < loss_gradients.size(); ++i) {
    const ConstTensorView weights = like.*loss_gradients[i].weights;
    if (weights) loaded_.*loss_gradients[i].gradient = fixed('l', i, weights);
  }
  stage_.begin(std::vector<MicroBatch>(micro_batches_.size(), loaded_), mode);
}

bool RecordedStage::may_need_idle_gpu() const {
  return stage_.may_need_idle_gpu() || (mode_.backward && runs_ <= recording_round);
}

void RecordedStage::load(int micro_batch) {
  if (loaded_number_ == micro_batch) return;
  loaded_number_ = micro_batch;
  const MicroBatch& from = micro_batches_[static_cast<std::size_t>(micro_batch)];
  Stream& stream = backend_.compute_stream();
  for (std::size_t i = 0; i < copied_data.size(); ++i) {
    const ConstTensorView data = from.*copied_data[i];
    if (data) backend_.copy_within(stream, data, fixed('b', i, data));
  }
  for (std::size_t i = 0; i < loss_gradients.size(); ++i) {
    const ConstTensorView weights = from.*loss_gradients[i].weights;
    if (!weights) continue;
    const TensorView gradient = fixed('l', i, weights);
    backend_.elementwise().convert(stream, weights, gradient);
    backend_.elementwise().scale(stream, mode_.*loss_gradients[i].factor, gradient);
  }
}

TensorView RecordedStage::fixed(char name, std::size_t number, ConstTensorView like) {
  const auto [found, is_new] = fixed_.try_emplace({name, number});
  if (is_new) found->second = Tensor(backend_, like.dtype(), like.shape());
  return found->second;
}

bool RecordedStage::is_recordable(int micro_batch) const {
  return !(unrecorded_.first && micro_batch == 0) &&
         !(unrecorded_.last && micro_batch + 1 == static_cast<int>(micro_batches_.size()));
}

void RecordedStage::move_arena(const parallel::Step& step) {
  ActivationStore& activations = stage_.activations();
  if (step.kind == parallel::StepKind::forward) activations.open(step.chunk, step.micro_batch);
  if (step.kind == parallel::StepKind::backward || step.kind == parallel::StepKind::backward_weight) {
    activations.close(step.chunk, step.micro_batch);
  }
}

RecordedStage::Recording RecordedStage::record(const parallel::Step& step, ConstTensorView input, TensorView output) {
  const std::vector<std::size_t> undefined = sums_.undefined();
  Recording recording{recorder_.record([&] { parallel::run_step(stage_, step, input, output); }), {}};
  std::ranges::copy_if(undefined, std::back_inserter(recording.defines),
                       [this](std::size_t number) { return !sums_.is_undefined(number); });
  return recording;
}

void RecordedStage::run(const parallel::Step& step, ConstTensorView received, TensorView sent) {
  if (!mode_.backward) return parallel::run_step(stage_, step, received, sent);
  const bool is_forward = step.kind == parallel::StepKind::forward;
  const ActivationStore& activations = stage_.activations();
  const std::size_t arena = is_forward ? activations.next_number() : activations.number(step.chunk, step.micro_batch);
  const bool recordable = is_recordable(step.micro_batch);
  const Place place{step.chunk, arena, step.micro_batch == 0};
  int& round = rounds_[place];
  if (is_forward && recordable && round <= recording_round) ++round;
  load(step.micro_batch);

  // A received input is read until the micro-batch's last step. A result is sent, or copied, before the next step.
  Stream& stream = backend_.compute_stream();
  ConstTensorView input;
  TensorView output;
  if (received) {
    const TensorView kept = fixed(is_forward ? 'x' : 'g', arena, received);
    backend_.copy_within(stream, received, kept);
    input = kept;
  }
  if (sent) output = fixed('y', 0, sent);
  if (!recordable || round < recording_round) {
    parallel::run_step(stage_, step, input, output);
  } else {
    Recording& recording = recordings_[{step.kind, place}];
    if (round == recording_round) {
      recording = record(step, input, output);
    } else {
      move_arena(step);
      for (const std::size_t number : recording.defines) static_cast<void>(sums_.next(number));
    }
    recording.graph->launch(stream);
  }
  if (sent) backend_.copy_within(stream, output, sent);
}

}  // namespace trireme::model

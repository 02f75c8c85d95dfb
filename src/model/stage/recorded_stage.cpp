#include "src/model/stage/micro_batch_graphs.hpp"

#include "src/base/check.hpp"

namespace trireme::model {
namespace {

GraphRecorder& recorder_of(Backend& backend) {
  auto* recorder = dynamic_cast<GraphRecorder*>(&backend);
  TRIREME_CHECK(recorder != nullptr, ConfigError, "--cuda-graphs: the backend {} has no graphs", backend.name());
  return *recorder;
}

}  // namespace

MicroBatchGraphs::MicroBatchGraphs(Backend& backend, std::int64_t s, std::int64_t b, DType weight_type)
    : backend_(backend),
      recorder_(recorder_of(backend)),
      ids_(backend, DType::int32, {s, b}),
      targets_(backend, DType::int32, {s, b}),
      weights_(backend, weight_type, {s * b}),
      samples_(backend, DType::int64, {b}),
      loss_gradient_(backend, weight_type, {s * b}),
      place_{ids_, targets_, weights_, samples_} {}

void MicroBatchGraphs::begin(const StageMode& mode) {
  brought_ = -1;
  if (mode.hidden_dropout != mode_.hidden_dropout || mode.attention_dropout != mode_.attention_dropout ||
      mode.seed != mode_.seed) {
    graphs_.clear();
    rounds_.clear();
  }
  mode_ = mode;
}

void MicroBatchGraphs::bring(int number, const MicroBatch& from) {
  if (brought_ == number) return;
  brought_ = number;
  Stream& stream = backend_.compute_stream();
  recorder_.copy_within(stream, from.ids, ids_);
  recorder_.copy_within(stream, from.targets, targets_);
  recorder_.copy_within(stream, from.weights, weights_);
  recorder_.copy_within(stream, from.samples, samples_);
  backend_.elementwise().convert(stream, weights_, loss_gradient_);
  backend_.elementwise().scale(stream, mode_.loss_gradient, loss_gradient_);
}

TensorView MicroBatchGraphs::place(char name, std::size_t arena, ConstTensorView like) {
  const auto [found, is_new] = places_.try_emplace({name, arena});
  if (is_new) found->second = Tensor(backend_, like.dtype(), like.shape());
  return found->second;
}

bool MicroBatchGraphs::run(parallel::StepKind kind, int chunk, std::size_t arena, bool recordable,
                           ConstTensorView received, TensorView sent, const Enqueue& enqueue) {
  constexpr int recording = 2;
  const bool is_forward = kind == parallel::StepKind::forward;
  int& round = rounds_[{chunk, arena}];
  if (is_forward && recordable && round <= recording) ++round;
  const bool as_ever = !recordable || round < recording;
  Stream& stream = backend_.compute_stream();
  // A received input is read until the last step of the micro-batch. A result is sent, or copied, before the next one.
  ConstTensorView input;
  TensorView output;
  if (received) {
    const TensorView kept = place(is_forward ? 'x' : 'g', arena, received);
    recorder_.copy_within(stream, received, kept);
    input = kept;
  }
  if (sent) output = place('y', 0, sent);
  if (as_ever) {
    enqueue(input, output);
  } else {
    std::unique_ptr<Graph>& graph = graphs_[{kind, chunk, arena}];
    if (round == recording) graph = recorder_.record([&] { enqueue(input, output); });
    graph->launch(stream);
  }
  if (sent) recorder_.copy_within(stream, output, sent);
  return !as_ever && round > recording;
}

}  // namespace trireme::model

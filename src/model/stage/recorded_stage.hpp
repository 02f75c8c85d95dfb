#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/backend/graphs.hpp"
#include "src/model/stage/model_stage.hpp"
#include "src/parallel/gradient_sums.hpp"
#include "src/parallel/pipeline/schedule.hpp"

namespace trireme::model {

/// Decorator of a stage that runs its training steps as graphs. A step is identified by its chunk, the arena of the
/// micro-batch's activations, and whether that is the first of an update, whose products overwrite gradients. Its first
/// round runs normally, so that one-time choices and allocations are made. The second round records it. Later rounds
/// launch the recorded graph, for any such micro-batch, without calling the stage.
///
/// Inputs that vary between micro-batches and updates have fixed addresses: tokens, sample numbers for dropout, the
/// gradient of the loss, and data from other stages. They are copied there before each step. Results for other stages
/// are copied from a fixed address.
class RecordedStage final : public ModelStage {
 public:
  /// Micro-batches of an update that always run normally, because their parameter hooks wait or communicate.
  struct Unrecorded {
    bool first = false;
    bool last = false;
  };
  /// `stage` computes on `backend`, and `sums` are the states of its gradients; all must outlive it. ConfigError if the
  /// backend cannot record graphs.
  RecordedStage(Backend& backend, ModelStage& stage, parallel::GradientSums& sums, const Unrecorded& unrecorded);

  /// Also discards the graphs if `mode` differs from theirs in more than the loss gradients of samples and tokens.
  void begin(std::vector<MicroBatch> micro_batches, const StageMode& mode) override;
  ActivationStore& activations() override { return stage_.activations(); }

  DType boundary_dtype() const override { return stage_.boundary_dtype(); }
  Shape boundary_shape(int micro_batch) const override { return stage_.boundary_shape(micro_batch); }
  bool is_first(int chunk) const override { return stage_.is_first(chunk); }
  bool is_last(int chunk) const override { return stage_.is_last(chunk); }
  bool may_need_idle_gpu() const override;
  bool reads_input_in_backward(int chunk) const override {
    return !mode_.backward && stage_.reads_input_in_backward(chunk);  // in training, `run` keeps a copy
  }
  void forward(int chunk, int micro_batch, ConstTensorView input, TensorView output) override {
    run({parallel::StepKind::forward, chunk, micro_batch}, input, output);
  }
  void backward_input(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override {
    run({parallel::StepKind::backward_input, chunk, micro_batch}, output_gradient, input_gradient);
  }
  void backward_weight(int chunk, int micro_batch) override {
    run({parallel::StepKind::backward_weight, chunk, micro_batch}, {}, {});
  }
  void backward(int chunk, int micro_batch, ConstTensorView output_gradient, TensorView input_gradient) override {
    run({parallel::StepKind::backward, chunk, micro_batch}, output_gradient, input_gradient);
  }

 private:
  /// Runs a step of the stage, records it, or launches its graph. Copies `received`, which may be reused afterwards,
  /// and overwrites `sent` with the result. Either may be empty.
  void run(const parallel::Step& step, ConstTensorView received, TensorView sent);
  bool is_recordable(int micro_batch) const;
  /// Recorded work of a step.
  struct Recording {
    std::unique_ptr<Graph> graph;
    std::vector<std::size_t> defines;  // numbers of the undefined gradients that it overwrites
  };
  /// Records a step.
  Recording record(const parallel::Step& step, ConstTensorView input, TensorView output);
  /// Chunk, arena, and whether it is the first micro-batch.
  using Place = std::tuple<int, std::size_t, bool>;
  /// Copies a micro-batch to the fixed addresses, unless it is already there.
  void load(int micro_batch);
  /// Opens or closes the micro-batch's arena as the stage does in the step.
  void move_arena(const parallel::Step& step);
  /// Returns the tensor of this name and number, which has a fixed address. Creates it like `like` at its first use.
  TensorView fixed(char name, std::size_t number, ConstTensorView like);

  Backend& backend_;
  GraphRecorder& recorder_;
  ModelStage& stage_;
  parallel::GradientSums& sums_;
  Unrecorded unrecorded_;
  std::vector<MicroBatch> micro_batches_;
  StageMode mode_;
  StageMode recorded_mode_;
  int runs_ = 0;       // with backward, since graphs were discarded
  MicroBatch loaded_;  // the fixed addresses
  int loaded_number_ = -1;
  std::map<std::pair<char, std::size_t>, Tensor> fixed_;
  std::map<Place, int> rounds_;  // forwards so far, up to 3
  std::map<std::pair<parallel::StepKind, Place>, Recording> recordings_;
};

}  // namespace trireme::model

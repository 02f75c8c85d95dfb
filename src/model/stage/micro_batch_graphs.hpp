#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "src/backend/backend.hpp"
#include "src/backend/graphs.hpp"
#include "src/model/stage/micro_batch.hpp"
#include "src/parallel/pipeline/schedule.hpp"

namespace trireme::model {

/// Runs a stage's steps as graphs. What a step works on is told apart by its chunk of layers and the arena of the
/// micro-batch's activations: in its first round with them a step runs as ever, so that all that is chosen or allocated
/// once is there; in the second it is recorded; from then on the recorded work is enqueued, whatever the micro-batch.
/// What differs between micro-batches and updates (tokens, numbers of samples for dropout, the gradient of the loss) is
/// brought to one place before each step, and read there; so is what comes from other stages, and what goes to them is
/// fetched from one.
class MicroBatchGraphs {
 public:
  /// For micro-batches of `s` rows and `b` samples with weights of `weight_type`. ConfigError where the backend cannot
  /// record. It must live longer.
  MicroBatchGraphs(Backend& backend, std::int64_t s, std::int64_t b, DType weight_type);

  /// To be called before every update: forgets what was brought, and where `mode` is not that of the graphs but for the
  /// gradient of the loss, the graphs.
  void begin(const StageMode& mode);
  /// Brings a micro-batch, the `number`th of this update, to the place that steps read.
  void bring(int number, const MicroBatch& from);
  const MicroBatch& micro_batch() const { return place_; }
  /// [s b] A: weights times the mode's gradient of the loss, of the micro-batch that was brought.
  ConstTensorView loss_gradient() const { return loss_gradient_; }

  /// Enqueues a step, given what it reads and where to put what it makes.
  using Enqueue = std::function<void(ConstTensorView input, TensorView output)>;
  /// Enqueues one step of the micro-batch whose activations are in arena number `arena`: by `enqueue`, or what that was
  /// recorded to do; true where `enqueue` was not called. All steps of a micro-batch are `recordable` or none.
  /// `received` is what came from another stage, which is no longer needed when the step is done, `sent` where its
  /// result goes; either may be empty.
  bool run(parallel::StepKind kind, int chunk, std::size_t arena, bool recordable, ConstTensorView received,
           TensorView sent, const Enqueue& enqueue);

 private:
  /// A tensor as `like` that stays what it is: of this name, as many as there are arenas.
  TensorView place(char name, std::size_t arena, ConstTensorView like);

  Backend& backend_;
  GraphRecorder& recorder_;
  Tensor ids_, targets_, weights_, samples_, loss_gradient_;
  MicroBatch place_;
  StageMode mode_;
  int brought_ = -1;
  std::map<std::pair<char, std::size_t>, Tensor> places_;
  std::map<std::pair<int, std::size_t>, int> rounds_;  // forwards so far of each chunk in each arena, up to 3
  std::map<std::tuple<parallel::StepKind, int, std::size_t>, std::unique_ptr<Graph>> graphs_;
};

}  // namespace trireme::model

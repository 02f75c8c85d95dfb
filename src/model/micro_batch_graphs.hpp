#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/backend/graphs.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/pipeline/schedule.hpp"

namespace trireme::model {

/// Runs a stage's steps as graphs. What a step works on is told apart by the arena of the micro-batch's activations: in
/// its first round with an arena a step runs as ever, so that all that is chosen or allocated once is there; in the
/// second it is recorded; from then on the recorded work is enqueued, whatever the micro-batch. What differs between
/// micro-batches and updates (tokens, numbers of samples for dropout, the gradient of the loss) is brought to one place
/// before each step, and read there.
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

  /// Enqueues one step of the micro-batch whose activations are in arena number `arena`, which `enqueue` enqueues.
  void run(parallel::StepKind kind, std::size_t arena, const std::function<void()>& enqueue);

 private:
  Backend& backend_;
  GraphRecorder& recorder_;
  Tensor ids_, targets_, weights_, samples_, loss_gradient_;
  MicroBatch place_;
  StageMode mode_;
  int brought_ = -1;
  std::vector<int> rounds_;  // forwards so far with each arena, up to 3
  std::map<std::pair<parallel::StepKind, std::size_t>, std::unique_ptr<Graph>> graphs_;
};

}  // namespace trireme::model

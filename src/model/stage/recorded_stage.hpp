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

/// Runs a stage's steps as graphs. A step is identified by its chunk of layers and the arena of the micro-batch's
/// activations. In its first round a step runs normally, so that everything chosen or allocated once is there. In the
/// second round it is recorded. After that the recorded work is enqueued, for any micro-batch. Values that differ
/// between micro-batches and updates have one fixed place: tokens, sample numbers for dropout, the gradient of the
/// loss. They are copied there before each step. Data from other stages are copied there too, and results for them are
/// fetched from a fixed place.
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

#include "src/plan/work/stage_work.hpp"

#include "src/backend/rehearsal_backend.hpp"
#include "src/plan/cost/observed_backend.hpp"
#include "src/plan/work/device_stand_in.hpp"

namespace trireme::plan {
namespace {

using parallel::GroupKind;
using parallel::StepKind;

/// Receives the events of a rank.
class Recorder final : public CallObserver {
 public:
  void begin(Stream&, const KernelCall& call) override {
    if (call.line != Line::inputs) events_.push_back({.kind = WorkEvent::Kind::kernel, .call = call});
  }
  void end(Stream&, const KernelCall&) override {}

  Work start(GroupKind group, Collective collective, double bytes) {
    const int operation = operations_++;
    events_.push_back({.kind = WorkEvent::Kind::start,
                       .operation = operation,
                       .group = group,
                       .collective = collective,
                       .bytes = bytes});
    return Work(std::make_unique<Operation>(*this, operation));
  }
  std::vector<WorkEvent> take() {
    operations_ = 0;
    return std::exchange(events_, {});
  }

 private:
  class Operation final : public Work::State {
   public:
    Operation(Recorder& recorder, int operation) : recorder_(recorder), operation_(operation) {}
    bool done() override { return false; }
    void wait(Stream&) override {
      recorder_.events_.push_back({.kind = WorkEvent::Kind::wait, .operation = operation_});
    }

   private:
    Recorder& recorder_;
    int operation_;
  };

  std::vector<WorkEvent> events_;
  int operations_ = 0;
};

double bytes_of(ConstTensorView data) { return static_cast<double>(data.size_bytes()); }

/// Rank 0 of a group of which the others do not exist: every operation is recorded and moves nothing.
class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(GroupKind kind, int size, Recorder& recorder)
      : kind_(kind), size_(size), name_(parallel::to_string(kind)), recorder_(recorder) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Work all_reduce(Stream&, TensorView data, ReduceOp) override {
    return recorder_.start(kind_, Collective::all_reduce, bytes_of(data));
  }
  Work reduce_scatter(Stream&, ConstTensorView in, TensorView, ReduceOp) override {
    return recorder_.start(kind_, Collective::reduce_scatter, bytes_of(in));
  }
  Work all_gather(Stream&, ConstTensorView, TensorView out) override {
    return recorder_.start(kind_, Collective::all_gather, bytes_of(out));
  }
  Work broadcast(Stream&, TensorView data, int) override {
    return recorder_.start(kind_, Collective::broadcast, bytes_of(data));
  }
  std::vector<Work> exchange(Stream&, std::span<const Transfer> transfers) override {
    std::vector<Work> works;
    for (const Transfer& transfer : transfers) {
      // Both directions of a link work at once.
      const bool sends = transfer.direction == Transfer::Direction::send;
      works.push_back(sends ? recorder_.start(kind_, Collective::send_receive, bytes_of(transfer.data)) : Work());
    }
    return works;
  }
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int, const std::string&, GroupUse) override {
    throw ShapeError("a recorded group cannot be split");
  }

 private:
  GroupKind kind_;
  int size_;
  std::string name_;
  Recorder& recorder_;
};

}  // namespace

StageWork record_stage(const model::ModelConfig& config, const train::ExecutionConfig& execution, const LayerGrid& grid,
                       const train::StageRehearsal::Layers& layers) {
  DeviceStandIn device;
  RehearsalBackend rehearsal(device);
  ObservedBackend backend(rehearsal);
  Recorder recorder;
  RecordingCommunicator tensor(GroupKind::tensor, grid.tensor, recorder);
  RecordingCommunicator context(GroupKind::context, grid.context, recorder);
  train::StageRehearsal stage(backend, tensor, context, config, execution, layers);
  backend.set_logits_columns(stage.logits_columns());
  backend.observe(&recorder);
  StageWork work;
  work.parameters = stage.parameter_elements();
  work.boundary_bytes = static_cast<double>(stage.boundary_bytes());
  for (const auto& steps : {std::vector{StepKind::forward, StepKind::backward},
                            std::vector{StepKind::forward, StepKind::backward_input, StepKind::backward_weight}}) {
    for (const StepKind kind : steps) {
      stage.run(kind);
      work.steps[kind] = recorder.take();
    }
  }
  backend.observe(nullptr);
  return work;
}

}  // namespace trireme::plan

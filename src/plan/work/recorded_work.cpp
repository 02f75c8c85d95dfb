#include "src/plan/work/recorded_work.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "src/backend/rehearsal_backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/optim/grad_norm.hpp"
#include "src/parallel/data/data_parallel.hpp"
#include "src/plan/cost/observed_backend.hpp"
#include "src/plan/work/device_stand_in.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::plan {
namespace {

using parallel::GroupKind;
using parallel::StepKind;

/// Receives the events of a rank.
class Recorder final : public CallObserver {
 public:
  /// Kernels run on the compute stream of `backend`.
  explicit Recorder(Backend& backend) : compute_(backend.compute_stream()) {}
  void begin(Stream& stream, const KernelCall& call) override {
    if (&stream != &compute_ && call.kind == KernelKind::inputs) {
      events_.push_back({.kind = WorkEvent::Kind::from_host, .bytes = call.bytes});
    } else if (&stream != &compute_ && call.kind == KernelKind::results) {
      events_.push_back({.kind = WorkEvent::Kind::to_host, .bytes = call.bytes});
    } else if (call.kind != KernelKind::inputs) {
      events_.push_back({.kind = WorkEvent::Kind::kernel, .call = call});
    }
  }
  void end(Stream&, const KernelCall&) override {}

  Work start(parallel::GroupKind group, Collective collective, double bytes) {
    const int operation = operations_++;
    events_.push_back({.kind = WorkEvent::Kind::start,
                       .operation = operation,
                       .group = group,
                       .collective = collective,
                       .bytes = bytes});
    return Work(std::make_unique<Operation>(*this, operation));
  }
  /// The events since the last call.
  std::vector<WorkEvent> take() { return std::exchange(events_, {}); }
  /// Numbers operations from 0 again.
  void restart() { operations_ = 0; }

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

  Stream& compute_;
  std::vector<WorkEvent> events_;
  int operations_ = 0;
};

/// Rank 0 of an otherwise non-existent group: records every operation and moves nothing.
class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(parallel::GroupKind kind, int size, Recorder& recorder)
      : kind_(kind), size_(size), name_(parallel::name_of(kind)), recorder_(recorder) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Work all_reduce(StreamPoint, TensorView data, ReduceOp) override {
    return recorder_.start(kind_, Collective::all_reduce, bytes_of(data));
  }
  Work reduce_scatter(StreamPoint, ConstTensorView in, TensorView, ReduceOp) override {
    return recorder_.start(kind_, Collective::reduce_scatter, bytes_of(in));
  }
  Work all_gather(StreamPoint, ConstTensorView, TensorView out) override {
    return recorder_.start(kind_, Collective::all_gather, bytes_of(out));
  }
  Work broadcast(StreamPoint, TensorView data, int) override {
    return recorder_.start(kind_, Collective::broadcast, bytes_of(data));
  }
  std::vector<Work> exchange(StreamPoint, std::span<const Transfer> transfers) override {
    std::vector<Work> works;
    for (const Transfer& transfer : transfers) {
      // Both directions of a link work at once.
      const bool sends = transfer.direction == Transfer::Direction::send;
      works.push_back(sends ? recorder_.start(kind_, Collective::send_receive, bytes_of(transfer.data)) : Work());
    }
    return works;
  }
  /// One all-to-all, of the direction with more bytes. Its size counts a part for this rank itself.
  Work grouped_exchange(StreamPoint, std::span<const Transfer> transfers) override {
    double sent = 0, received = 0;
    for (const Transfer& transfer : transfers) {
      (transfer.direction == Transfer::Direction::send ? sent : received) += bytes_of(transfer.data);
    }
    return recorder_.start(kind_, Collective::all_to_all, std::max(sent, received) * size_ / std::max(1, size_ - 1));
  }
  void barrier(const Caller&) override {}
  std::unique_ptr<Communicator> split(int, int, const std::string&, GroupUse) override {
    throw ShapeError("a recorded group cannot be split");
  }

 private:
  static double bytes_of(ConstTensorView data) { return static_cast<double>(data.size_bytes()); }

  parallel::GroupKind kind_;
  int size_;
  std::string name_;
  Recorder& recorder_;
};

/// Units of a stage, in the order of its parameters.
std::vector<UpdateWork::Unit> units_of(const model::StageShard& shard) {
  using Part = UpdateWork::Unit::Part;
  std::vector<UpdateWork::Unit> units;
  const auto add = [&](Part part, int chunk) {
    UpdateWork::Unit& unit = units.emplace_back();
    unit.part = part;
    unit.chunk = chunk;
  };
  if (shard.first_stage) add(Part::embedding, 0);
  const int count = static_cast<int>(shard.chunks.size());
  for (int chunk = 0; chunk < count; ++chunk) {
    for (int i = 0; i < shard.chunks[static_cast<std::size_t>(chunk)].layers; ++i) add(Part::layer, chunk);
  }
  if (shard.last_stage) add(Part::head, count - 1);
  return units;
}

/// A rank's parameters and their optimizer.
class Rank {
 public:
  Rank(Backend& backend, Recorder& recorder, const model::ModelConfig& config, const train::ExecutionConfig& execution,
       const optim::OptimizerOptions& optimizer, const parallel::ProcessGrid& grid, int pipeline_rank)
      : backend_(backend),
        recorder_(recorder),
        layout_(parallel::PipelineLayout::of(config.layers, grid.pipeline_size(), execution.parallel.pipeline)),
        shard_(shard_of(execution, grid, pipeline_rank)),
        halves_(parallel::schedule_for(execution.parallel.schedule, layout_.chunks) ==
                parallel::ScheduleKind::zero_bubble),
        tied_head_(shard_.first_stage && shard_.last_stage && config.has_table_in_head()),
        tensor_(GroupKind::tensor, grid.tensor_size(), recorder),
        gradient_(GroupKind::gradient, grid.gradient_size(), recorder),
        model_(GroupKind::model, grid.tensor_size() * grid.pipeline_size(), recorder),
        embedding_(GroupKind::embedding, 2, recorder),
        expert_gradient_(GroupKind::expert_gradient, grid.expert_gradient_size(), recorder),
        expert_model_(GroupKind::expert_model, grid.expert_tensor_size() * grid.expert_size() * grid.pipeline_size(),
                      recorder),
        expert_tensor_(GroupKind::expert_tensor, grid.expert_tensor_size(), recorder),
        groups_(groups()),
        workspace_(backend),
        updates_beside_forward_(execution.parallel.data_parallel.updates_beside_forward()),
        buffer_(backend, execution.dtype,
                model::model_parameters(config, shard_,
                                        {config.vocabulary, 0, grid.tensor_size(), execution.vocabulary_multiple,
                                         execution.padded_vocabulary_size}),
                execution.parallel.data_parallel, members()),
        data_parallel_(backend, buffer_, groups_),
        optimizer_(optim::make_optimizer(backend, buffer_, groups_, optimizer)),
        norm_sums_(backend, DType::fp64, {std::ssize(groups_)}),
        squares_(backend, DType::fp64, {std::ssize(buffer_.layout().buckets())}) {
    data_parallel_.observe(squares_);  // as the guard of every step does
    for (const parallel::Parameter& p : buffer_.parameters()) {
      if (is_deferred(p)) p.sum.defer();
    }
  }

  UpdateWork record() {
    UpdateWork work;
    work.units = units_of(shard_);
    std::ranges::reverse(work.units);
    work.clearing = recorded([&] {
      data_parallel_.begin_step();
      data_parallel_.clear_gradients();
    });
    for (const parallel::Parameter& p : buffer_.parameters()) p.sum.next();
    backward(work, false);
    backward(work, true);
    work.reduction = recorded([&] { reduce(); });
    work.norm = recorded([&] { optim::sum_gradients(backend_, buffer_, groups_, norm_sums_); });
    work.optimizer = recorded([&] {
      optimizer_->step(1e-4, 1,
                       [&](std::size_t bucket) { data_parallel_.start_gather(bucket, backend_.compute_stream()); });
      data_parallel_.finish_gather();
    });
    if (updates_beside_forward_ && optimizer_->runs_beside()) {
      work.buckets_beside_forward = buffer_.layout().buckets().size();
    }
    for (std::size_t i = work.units.size(); i-- > 0;) {
      work.units[i].before_forward = recorded([&] { data_parallel_.before_forward(unit_at(work, i)); });
    }
    return work;
  }

 private:
  model::StageShard shard_of(const train::ExecutionConfig& execution, const parallel::ProcessGrid& grid,
                             int pipeline_rank) const {
    model::StageShard shard = train::stage_shard(layout_, grid, grid.rank({.pipeline = pipeline_rank}));
    shard.sequence_parallel = execution.parallel.sequence_parallel && grid.tensor_size() > 1;
    return shard;
  }
  /// Returns whether products overwrite a gradient. Routers' matrices, which are cleared, are small.
  bool is_deferred(const parallel::Parameter& p) const {
    return parallel::is_hidden_matrix(p) || p.role == parallel::ParameterRole::output_matrix ||
           (p.rows_are_tokens && shard_.last_stage);
  }
  /// As ParallelModel's gradient groups.
  std::vector<parallel::GradientGroup> groups() {
    std::vector<parallel::GradientGroup> groups = {{gradient_, tensor_, model_}};
    if (shard_.divides_experts()) groups.push_back({expert_gradient_, expert_tensor_, expert_model_});
    return groups;
  }
  std::vector<parallel::GradientGroupMember> members() const {
    std::vector<parallel::GradientGroupMember> members;
    for (const parallel::GradientGroup& group : groups_) members.push_back({group.gradient.size(), 0});
    return members;
  }

  template <class Function>
  std::vector<WorkEvent> recorded(const Function& function) {
    function();
    return recorder_.take();
  }

  static int unit_at(const UpdateWork& work, std::size_t i) { return static_cast<int>(work.units.size() - 1 - i); }

  /// The hooks around the backward of every unit, as LayerStack and TransformerStage call them.
  void backward(UpdateWork& work, bool last) {
    for (std::size_t i = 0; i < work.units.size(); ++i) {
      const int unit = unit_at(work, i);
      UpdateWork::Unit& recording = work.units[i];
      (last ? recording.before_last_backward : recording.before_backward) = recorded([&] {
        data_parallel_.before_backward(unit);
        if (i == 0 && tied_head_) data_parallel_.before_backward(0);
        if (!halves_ || recording.part != UpdateWork::Unit::Part::layer) return;
        data_parallel_.pause_backward(unit);
        data_parallel_.before_backward(unit);
      });
      (last ? recording.after_last_backward : recording.after_backward) =
          recorded([&] { data_parallel_.after_backward(unit, last); });
    }
  }

  /// As ParallelModel::reduce_gradients.
  void reduce() {
    data_parallel_.finish_reduction();
    buffer_.sum_partial_gradients(backend_, groups_, workspace_);
    Stream& stream = backend_.compute_stream();
    for (std::size_t i = 0; i < buffer_.parameters().size(); ++i) {
      if (!buffer_.parameters()[i].tied) continue;
      embedding_.all_reduce(stream, buffer_.shard_gradient(i), ReduceOp::sum).wait(stream);
    }
  }

  Backend& backend_;
  Recorder& recorder_;
  parallel::PipelineLayout layout_;
  model::StageShard shard_;
  bool halves_;     // backwards run in halves
  bool tied_head_;  // to the embedding on this rank
  RecordingCommunicator tensor_, gradient_, model_, embedding_, expert_gradient_, expert_model_, expert_tensor_;
  std::vector<parallel::GradientGroup> groups_;
  Arena workspace_;
  bool updates_beside_forward_;
  parallel::ParameterBuffer buffer_;
  parallel::DataParallel data_parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor norm_sums_;
  Tensor squares_;
};

}  // namespace

HostBytes host_bytes_of(std::span<const WorkEvent> events) {
  HostBytes sum;
  for (const WorkEvent& event : events) {
    if (event.kind == WorkEvent::Kind::to_host) sum.to_host += event.bytes;
    if (event.kind == WorkEvent::Kind::from_host) sum.from_host += event.bytes;
  }
  return sum;
}

StageWork record_stage(const model::ModelConfig& config, const train::ExecutionConfig& execution,
                       const parallel::ProcessGrid& grid, const train::StageRehearsal::Layers& layers) {
  DeviceStandIn device;
  RehearsalBackend rehearsal(device);
  ObservedBackend backend(rehearsal);
  Recorder recorder(backend);
  RecordingCommunicator tensor(GroupKind::tensor, grid.tensor_size(), recorder);
  RecordingCommunicator context(GroupKind::context, grid.context_size(), recorder);
  RecordingCommunicator expert(GroupKind::expert, grid.token_group_size(), recorder);
  train::StageRehearsal stage(backend, tensor, context, expert, grid, config, execution, layers);
  backend.set_logits_columns(stage.logits_columns());
  backend.observe(&recorder);
  StageWork work;
  work.parameters = stage.parameter_elements();
  work.boundary_bytes = static_cast<double>(stage.boundary_bytes());
  for (const auto& steps : {std::vector{StepKind::forward, StepKind::backward},
                            std::vector{StepKind::forward, StepKind::backward_input, StepKind::backward_weight}}) {
    for (const StepKind kind : steps) {
      recorder.restart();
      stage.run(kind);
      work.steps[kind] = recorder.take();
    }
  }
  backend.observe(nullptr);
  return work;
}

UpdateWork record_update(const model::ModelConfig& config, const train::ExecutionConfig& execution,
                         const optim::OptimizerOptions& optimizer, const parallel::ProcessGrid& grid,
                         int pipeline_rank) {
  DeviceStandIn device;
  RehearsalBackend rehearsal(device);
  ObservedBackend backend(rehearsal);
  Recorder recorder(backend);
  Rank rank(backend, recorder, config, execution, optimizer, grid, pipeline_rank);
  backend.observe(&recorder);
  UpdateWork work = rank.record();
  backend.observe(nullptr);
  return work;
}

}  // namespace trireme::plan

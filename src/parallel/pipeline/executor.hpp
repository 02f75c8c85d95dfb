#pragma once

#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/pipeline/schedule.hpp"
#include "src/parallel/pipeline/stage.hpp"
#include "src/tensor/trace_recorder.hpp"

namespace trireme::parallel {

/// Choices about the messages between the stages of a pipeline.
struct ExchangeOptions {
  /// Posts receives two steps ahead of the step that needs them, so that messages are in flight while this rank
  /// computes. Otherwise receives are posted together with the send of the step before. On a GPU this also holds for
  /// the first three runs of a schedule, before the first step of a shape, and if Stage::may_need_idle_gpu.
  bool overlap = false;
  /// Optional group of t ranks that all hold the complete message. Each sends 1/t of it, and the receivers gather it on
  /// arrival. Messages whose size t does not divide are sent complete.
  Communicator* tensor_group = nullptr;
};

/// Runs any schedule over one rank's stage, and exchanges messages between ranks. After each step one grouped operation
/// sends the result, if any, to the next or the previous rank. It also posts the receive of the next step, if any, from
/// either. The executor waits for a receive when its data is needed, and for a send only after its receipt is proved.
/// So a schedule whose dependencies are sound cannot deadlock. Buffers are allocated before the first message of a run,
/// as many as the schedule takes, and reused. Each holds the run's longest message; shorter ones take its beginning.
/// There are at most two for each micro-batch in flight (the received and the sent message), and a few more in use.
class PipelineExecutor {
 public:
  PipelineExecutor(Backend& backend, Communicator& pipeline_group, Stage& stage, const ExchangeOptions& options = {})
      : backend_(backend), group_(pipeline_group), stage_(stage), options_(options) {}

  /// Runs all steps of this rank. Calls `before_backward`, if given, before the first backward. Collective over the
  /// pipeline group: all ranks run the same schedule.
  void run(const Schedule& schedule, std::function<void()> before_backward = {});

  /// Bytes of boundary buffers allocated so far.
  std::size_t buffer_bytes() const;

  /// Sets the recorder of steps and waits; null for none.
  void set_trace(TraceRecorder* trace) { trace_ = trace; }

 private:
  struct Arrival {
    Tensor* buffer = nullptr;
    Work work;
    bool is_shard = false;  // true if this rank receives only its own shard
  };
  struct Departure {
    Tensor* buffer = nullptr;
    Work work;
    int number = 0;  // number among the messages sent
  };
  /// Transfers to be started together, and the address for the work of each.
  struct Exchange {
    std::vector<Transfer> transfers;
    std::vector<Work*> works;
  };
  /// Kind of schedule (true: with backwards), kind of step, chunk, and shape of the messages.
  using StepShape = std::tuple<bool, StepKind, int, std::string>;
  StepShape shape_of(const Step& step) const;
  /// Returns whether the host can enqueue the step while receives that depend on later steps are in flight.
  bool needs_no_idle_gpu(const Step& step) const;
  /// Runs the steps with their messages or, as a rehearsal, only acquires and releases their buffers.
  void walk(const Schedule& schedule);
  Tensor* acquire_buffer();
  void release_buffer(Tensor* buffer) { free_.push_back(buffer); }
  /// The part of a buffer that holds a message of this micro-batch; empty in a rehearsal.
  TensorView message_in(const Tensor& buffer, int micro_batch) const;
  /// Returns whether messages of `numel` elements are sent in shards, one for each tensor rank.
  bool sends_shards(std::int64_t numel) const;
  /// Shard of a message that this rank sends and receives.
  TensorView own_shard(TensorView whole) const;
  /// Waits for the message that a step needs and returns it; empty if it needs none.
  ConstTensorView receive(const Schedule& schedule, const Step& step);
  /// A buffer for the result of `step`; null if it sends none.
  Tensor* output_of(const Schedule& schedule, const Step& step);
  void finish(std::map<Message, Departure>::iterator departure);
  /// Ends the sends whose receipt `arrived` proves: before the step that made it, its sender had received everything
  /// that its steps need. On a GPU the host's time proves nothing: the host runs ahead.
  void finish_received(const Schedule& schedule, const Message& arrived);
  /// Adds the receive of the message that `step` needs, unless it is posted, and of all that its peer sends before it.
  /// With `ahead` it is added only if it can begin at once.
  void add_receives(const Schedule& schedule, const Step& step, bool ahead, Exchange& exchange);
  void add_send(const Schedule& schedule, const Step& step, Tensor* output, Exchange& exchange);
  void start(Exchange& exchange);
  /// Releases the buffer of a message that is no longer needed, if it was received.
  void release_message(const Message& message);

  Backend& backend_;
  Communicator& group_;
  Stage& stage_;
  ExchangeOptions options_;
  TraceRecorder* trace_ = nullptr;
  std::list<Tensor> buffers_;
  std::vector<Tensor*> free_;
  bool has_backward_ = false;                         // true if the schedule has backwards
  std::map<std::pair<bool, std::size_t>, int> runs_;  // runs of schedules, by has_backward_ and steps of this rank
  bool is_repeated_ = false;                          // true after the first runs of the schedule
  std::set<StepShape> shapes_run_;                    // shapes of the steps run so far
  // During a run: receives posted or arrived; sends in flight; the messages that each peer will send, in order.
  std::map<Message, Arrival> arrivals_;
  std::map<Message, Departure> departures_;
  std::vector<std::vector<Message>> incoming_;
  std::vector<std::size_t> posted_;
  std::vector<std::size_t> taken_;  // number of each peer's messages that the steps need, up to the present one
  std::map<Message, std::pair<int, std::size_t>> origins_;  // rank and step that send each message to this rank
  std::vector<std::size_t> received_steps_;  // steps of each rank whose messages are known to have arrived
  int sent_ = 0;
  bool rehearses_ = false;
  std::function<void()> before_backward_;
};

}  // namespace trireme::parallel

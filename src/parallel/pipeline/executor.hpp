#pragma once

#include <list>
#include <map>
#include <memory>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/pipeline/schedule.hpp"
#include "src/parallel/pipeline/stage.hpp"

namespace trireme::parallel {

/// Runs any schedule over one rank's stage and moves what passes between ranks. After each step it sends the result and
/// posts the receives of the next step as one group; it waits for a receive when its data is needed and for a send only
/// when the receiver is known to have it, so a schedule whose dependencies are sound cannot deadlock. Buffers are
/// allocated once and used again: at most two for each micro-batch in flight (what was received and what was sent), and
/// a few at work.
class PipelineExecutor {
 public:
  PipelineExecutor(Backend& backend, Communicator& pipeline_group, Stage& stage)
      : backend_(backend), group_(pipeline_group), stage_(stage) {}

  /// All steps of this rank. Collective over the pipeline group: all ranks run the same schedule.
  void run(const Schedule& schedule);

  /// Bytes of boundary buffers allocated so far.
  std::size_t buffer_bytes() const;

 private:
  struct Arrival {
    Tensor* buffer = nullptr;
    Work work;
  };
  struct Departure {
    Tensor* buffer = nullptr;
    Work work;
  };
  Tensor* take_buffer();
  void give_buffer(Tensor* buffer) { free_.push_back(buffer); }
  /// The message a step needs, once it has arrived; empty where it needs none.
  ConstTensorView receive(const Schedule& schedule, const Step& step);
  /// A buffer for what `step` makes; null where it makes nothing.
  Tensor* output_of(const Schedule& schedule, const Step& step);
  void finish(std::map<Message, Departure>::iterator departure);
  void run_step(const Step& step, ConstTensorView input, TensorView output);
  void communicate(const Schedule& schedule, const Step& step, Tensor* output, const Step* next);
  /// Gives back the buffer of a message that is no longer needed; nothing where none was received.
  void forget(const Message& message);

  Backend& backend_;
  Communicator& group_;
  Stage& stage_;
  std::list<Tensor> buffers_;
  std::vector<Tensor*> free_;
  bool has_backward_ = false;  // whether the schedule has backwards
  // During a run: messages posted or arrived, by what they are; sends under way; what each peer will send, in order.
  std::map<Message, Arrival> arrivals_;
  std::map<Message, Departure> departures_;
  std::vector<std::vector<Message>> incoming_;
  std::vector<std::size_t> posted_;
};

}  // namespace trireme::parallel

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/plan/cost/observed_backend.hpp"
#include "src/plan/work/work_event.hpp"

namespace trireme::plan {

/// Receives the events of a rank.
class Recorder final : public CallObserver {
 public:
  void begin(Stream&, const KernelCall& call) override {
    if (call.kind != KernelKind::inputs) events_.push_back({.kind = WorkEvent::Kind::kernel, .call = call});
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

  std::vector<WorkEvent> events_;
  int operations_ = 0;
};

/// Rank 0 of an otherwise non-existent group: records every operation and moves nothing.
class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(parallel::GroupKind kind, int size, Recorder& recorder)
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
  static double bytes_of(ConstTensorView data) { return static_cast<double>(data.size_bytes()); }

  parallel::GroupKind kind_;
  int size_;
  std::string name_;
  Recorder& recorder_;
};

}  // namespace trireme::plan

#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tests/fakes/forwarding_communicator.hpp"

namespace trireme::test {

/// Communicator that does nothing until a caller waits, so that a result used too early is the old one. All ranks must
/// wait in the same order.
class LazyCommunicator final : public ForwardingCommunicator {
 public:
  explicit LazyCommunicator(std::unique_ptr<Communicator> inner)
      : ForwardingCommunicator(*inner), inner_(std::move(inner)) {}
  Work all_reduce(Stream& stream, TensorView data, ReduceOp op) override {
    return later([=, this, &stream] { return inner_->all_reduce(stream, data, op); });
  }
  Work reduce_scatter(Stream& stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return later([=, this, &stream] { return inner_->reduce_scatter(stream, in, out, op); });
  }
  Work all_gather(Stream& stream, ConstTensorView in, TensorView out) override {
    return later([=, this, &stream] { return inner_->all_gather(stream, in, out); });
  }

 private:
  class State final : public Work::State {
   public:
    explicit State(std::function<Work()> start) : start_(std::move(start)) {}
    bool done() override { return false; }
    void wait(Stream& stream) override { start_().wait(stream); }

   private:
    std::function<Work()> start_;
  };
  static Work later(std::function<Work()> start) { return Work(std::make_unique<State>(std::move(start))); }

  std::unique_ptr<Communicator> inner_;
};

}  // namespace trireme::test

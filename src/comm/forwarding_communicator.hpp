#pragma once

#include <memory>
#include <utility>

#include "src/comm/communicator.hpp"

namespace trireme {

/// Communicator that forwards every operation to another, which must outlive it or is its own; base class for
/// decorators.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(*inner), owned_(std::move(inner)) {}
  ForwardingCommunicator& operator=(ForwardingCommunicator&&) = delete;  // an argument is wrapped, not copied
  /// Returns the communicator that was its own, and can no longer be used itself.
  std::unique_ptr<Communicator> take_inner() { return std::move(owned_); }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override {
    return inner_.all_reduce(stream, data, op);
  }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return inner_.reduce_scatter(stream, in, out, op);
  }
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override {
    return inner_.all_gather(stream, in, out);
  }
  Work broadcast(StreamPoint stream, TensorView data, int root) override {
    return inner_.broadcast(stream, data, root);
  }
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    return inner_.exchange(stream, transfers);
  }
  Work grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    return inner_.grouped_exchange(stream, transfers);
  }
  void barrier(const Caller& caller) override { inner_.barrier(caller); }
  Allocator& buffers(Allocator& memory) override { return inner_.buffers(memory); }
  std::unique_ptr<Communicator> split(int colour, int key, const std::string& name, GroupUse use) override {
    return inner_.split(colour, key, name, use);
  }

 private:
  Communicator& inner_;
  std::unique_ptr<Communicator> owned_;
};

}  // namespace trireme

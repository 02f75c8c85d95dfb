#pragma once

#include "src/comm/communicator.hpp"

namespace trireme {

/// Communicator for a rehearsal of a rank's memory. It has a rank and a size; every operation completes immediately
/// without moving data. It cannot be split.
class RehearsalCommunicator final : public Communicator {
 public:
  RehearsalCommunicator(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Work all_reduce(StreamPoint, TensorView, ReduceOp) override { return {}; }
  Work reduce_scatter(StreamPoint, ConstTensorView, TensorView, ReduceOp) override { return {}; }
  Work all_gather(StreamPoint, ConstTensorView, TensorView) override { return {}; }
  Work broadcast(StreamPoint, TensorView, int) override { return {}; }
  std::vector<Work> exchange(StreamPoint, std::span<const Transfer> transfers) override {
    return std::vector<Work>(transfers.size());
  }
  void barrier(const Caller&) override {}
  std::unique_ptr<Communicator> split(int, int, const std::string& name, GroupUse) override {
    throw ShapeError("making the group '" + name + "' failed: a rehearsal has no other ranks to exchange colours with");
  }

 private:
  int rank_;
  int size_;
  std::string name_;
};

}  // namespace trireme

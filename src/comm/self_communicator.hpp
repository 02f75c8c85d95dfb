#pragma once

#include <utility>

#include "src/comm/communicator.hpp"

namespace trireme {

/// The communicator of a group of one rank, for host memory: collectives copy or do nothing.
class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(std::string name = "self") : name_(std::move(name)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  Work all_reduce(Stream& stream, TensorView data, ReduceOp op) override;
  Work reduce_scatter(Stream& stream, ConstTensorView in, TensorView out, ReduceOp op) override;
  Work all_gather(Stream& stream, ConstTensorView in, TensorView out) override;
  Work broadcast(Stream& stream, TensorView data, int root) override;
  std::vector<Work> exchange(Stream& stream, std::span<const Transfer> transfers) override;
  void barrier() override {}
  std::unique_ptr<Communicator> split(int colour, int key, const std::string& name) override;

 private:
  std::string name_;
};

/// Returns sends and receives of an exchange in a group of one: the n-th send meets the n-th receive. Throws ShapeError
/// unless there are as many of each.
std::vector<std::pair<ConstTensorView, TensorView>> self_messages(std::span<const Transfer> transfers);

}  // namespace trireme

#pragma once

#include <functional>
#include <utility>

#include "src/comm/communicator.hpp"

namespace trireme {

/// The communicator of a group of one rank: collectives copy or do nothing.
class SelfCommunicator final : public Communicator {
 public:
  /// Enqueues out = in, of equal sizes, on `stream`.
  using Copy = std::function<void(Stream& stream, ConstTensorView in, TensorView out)>;

  /// `copy` handles non-host memory.
  explicit SelfCommunicator(std::string name = "self", Copy copy = copy_on_host)
      : name_(std::move(name)), copy_(std::move(copy)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override;
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override;
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override;
  Work broadcast(StreamPoint stream, TensorView data, int root) override;
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override;
  void barrier(const Caller& = Caller::current()) override {}
  std::unique_ptr<Communicator> split(int colour, int key, const std::string& name,
                                      GroupUse use = GroupUse::general) override;

 private:
  static void copy_on_host(Stream& stream, ConstTensorView in, TensorView out);
  void copy(Stream& stream, ConstTensorView in, TensorView out) const;

  std::string name_;
  Copy copy_;
};

}  // namespace trireme

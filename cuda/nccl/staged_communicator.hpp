#pragma once

#include "cuda/runtime/memory.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::cuda {

/// Collectives on GPU memory through pinned host memory and a communicator for host memory: several ranks may use one
/// GPU, which NCCL refuses. Slow: every operation makes the host wait until the GPU has reached it, and again until the
/// result is back. Sums are bitwise those of the communicator for host memory.
class StagedCommunicator final : public Communicator {
 public:
  /// `host` is used exclusively by this communicator.
  StagedCommunicator(std::shared_ptr<Device> device, std::shared_ptr<PinnedMemory> pinned,
                     std::unique_ptr<Communicator> host);

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override;
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override;
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override;
  Work broadcast(StreamPoint stream, TensorView data, int root) override;
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override;
  void barrier(const Caller& caller) override { host_->barrier(caller); }
  std::unique_ptr<Communicator> split(int colour, int key, const std::string& name, GroupUse use) override;

 private:
  /// Copy of a tensor in pinned memory.
  struct Staged {
    Buffer buffer;
    TensorView view;
  };
  class StagedWork;

  Staged allocate(ConstTensorView like);
  /// Enqueues the copy of `tensor` to pinned memory, after the work on `stream`.
  Staged copy_out(Stream& stream, ConstTensorView tensor);
  /// Communication `host` in flight, which keeps `in` and copies `out` to `result` at its end, if given.
  Work make_work(Work host, Staged out, TensorView result, Buffer in = {});
  /// Calls operation(in, out) on copies of the tensors in pinned memory.
  template <class Operation>
  Work stage(Stream& stream, ConstTensorView in, TensorView out, const Operation& operation);

  std::shared_ptr<Device> device_;
  std::shared_ptr<PinnedMemory> pinned_;
  std::unique_ptr<Communicator> host_;
  std::shared_ptr<CudaStream> copies_;
  ImmediateStream immediate_;
};

}  // namespace trireme::cuda

#include "cuda/nccl/staged_communicator.hpp"

#include <utility>

#include "cuda/runtime/stream.hpp"

namespace trireme::cuda {

/// Communication on the host, followed by the copy of its result, if any, to the GPU.
class StagedCommunicator::StagedWork final : public Work::State {
 public:
  StagedWork(std::shared_ptr<CudaStream> copies, Work host, Buffer in, Staged out, TensorView result)
      : copies_(std::move(copies)), in_(std::move(in)), out_(std::move(out)), host_(std::move(host)), result_(result) {}

  bool done() override {
    if (!host_.done()) return false;
    finish();
    return true;
  }
  void wait(Stream&) override { finish(); }

 private:
  void finish() {
    if (std::exchange(finished_, true)) return;
    ImmediateStream immediate;
    host_.wait(immediate);
    if (!result_) return;
    copy(*copies_, out_.view, result_);
    copies_->synchronize();  // the pinned memory is reused by other communication
  }

  std::shared_ptr<CudaStream> copies_;
  Buffer in_;
  Staged out_;
  Work host_;  // destroyed before the memory it uses
  TensorView result_;
  bool finished_ = false;
};

StagedCommunicator::StagedCommunicator(std::shared_ptr<Device> device, std::shared_ptr<PinnedMemory> pinned,
                                       std::unique_ptr<Communicator> host)
    : device_(std::move(device)),
      pinned_(std::move(pinned)),
      host_(std::move(host)),
      copies_(std::make_shared<CudaStream>(device_, CudaStream::Priority::high)) {}

StagedCommunicator::Staged StagedCommunicator::allocate(ConstTensorView like) {
  Staged staged{pinned_->allocate(like.size_bytes()), {}};
  staged.view = TensorView(staged.buffer.data(), like.dtype(), like.shape());
  return staged;
}

StagedCommunicator::Staged StagedCommunicator::copy_out(Stream& stream, ConstTensorView tensor) {
  copies_->wait(*stream.record());
  Staged staged = allocate(tensor);
  copy(*copies_, tensor, staged.view);
  return staged;
}

Work StagedCommunicator::make_work(Work host, Staged out, TensorView result, Buffer in) {
  return Work(std::make_unique<StagedWork>(copies_, std::move(host), std::move(in), std::move(out), result));
}

Work StagedCommunicator::all_reduce(StreamPoint stream, TensorView data, ReduceOp op) {
  Staged staged = copy_out(stream, data);
  copies_->synchronize();
  Work work = host_->all_reduce(immediate_, staged.view, op);
  return make_work(std::move(work), std::move(staged), data);
}

template <class Operation>
Work StagedCommunicator::stage(Stream& stream, ConstTensorView in, TensorView out, const Operation& operation) {
  Staged from = copy_out(stream, in);
  Staged to = allocate(out);
  copies_->synchronize();
  Work work = operation(from.view, to.view);
  return make_work(std::move(work), std::move(to), out, std::move(from.buffer));
}

Work StagedCommunicator::reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) {
  return stage(stream, in, out,
               [&](TensorView from, TensorView to) { return host_->reduce_scatter(immediate_, from, to, op); });
}

Work StagedCommunicator::all_gather(StreamPoint stream, ConstTensorView in, TensorView out) {
  return stage(stream, in, out,
               [&](TensorView from, TensorView to) { return host_->all_gather(immediate_, from, to); });
}

Work StagedCommunicator::broadcast(StreamPoint stream, TensorView data, int root) {
  const bool sends = root == rank();
  Staged staged = sends ? copy_out(stream, data) : allocate(data);
  // Needed for receives, too: earlier work on the stream may still use the tensor.
  copies_->wait(*stream->record());
  copies_->synchronize();
  Work work = host_->broadcast(immediate_, staged.view, root);
  return make_work(std::move(work), std::move(staged), sends ? TensorView() : data);
}

std::vector<Work> StagedCommunicator::exchange(StreamPoint stream, std::span<const Transfer> transfers) {
  copies_->wait(*stream->record());
  std::vector<Staged> staged;
  std::vector<Transfer> on_host(transfers.begin(), transfers.end());
  for (Transfer& transfer : on_host) {
    staged.push_back(allocate(transfer.data));
    if (transfer.direction == Transfer::Direction::send) copy(*copies_, transfer.data, staged.back().view);
    transfer.data = staged.back().view;
  }
  copies_->synchronize();
  std::vector<Work> host_works = host_->exchange(immediate_, on_host);
  std::vector<Work> works;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const bool receives = transfers[i].direction == Transfer::Direction::receive;
    works.push_back(
        make_work(std::move(host_works[i]), std::move(staged[i]), receives ? transfers[i].data : TensorView()));
  }
  return works;
}

std::unique_ptr<Communicator> StagedCommunicator::split(int colour, int key, const std::string& name, GroupUse use) {
  std::unique_ptr<Communicator> group = host_->split(colour, key, name, use);
  if (group == nullptr) return nullptr;
  return std::make_unique<StagedCommunicator>(device_, pinned_, std::move(group));
}

}  // namespace trireme::cuda

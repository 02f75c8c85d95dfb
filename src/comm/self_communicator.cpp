#include "src/comm/self_communicator.hpp"

#include <cstring>

namespace trireme {
namespace {

class WorkUntil final : public Work::State {
 public:
  explicit WorkUntil(std::unique_ptr<Event> end) : end_(std::move(end)) {}
  bool done() override { return end_->done(); }
  void wait(Stream& stream) override { stream.wait(*end_); }

 private:
  std::unique_ptr<Event> end_;
};

/// Work that completes with the current work on `stream`.
Work work_on(Stream& stream) { return Work(std::make_unique<WorkUntil>(stream.record())); }

}  // namespace

void SelfCommunicator::copy_on_host(Stream&, ConstTensorView in, TensorView out) {
  std::memcpy(out.data(), in.data(), in.size_bytes());
}

void SelfCommunicator::copy(Stream& stream, ConstTensorView in, TensorView out) const {
  TRIREME_CHECK(in.size_bytes() == out.size_bytes(), ShapeError, "a group of one copies {} bytes into {}",
                in.size_bytes(), out.size_bytes());
  if (in.data() != out.data()) copy_(stream, in, out);
}

Work SelfCommunicator::all_reduce(StreamPoint, TensorView, ReduceOp) { return {}; }
Work SelfCommunicator::reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp) {
  copy(stream, in, out);
  return work_on(stream);
}
Work SelfCommunicator::all_gather(StreamPoint stream, ConstTensorView in, TensorView out) {
  copy(stream, in, out);
  return work_on(stream);
}
Work SelfCommunicator::broadcast(StreamPoint, TensorView, int) { return {}; }

std::vector<Work> SelfCommunicator::exchange(StreamPoint stream, std::span<const Transfer> transfers) {
  std::vector<const Transfer*> sends;
  std::vector<const Transfer*> receives;
  for (const Transfer& transfer : transfers) {
    (transfer.direction == Transfer::Direction::send ? sends : receives).push_back(&transfer);
  }
  TRIREME_CHECK(sends.size() == receives.size(), ShapeError,
                "a group of one has {} sends and {} receives in one exchange", sends.size(), receives.size());
  for (std::size_t i = 0; i < sends.size(); ++i) copy(stream, sends[i]->data, receives[i]->data);
  std::vector<Work> works;
  for (std::size_t i = 0; i < transfers.size(); ++i) works.push_back(work_on(stream));
  return works;
}

std::unique_ptr<Communicator> SelfCommunicator::split(int colour, int, const std::string& name, GroupUse) {
  if (colour < 0) return nullptr;
  return std::make_unique<SelfCommunicator>(name, copy_);
}

}  // namespace trireme

#include "src/comm/self_communicator.hpp"

#include <cstring>

namespace trireme {
namespace {
Work copy(ConstTensorView in, TensorView out) {
  TRIREME_CHECK(in.size_bytes() == out.size_bytes(), ShapeError, "a group of one copies {} bytes into {}",
                in.size_bytes(), out.size_bytes());
  if (in.data() != out.data()) std::memcpy(out.data(), in.data(), in.size_bytes());
  return {};
}
}  // namespace

Work SelfCommunicator::all_reduce(Stream&, TensorView, ReduceOp) { return {}; }
Work SelfCommunicator::reduce_scatter(Stream&, ConstTensorView in, TensorView out, ReduceOp) { return copy(in, out); }
Work SelfCommunicator::all_gather(Stream&, ConstTensorView in, TensorView out) { return copy(in, out); }
Work SelfCommunicator::broadcast(Stream&, TensorView, int) { return {}; }

std::vector<Work> SelfCommunicator::exchange(Stream&, std::span<const Transfer> transfers) {
  for (const auto& [sent, received] : self_messages(transfers)) copy(sent, received);
  return std::vector<Work>(transfers.size());
}

std::vector<std::pair<ConstTensorView, TensorView>> self_messages(std::span<const Transfer> transfers) {
  std::vector<const Transfer*> sends;
  std::vector<const Transfer*> receives;
  for (const Transfer& transfer : transfers) {
    (transfer.direction == Transfer::Direction::send ? sends : receives).push_back(&transfer);
  }
  TRIREME_CHECK(sends.size() == receives.size(), ShapeError,
                "a group of one has {} sends and {} receives in one exchange", sends.size(), receives.size());
  std::vector<std::pair<ConstTensorView, TensorView>> messages;
  for (std::size_t i = 0; i < sends.size(); ++i) messages.emplace_back(sends[i]->data, receives[i]->data);
  return messages;
}

std::unique_ptr<Communicator> SelfCommunicator::split(int colour, int, const std::string& name) {
  if (colour < 0) return nullptr;
  return std::make_unique<SelfCommunicator>(name);
}

}  // namespace trireme

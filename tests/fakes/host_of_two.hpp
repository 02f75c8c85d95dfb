#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "src/comm/forwarding_communicator.hpp"
#include "src/comm/self_communicator.hpp"

namespace trireme::test {

/// First of two ranks, for host memory. The other contributes the same data, from another machine or the same.
class HostOfTwo final : public ForwardingCommunicator {
 public:
  explicit HostOfTwo(std::string name, bool other_machine = true)
      : ForwardingCommunicator(self_), self_(std::move(name)), other_machine_(other_machine) {}
  int size() const override { return 2; }
  Work all_gather(StreamPoint, ConstTensorView in, TensorView out) override {
    for (int rank = 0; rank < 2; ++rank) std::memcpy(out.data() + rank * in.size_bytes(), in.data(), in.size_bytes());
    if (in.dtype() != DType::uint8) return {};
    // A text begins with the machine's name; the GPU's is in the second line.
    std::byte* const begin = out.data() + in.size_bytes();
    std::byte* const end = begin + in.size_bytes();
    std::byte* const changed = other_machine_ ? begin : std::find(begin, end, std::byte{'\n'}) + 1;
    if (changed < end) *changed = std::byte{'X'};
    return {};
  }
  /// Colour of a group of only this rank.
  static constexpr int alone = 9;
  std::unique_ptr<Communicator> split(int colour, int, const std::string& name, GroupUse) override {
    if (colour < 0) return nullptr;
    if (colour == alone) return std::make_unique<SelfCommunicator>(name);
    return std::make_unique<HostOfTwo>(name, other_machine_);
  }

 private:
  SelfCommunicator self_;
  bool other_machine_;
};

}  // namespace trireme::test

#pragma once

#include <string>
#include <vector>

#include "src/comm/forwarding_communicator.hpp"

namespace trireme::test {

/// Communicator that records its exchanges, in terms of the neighbours in a ring.
class RecordingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    std::string text;
    for (const Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::send;
      const bool next = transfer.peer == (rank() + 1) % size();
      text += std::string(sends ? " send " : " receive ") + (next ? "next" : "previous");
      if (sends) bytes_sent += transfer.data.size_bytes();
    }
    exchanges.push_back(text);
    return ForwardingCommunicator::exchange(stream, transfers);
  }
  std::vector<std::string> exchanges;  // "receive previous send next"
  std::size_t bytes_sent = 0;
};

}  // namespace trireme::test

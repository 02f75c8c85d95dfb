#pragma once

#include <nccl.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/fakes/nccl/fake_nccl.hpp"
#include "tests/fakes/nccl/rules.hpp"

namespace fake_nccl {

/// Copies of what an operation sends and receives, while it runs.
struct Message {
  std::vector<std::byte> mine, others;
  std::vector<CallText> calls;  // by rank
};

/// An operation as the ranks must agree on it; `peer` -1: all of them.
struct Operation {
  const char* function;
  std::size_t count;
  ncclDataType_t type;
  std::string operand = "";
  int peer = -1;
  bool sends = false;
};

/// A collective, or a message. `bytes` are named in the log.
struct Part {
  Operation operation;
  std::size_t bytes;
  std::function<Ranks::Done(Ranks&, Message&)> start;
  std::function<void(const Message&)> finish;
};
using Parts = std::vector<Part>;

/// Polls each once more. Returns whether all are done; these are removed.
bool poll(std::vector<Ranks::Done>& open);

/// Parts that run together.
class Running {
 public:
  explicit Running(Parts parts) : parts_(std::move(parts)) {}
  /// Begins to compare the calls of the ranks.
  void begin(Ranks& ranks, bool captured);
  /// Starts the parts when the ranks have found that they make the same calls. Otherwise they never start, and
  /// `refuse` receives the function and the broken rule. Returns whether all parts are done.
  bool done(Ranks& ranks, const std::function<void(const char* function, const std::string& rule)>& refuse);
  void finish() const;

 private:
  Parts parts_;
  std::vector<Message> messages_;  // one for each part
  std::vector<Ranks::Done> open_;
  bool agreed_ = false;
};

}  // namespace fake_nccl

#include "tests/fakes/nccl/operations.hpp"

#include <utility>

namespace fake_nccl {
namespace {

/// Begins to exchange the call of an operation with those of the participating ranks.
void exchange_calls(Ranks& ranks, const Operation& operation, bool captured, Message& message,
                    std::vector<Ranks::Done>& open) {
  const bool all = operation.peer < 0;
  const CallText mine = fake_nccl::call_text(all ? operation.function : "a message", operation.count, operation.type,
                                             operation.operand, captured);
  message.calls.assign(static_cast<std::size_t>(ranks.size()) + 1, CallText{});
  const auto bytes_of = [&](int rank) {
    return reinterpret_cast<std::byte*>(message.calls[static_cast<std::size_t>(rank)].data());
  };
  message.calls.back() = mine;
  const std::byte* const sent = bytes_of(ranks.size());
  if (all) return open.push_back(ranks.all_gather(sent, bytes_of(0), sizeof mine));
  message.calls[static_cast<std::size_t>(ranks.rank())] = mine;
  auto to_peer = Ranks::Channel::call_of_sender, from_peer = Ranks::Channel::call_of_receiver;
  if (!operation.sends) std::swap(to_peer, from_peer);
  open.push_back(ranks.send(sent, sizeof mine, operation.peer, to_peer));
  open.push_back(ranks.receive(bytes_of(operation.peer), sizeof mine, operation.peer, from_peer));
}

}  // namespace

bool poll(std::vector<Ranks::Done>& open) {
  std::erase_if(open, [](Ranks::Done& done) { return done(); });
  return open.empty();
}

void Running::begin(Ranks& ranks, bool captured) {
  messages_.assign(parts_.size(), {});
  open_.clear();
  agreed_ = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    exchange_calls(ranks, parts_[i].operation, captured, messages_[i], open_);
  }
}

bool Running::done(Ranks& ranks, const std::function<void(const char*, const std::string&)>& refuse) {
  if (!poll(open_) || agreed_) return open_.empty();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    messages_[i].calls.resize(static_cast<std::size_t>(ranks.size()));
    if (const std::string problem = problem_of(messages_[i].calls); !problem.empty()) {
      refuse(parts_[i].operation.function, problem);
      return false;
    }
  }
  agreed_ = true;
  // Only now, so that the messages between two ranks begin in the same order on both.
  for (std::size_t i = 0; i < parts_.size(); ++i) open_.push_back(parts_[i].start(ranks, messages_[i]));
  return poll(open_);
}

void Running::finish() const {
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].finish(messages_[i]);
}

}  // namespace fake_nccl

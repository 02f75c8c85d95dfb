#pragma once

#include <nccl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/fakes/nccl/fake_nccl.hpp"

// Rules of NCCL that a program can break, with the section of its user guide (2.30) that states each. Every text names
// the call and the rule.

namespace fake_nccl {

/// An operation's memory. `from` or `to` may be the larger.
struct Buffers {
  const void* from;
  std::size_t from_bytes;
  const void* to;
  std::size_t to_bytes;
};
/// Returns the rule that the buffers of `rank` break; empty: none.
std::string problem_of(const Buffers& buffers, int rank);

/// Returns the rule that a configuration breaks; empty: none.
std::string problem_of(const ncclConfig_t& config);

/// The part of a call in which all ranks must agree: "ncclAllReduce of 4 float32, sum, captured".
using CallText = std::array<char, 120>;
CallText call_text(const char* function, std::size_t count, ncclDataType_t type, const std::string& operand,
                   bool captured);
std::string name_of(ncclRedOp_t op);

/// Returns the rule that ranks with these calls break; empty: none. Ranks without a text do not exist.
std::string problem_of(const std::vector<CallText>& calls);

/// A collective: number of its communicator, the same on all ranks, and number among the communicator's collectives.
using Call = std::array<int, 2>;
/// Returns the rule that the orders of calls on the ranks break together; empty: none.
std::string problem_of(const std::vector<std::vector<Call>>& ranks);
/// Ends the process if the calls of all ranks of `world` break it. Collective.
void abort_unless_ordered(Ranks& world, std::vector<Call> mine);

/// A thread within a call. "Thread Safety": one calls at a time, on all communicators of a device.
class Caller {
 public:
  Caller() : alone_(count()++ == 0) {}
  ~Caller() { --count(); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  bool is_alone() const { return alone_; }
  static std::atomic<int>& count() {
    static std::atomic<int> the_count = 0;
    return the_count;
  }

 private:
  bool alone_;
};

/// The number that rank 0 of the group gives. Collective.
int number_of_first(Ranks& ranks, int mine);

}  // namespace fake_nccl

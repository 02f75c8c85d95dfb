#pragma once

#include <nccl.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

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

/// A call, in the terms in which all ranks must agree: "ncclAllReduce of 4 float32, sum, captured".
using CallText = std::array<char, 120>;
CallText call_text(const char* function, std::size_t count, ncclDataType_t type, const std::string& operand,
                   bool captured);
std::string name_of(ncclRedOp_t op);

/// Returns the rule that ranks with these calls break; empty: none. Ranks without a text do not exist.
std::string problem_of(const std::vector<CallText>& calls);

}  // namespace fake_nccl

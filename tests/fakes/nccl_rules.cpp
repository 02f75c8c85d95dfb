#include "tests/fakes/nccl_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/fakes/fake_cuda.hpp"

namespace fake_nccl {
namespace {

std::string name_of(ncclDataType_t type) {
  constexpr std::array names = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                "uint64", "float16", "float32", "float64", "bfloat16"};
  return names.at(static_cast<std::size_t>(type));
}

}  // namespace

std::string problem_of(const Buffers& buffers, int rank) {
  for (const void* pointer : {buffers.from, buffers.to}) {
    // "Data Pointers": any pointers that are accessible from the CUDA device.
    if (pointer == nullptr || !fake_cuda::gpu_may_touch(pointer)) return "a buffer is not the GPU's memory";
  }
  const auto *from = static_cast<const std::byte*>(buffers.from), *to = static_cast<const std::byte*>(buffers.to);
  if (from + buffers.from_bytes <= to || to + buffers.to_bytes <= from) return "";
  // "In-place Operations": the same address, or the rank's offset in the larger buffer. No other overlap is documented.
  const std::size_t offset = static_cast<std::size_t>(rank) * std::min(buffers.from_bytes, buffers.to_bytes);
  const bool in_place = buffers.from_bytes == buffers.to_bytes  ? from == to
                        : buffers.from_bytes < buffers.to_bytes ? from == to + offset
                                                                : to == from + offset;
  return in_place ? "" : "the buffers overlap, but not as those of an operation in place";
}

std::string problem_of(const ncclConfig_t& config) {
  const auto within = [](int value, int least, int most) {
    return value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most);
  };
  // "ncclConfig_t".
  if (!within(config.cgaClusterSize, 0, 8)) return "cgaClusterSize is not between 0 and 8";
  if (!within(config.minCTAs, 1, 32) || !within(config.maxCTAs, 1, 32)) return "a number of CTAs is not from 1 to 32";
  return "";
}

CallText call_text(const char* function, std::size_t count, ncclDataType_t type, const std::string& operand,
                   bool captured) {
  const std::string text =
      fmt::format("{} of {} {}{}{}", function, count, name_of(type), operand, captured ? ", captured" : "");
  CallText call{};
  std::copy_n(text.begin(), std::min(text.size(), call.size() - 1), call.begin());
  return call;
}

std::string name_of(ncclRedOp_t op) { return op == ncclSum ? ", sum" : op == ncclMax ? ", maximum" : ", another"; }

std::string problem_of(const std::vector<CallText>& calls) {
  const auto first = std::ranges::find_if(calls, [](const CallText& call) { return call[0] != 0; });
  const auto other =
      std::find_if(first, calls.end(), [&](const CallText& call) { return call[0] != 0 && call != *first; });
  if (other == calls.end()) return "";
  const auto is_captured = [](const CallText& call) { return std::string(call.data()).ends_with(", captured"); };
  // "Collective Operations", "Group Operation Ordering Semantics", "Point-to-point communication"; and "Using NCCL with
  // CUDA Graphs", "Requirements and Limitations".
  const char* rule = is_captured(*first) != is_captured(*other) ? "all ranks capture an operation, or none"
                                                                : "all ranks make the same calls in the same order";
  return fmt::format("{}; rank {}: {}; rank {}: {}", rule, first - calls.begin(), first->data(), other - calls.begin(),
                     other->data());
}

}  // namespace fake_nccl

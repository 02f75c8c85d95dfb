#include "tests/fakes/nccl/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "tests/fakes/fake_cuda.hpp"

namespace fake_nccl {
namespace {

std::string name_of(ncclDataType_t type) {
  constexpr std::array names = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                "uint64", "float16", "float32", "float64", "bfloat16"};
  return names.at(static_cast<std::size_t>(type));
}

/// The values of all ranks, in rank order.
template <class T>
std::vector<T> gather(Ranks& ranks, const std::vector<T>& mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  const std::size_t bytes = mine.size() * sizeof(T);
  const Ranks::Done done = ranks.all_gather(reinterpret_cast<const std::byte*>(mine.data()),
                                            reinterpret_cast<std::byte*>(all.data()), bytes);
  while (!done()) std::this_thread::yield();
  return all;
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

std::string problem_of(const std::vector<std::vector<Call>>& ranks) {
  struct Node {
    int before = 0;  // calls that must precede it
    std::vector<Call> after;
  };
  std::map<Call, Node> open;
  for (const std::vector<Call>& calls : ranks) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      open.try_emplace(calls[i]);
      if (i == 0) continue;
      open[calls[i - 1]].after.push_back(calls[i]);
      ++open[calls[i]].before;
    }
  }
  std::vector<Call> ready;
  for (const auto& [call, node] : open) {
    if (node.before == 0) ready.push_back(call);
  }
  while (!ready.empty()) {
    const auto node = open.extract(ready.back());
    ready.pop_back();
    for (const Call& next : node.mapped().after) {
      if (--open[next].before == 0) ready.push_back(next);
    }
  }
  if (open.empty()) return "";
  // "Using multiple NCCL communicators concurrently".
  std::string text = "the order of calls on different communicators matches for all ranks";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto first = std::ranges::find_if(ranks[rank], [&](const Call& call) { return open.contains(call); });
    if (first == ranks[rank].end()) continue;
    text += fmt::format("; rank {}: collective {} of communicator {} comes first", rank, (*first)[1], (*first)[0]);
  }
  return text;
}

void abort_unless_ordered(Ranks& world, std::vector<Call> mine) {
  const std::vector<std::size_t> sizes = gather(world, std::vector{mine.size()});
  const std::size_t longest = *std::ranges::max_element(sizes);
  mine.resize(longest);
  const std::vector<Call> all = gather(world, mine);
  std::vector<std::vector<Call>> ranks;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
    ranks.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(sizes[rank]));
  }
  const std::string problem = problem_of(ranks);
  if (problem.empty()) return;
  std::fprintf(stderr, "NCCL may hang: %s\n", problem.c_str());
  std::abort();
}

int number_of_first(Ranks& ranks, int mine) { return gather(ranks, std::vector{mine}).front(); }

}  // namespace fake_nccl

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace fake_nccl {

/// Memory that ncclMemAlloc made and buffers registered in it. A function returns the rule that a call breaks; empty:
/// none. Sections of the user guide (2.30) state them.
class Registrations {
 public:
  void add_memory(const void* data, std::size_t bytes) { memory_[address(data)] = bytes; }
  /// "User Buffer Registration": a buffer is deregistered before it is freed.
  std::string remove_memory(const void* data) {
    if (memory_.erase(address(data)) == 0) return "ncclMemAlloc did not make the memory";
    for (const auto& [number, buffer] : buffers_) {
      if (buffer.begin == address(data)) return "a communicator still has the memory registered";
    }
    return "";
  }

  /// "Window Registration": memory of ncclMemAlloc; address and size of a window are multiples of 4096.
  std::string problem_of(const void* data, std::size_t bytes, bool is_window) const {
    const auto found = memory_.find(address(data));
    if (found == memory_.end() || found->second < bytes) return "the buffer is not one of ncclMemAlloc";
    constexpr std::size_t page = 4096;
    return is_window && bytes % page != 0 ? "the size of a window is not a multiple of 4096" : "";
  }
  std::uintptr_t add(const void* comm, const void* data, std::size_t bytes) {
    buffers_[++last_] = {comm, address(data), bytes};
    return last_;
  }
  std::string remove(const void* comm, std::uintptr_t number) {
    const auto found = buffers_.find(number);
    if (found == buffers_.end() || found->second.comm != comm) return "the communicator has no such registration";
    buffers_.erase(found);
    return "";
  }
  bool has(const void* comm, const void* data, std::size_t bytes) const {
    for (const auto& [number, buffer] : buffers_) {
      if (buffer.comm == comm && address(data) >= buffer.begin && address(data) + bytes <= buffer.begin + buffer.bytes)
        return true;
    }
    return false;
  }
  bool has_any(const void* comm) const {
    for (const auto& [number, buffer] : buffers_) {
      if (buffer.comm == comm) return true;
    }
    return false;
  }
  /// An aborted communicator forgets its own.
  void forget(const void* comm) {
    std::erase_if(buffers_, [&](const auto& entry) { return entry.second.comm == comm; });
  }

 private:
  struct Registered {
    const void* comm;
    std::uintptr_t begin;
    std::size_t bytes;
  };
  static std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

  std::map<std::uintptr_t, std::size_t> memory_;  // sizes by address
  std::map<std::uintptr_t, Registered> buffers_;
  std::uintptr_t last_ = 0;
};

}  // namespace fake_nccl

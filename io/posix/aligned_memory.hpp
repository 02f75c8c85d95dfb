#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace trireme::io {

/// Alignment of positions, sizes and memory for direct access: at least the size of a device's blocks.
inline constexpr std::int64_t direct_alignment_bytes = 4096;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeMemory>;

/// Memory for direct access; `size_bytes` is a multiple of the alignment. Throws std::bad_alloc.
inline AlignedMemory aligned_memory(std::int64_t size_bytes) {
  AlignedMemory memory(
      static_cast<std::byte*>(std::aligned_alloc(direct_alignment_bytes, static_cast<std::size_t>(size_bytes))));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace trireme::io

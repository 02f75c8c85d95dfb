#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace trireme::io {

/// Alignment of offsets, sizes and memory for direct I/O: at least a device's block size.
inline constexpr std::int64_t direct_alignment_bytes = 4096;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeMemory>;

/// Allocates memory for direct I/O; `size_bytes` must be a multiple of the alignment. Throws std::bad_alloc.
inline AlignedMemory aligned_memory(std::int64_t size_bytes) {
  AlignedMemory memory(
      static_cast<std::byte*>(std::aligned_alloc(direct_alignment_bytes, static_cast<std::size_t>(size_bytes))));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace trireme::io

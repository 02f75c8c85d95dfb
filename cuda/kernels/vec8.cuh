#pragma once

#include <gpu/device.cuh>

namespace trireme::cuda {

// Memory-bound kernels assign each thread eight neighbouring elements: one or more 16-byte accesses, and the columns of
// one Philox call.
constexpr int block_threads = 256;

/// Number of Vec8s that hold n elements.
__host__ __device__ constexpr std::int64_t vec8s_of(std::int64_t n) { return (n + 7) / 8; }
/// Blocks that give each of `items` a thread.
__host__ __device__ constexpr std::int64_t blocks_for(std::int64_t items) {
  return (items + block_threads - 1) / block_threads;
}

__device__ inline std::int64_t global_thread() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

/// Elements [begin, begin + size) of a row, or of an entire tensor, processed by one thread.
struct Vec8 {
  std::int64_t begin;
  int size;  ///< 8 except at the end, where it may be 0 or less: nothing
};
__device__ inline Vec8 vec8_at(std::int64_t vec8, std::int64_t n) {
  const std::int64_t rest = n - 8 * vec8;
  return {8 * vec8, rest < 8 ? static_cast<int>(rest) : 8};
}

template <class T>
struct alignas(16) SixteenBytes {
  T elements[16 / sizeof(T)];
};

template <class T>
__device__ bool is_aligned(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// to[c] = from[c] for c < size; the rest of `to` is left.
template <class T>
__device__ void load_raw(const T* from, int size, T (&to)[8]) {
  if (size == 8 && is_aligned(from)) {
    constexpr int each = 16 / sizeof(T);
    for (int access = 0; access < 8 / each; ++access) {
      const auto piece = reinterpret_cast<const SixteenBytes<T>*>(from)[access];
      for (int c = 0; c < each; ++c) to[access * each + c] = piece.elements[c];
    }
  } else {
    for (int c = 0; c < 8; ++c) {
      if (c < size) to[c] = from[c];
    }
  }
}
template <class T>
__device__ void store_raw(const T (&from)[8], int size, T* to) {
  if (size == 8 && is_aligned(to)) {
    constexpr int each = 16 / sizeof(T);
    for (int access = 0; access < 8 / each; ++access) {
      SixteenBytes<T> piece;
      for (int c = 0; c < each; ++c) piece.elements[c] = from[access * each + c];
      gpu::store_whole(piece, to + access * each);
    }
  } else {
    for (int c = 0; c < 8; ++c) {
      if (c < size) to[c] = from[c];
    }
  }
}

/// Loads elements in the accumulation type; 0 from `size` on.
template <class T>
__device__ void load(const T* from, int size, Accumulation<T> (&to)[8]) {
  T raw[8]{};
  load_raw(from, size, raw);
  for (int c = 0; c < 8; ++c) to[c] = gpu::widen(raw[c]);
}
/// store_raw of numbers rounded to T.
template <class T>
__device__ void store(const Accumulation<T> (&from)[8], int size, T* to) {
  T raw[8];
  for (int c = 0; c < 8; ++c) raw[c] = gpu::narrow<T>(from[c]);
  store_raw(raw, size, to);
}

/// Eight elements held by a thread in memory format: two 16-bit elements per register, whereas the compiler gives each
/// array element its own. They are in flight between `load` and `unpack`. Load several before unpacking the first: the
/// compiler does not move loads before the wait of an unpack.
template <class T>
class PackedVec8 {
 public:
  PackedVec8() = default;
  __device__ PackedVec8(const T* from, int size) { load(from, size); }
  /// 0 from `size` on.
  __device__ void load(const T* from, int size) {
    if (size == 8 && is_aligned(from)) {
      constexpr int each = 16 / sizeof(Stored);
      for (int access = 0; access < count / each; ++access) {
        const auto piece = reinterpret_cast<const SixteenBytes<Stored>*>(from)[access];
        for (int i = 0; i < each; ++i) stored_[access * each + i] = piece.elements[i];
      }
    } else {
      T raw[8]{};
      for (int c = 0; c < 8; ++c) {
        if (c < size) raw[c] = from[c];
      }
      pack(raw);
    }
  }
  __device__ void pack(const T (&from)[8]) {
    if constexpr (pairs) {
      for (int i = 0; i < count; ++i) stored_[i] = from[2 * i].bits | std::uint32_t{from[2 * i + 1].bits} << 16;
    } else {
      for (int i = 0; i < count; ++i) stored_[i] = from[i];
    }
  }
  __device__ void unpack(Accumulation<T> (&to)[8]) const {
    if constexpr (pairs) {
      for (int i = 0; i < count; ++i) {
        // Otherwise the compiler would keep the unpacked values in registers.
        const std::uint32_t pair = gpu::forgotten(stored_[i]);
        T low, high;
        low.bits = static_cast<std::uint16_t>(pair);
        high.bits = static_cast<std::uint16_t>(pair >> 16);
        to[2 * i] = gpu::widen(low);
        to[2 * i + 1] = gpu::widen(high);
      }
    } else {
      for (int i = 0; i < count; ++i) to[i] = stored_[i];
    }
  }

 private:
  static constexpr bool pairs = sizeof(T) == 2;
  static constexpr int count = pairs ? 4 : 8;
  using Stored = std::conditional_t<pairs, std::uint32_t, T>;
  Stored stored_[count]{};
};

/// Columns [8 vec8, 8 vec8 + 8) of a row of a matrix with h of them.
template <class T>
__device__ PackedVec8<T> load_vec8(const T* matrix, std::int64_t h, std::int64_t row, std::int64_t vec8) {
  const Vec8 columns = vec8_at(vec8, h);
  return {matrix + row * h + columns.begin, columns.size};
}

}  // namespace trireme::cuda

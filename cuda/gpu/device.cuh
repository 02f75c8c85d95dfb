#pragma once

// Device functions beyond CUDA's own language. Kernels include no other header of this kind. Tests substitute a version
// that runs kernels on the host, via the include path.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <type_traits>

#include "cuda/runtime/launch.hpp"
#include "src/backend/kernels/fp8.hpp"
#include "src/tensor/dtype.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::gpu {

/// fp64 kernels are compiled for the host only.
constexpr bool fp64_kernels = false;

/// Enqueues the kernel; no-op without blocks. Throws CudaError, and ConfigError as check_launch does.
template <class... Parameters>
void launch(Stream& stream, const Launch& launch, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  if (launch.blocks == 0) return;
  const cudaStream_t on = cuda::prepare_launch(stream, launch, reinterpret_cast<const void*>(kernel));
  kernel<<<static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.threads), launch.shared_bytes, on>>>(
      arguments...);
  cuda::finish_launch(stream, launch);
}

/// Static shared memory of the block, uninitialised: one S per type.
template <class S>
__device__ __forceinline__ S& shared() {
  __shared__ __align__(16) unsigned char memory[sizeof(S)];
  return *reinterpret_cast<S*>(memory);
}
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char dynamic_memory[];
  return reinterpret_cast<T*>(dynamic_memory);
}

/// Returns the same number, opaque to the compiler.
template <class T>
__device__ __forceinline__ T forgotten(T x) {
  if constexpr (sizeof(T) == 4)
    asm volatile("" : "+r"(x));
  else
    asm volatile("" : "+l"(x));
  return x;
}

/// to = bytes, aligned to 16, in one store: the compiler may split stores of other types than numbers.
template <class SixteenBytes>
__device__ __forceinline__ void store_whole(const SixteenBytes& bytes, void* to) {
  struct Words {
    std::uint32_t of[4];
  };
  const auto words = std::bit_cast<Words>(bytes);
  const std::uint64_t low = words.of[0] | std::uint64_t{words.of[1]} << 32;
  const std::uint64_t high = words.of[2] | std::uint64_t{words.of[3]} << 32;
  *static_cast<unsigned __int128*>(to) = static_cast<unsigned __int128>(high) << 64 | low;
}

/// a b in one instruction: the compiler uses two for a product of two widened numbers.
__device__ __forceinline__ std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) {
  std::uint64_t product;
  asm("mul.wide.u32 %0,%1,%2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

/// Selects four bytes of the eight of `low` (0 to 3) and `high` (4 to 7). Bits 0 to 2 of nibble i of `selector` name
/// the source of byte i. Where bit 3 is set, byte i is eight copies of the source's sign.
__device__ __forceinline__ std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint32_t bytes;
  asm("prmt.b32 %0,%1,%2,%3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

/// *to = max(*to, value), together with other threads and blocks.
__device__ __forceinline__ void atomic_max(std::uint64_t* to, std::uint64_t value) {
  asm volatile("red.global.max.u64 [%0],%1;" : : "l"(to), "l"(value) : "memory");
}

/// Returns the bytes of two numbers rounded to FP8, that of `low` in the lower half.
template <Fp8Format format>
__device__ __forceinline__ std::uint16_t fp8_codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t codes;
  if constexpr (format == Fp8Format::e4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;" : "=h"(codes) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0,%1,%2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  const int upper = fp8_code(round_to_fp8(high, format), format);
  return static_cast<std::uint16_t>(upper << 8 | fp8_code(round_to_fp8(low, format), format));
#endif
}

template <class T>
__device__ __forceinline__ Accumulation<T> widen(T x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __bfloat162float(__ushort_as_bfloat16(x.bits));
  } else if constexpr (std::is_same_v<T, fp16>) {
    return __half2float(__ushort_as_half(x.bits));
  } else {
    return x;
  }
}
/// Rounds to nearest, ties to even.
template <class T>
__device__ __forceinline__ T narrow(Accumulation<T> x) {
  if constexpr (std::is_same_v<T, bf16>) {
    T rounded;
    rounded.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    return rounded;
  } else if constexpr (std::is_same_v<T, fp16>) {
    T rounded;
    rounded.bits = __half_as_ushort(__float2half_rn(x));
    return rounded;
  } else {
    return x;
  }
}

}  // namespace trireme::gpu

#pragma once

// Device functions for kernels on the host: the counterpart of cuda/gpu/device.cuh, found on another include path.

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "src/backend/kernels/fp8.hpp"
#include "src/tensor/dtype.hpp"
#include "src/tensor/memory.hpp"
#include "src/tensor/stream.hpp"
#include "tests/support/gpu/fibers.hpp"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

namespace trireme::gpu {

constexpr bool fp64_kernels = true;

namespace host {

struct Anything {
  template <class T>
  operator T() const;
};
/// How many members an aggregate has.
template <class T, class... Initialisers>
consteval int members() {
  if constexpr (requires { T{Initialisers{}..., Anything{}}; }) {
    return members<T, Initialisers..., Anything>();
  } else {
    return sizeof...(Initialisers);
  }
}
#define TRIREME_MEMBERS(count, ...)       \
  if constexpr (members<T>() == count) {  \
    const auto& [__VA_ARGS__] = argument; \
    return function(__VA_ARGS__);         \
  } else
/// Calls `function` with all members of an aggregate.
template <class T, class Function>
void with_members(const T& argument, Function&& function) {
  TRIREME_MEMBERS(1, a)
  TRIREME_MEMBERS(2, a, b)
  TRIREME_MEMBERS(3, a, b, c)
  TRIREME_MEMBERS(4, a, b, c, d)
  TRIREME_MEMBERS(5, a, b, c, d, e)
  TRIREME_MEMBERS(6, a, b, c, d, e, f)
  TRIREME_MEMBERS(7, a, b, c, d, e, f, g)
  TRIREME_MEMBERS(19, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s)
  static_assert(members<T>() == 0, "add a line above");
}
#undef TRIREME_MEMBERS

/// Throws if a kernel is given a pointer to memory that kernels must not access, in a structure of any depth. Of
/// classes with constructors those of dropout and of tensor views hold pointers.
template <class T>
void check_argument(const Launch& launch, const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    check_memory(launch, argument);
  } else if constexpr (requires { argument.data(); }) {
    check_memory(launch, argument.data());
  } else if constexpr (requires { argument.samples; }) {
    if (argument.enabled()) check_memory(launch, argument.samples);
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    with_members(argument, [&](const auto&... member) { (check_argument(launch, member), ...); });
  }
}
}  // namespace host

/// Starts the kernel: see host::set_starter. Does nothing without blocks. Throws as the real one does.
template <class... Parameters>
void launch(Stream& stream, const Launch& launch, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  if (launch.blocks == 0) return;
  (host::check_argument(launch, arguments), ...);
  host::start(stream, launch, [=] { kernel(arguments...); });
}

/// The block's own S, uninitialised: one for each type.
template <class S>
S& shared() {
  static constexpr char owner = 0;
  return *static_cast<S*>(host::shared_memory(&owner, sizeof(S)));
}
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(host::dynamic_shared_memory());
}

template <class T>
T forgotten(T x) {
  return x;
}
template <class SixteenBytes>
void store_whole(const SixteenBytes& bytes, void* to) {
  *static_cast<SixteenBytes*>(to) = bytes;
}
inline std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} * b; }
inline std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t nibble = selector >> 4 * i, byte = (std::uint64_t{high} << 32 | low) >> 8 * (nibble % 8) & 0xff;
    bytes |= (nibble / 8 % 2 == 0 ? byte : byte / 0x80 * 0xff) << 8 * i;
  }
  return bytes;
}

inline void atomic_max(std::uint64_t* to, std::uint64_t value) { *to = std::max(*to, value); }
template <Fp8Format format>
std::uint16_t fp8_codes(float low, float high) {
  const int upper = fp8_code(round_to_fp8(high, format), format);
  return static_cast<std::uint16_t>(upper << 8 | fp8_code(round_to_fp8(low, format), format));
}

template <class T>
Accumulation<T> widen(T x) {
  return static_cast<Accumulation<T>>(x);
}
/// Rounds to nearest, ties to even.
template <class T>
T narrow(Accumulation<T> x) {
  return static_cast<T>(x);
}

namespace host {
template <class T>
struct Shuffle {
  T value;
  unsigned source;  // lane
  T result;
};
struct Vote {
  bool predicate;
  unsigned result;
};
}  // namespace host
}  // namespace trireme::gpu

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

// CUDA's operations of a warp, only for the full mask.

template <class T>
T __shfl_sync(unsigned, T value, unsigned lane, const std::source_location& where = std::source_location::current()) {
  using namespace trireme::gpu::host;
  Shuffle<T> shuffle{value, lane % warp_size, value};
  warp_collective(
      &shuffle,
      [](Arguments lanes) {
        for (void* lane : lanes) {
          auto* own = static_cast<Shuffle<T>*>(lane);
          own->result = static_cast<const Shuffle<T>*>(lanes[own->source])->value;
        }
      },
      where);
  return shuffle.result;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned lane_mask,
                  const std::source_location& where = std::source_location::current()) {
  return __shfl_sync(mask, value, threadIdx.x % trireme::gpu::host::warp_size ^ lane_mask, where);
}
inline unsigned __ballot_sync(unsigned, bool predicate,
                              const std::source_location& where = std::source_location::current()) {
  using namespace trireme::gpu::host;
  Vote vote{predicate, 0};
  warp_collective(
      &vote,
      [](Arguments lanes) {
        unsigned all = 0;
        for (int i = 0; i < warp_size; ++i) {
          all |= static_cast<unsigned>(static_cast<const Vote*>(lanes[i])->predicate) << i;
        }
        for (void* lane : lanes) static_cast<Vote*>(lane)->result = all;
      },
      where);
  return vote.result;
}
inline void __syncwarp(unsigned = 0xffffffffU, const std::source_location& where = std::source_location::current()) {
  trireme::gpu::host::warp_collective(
      nullptr, [](trireme::gpu::host::Arguments) {}, where);
}
inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
  trireme::gpu::host::block_barrier(where);
}

#pragma once

// Products of warp groups and barriers between parts of a block: compute capability 9.0 alone, whose code is compiled
// for sm_90a. Tests substitute another version of this header, as for device.cuh.
//
// A warp group is four consecutive warps, the first a multiple of four. Left factors and sums are fragments as in
// mma.cuh: warp w of the group has rows 16w to 16w + 15. The right factor is in shared memory, in blocks of 64 columns
// of 16 bits: row r of a block has its 128 bytes at 128 r, and its 16 bytes from column 8c on at 16 (c ^ r % 8) within
// them (the 128-byte swizzle of the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"). Blocks are
// aligned to swizzle_bytes.

#include <gpu/mma.cuh>

namespace trireme::gpu {

constexpr int group_threads = 128, swizzle_bytes = 1024;

/// Barrier in shared memory between threads that arrive and threads that wait (PTX's mbarrier). Phase i, from 0 on,
/// ends with the last of its arrivals, and the next phase begins.
struct Barrier {
  std::uint64_t state;
};
__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
/// Sets the number of arrivals of a phase; by one thread, before a barrier of the block.
__device__ __forceinline__ void initialise(Barrier& barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
/// Arrives once. What the thread did before is visible to threads that waited for the phase.
__device__ __forceinline__ void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(shared_address(&barrier)) : "memory");
}
/// Waits for the end of `phase`, which is the current phase or the one before.
__device__ __forceinline__ void wait_for_phase(Barrier& barrier, unsigned phase) {
  unsigned ended = 0;
  while (ended == 0) {
    asm volatile(
        "{.reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended,[%1],%2;\n"
        "selp.u32 %0,1,0,ended;}"
        : "=r"(ended)
        : "r"(shared_address(&barrier)), "r"(phase % 2)
        : "memory");
  }
}

/// Changes the registers of each thread of the group, a multiple of 8; the whole group calls it. An increase waits
/// until the block's other groups have given up as many.
template <int registers>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/// Makes the thread's completed writes to shared memory visible to products of warp groups that follow a barrier.
__device__ __forceinline__ void publish_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Orders the group's earlier accesses of the registers of the products that follow. The whole group calls it.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Waits for the products since begin_products, whose sums are `sums`. The whole group calls it.
template <int... tiles>
__device__ __forceinline__ void finish_products(float (&... sums)[tiles][4]) {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  // The compiler must not read the sums before.
  const auto hold = [](auto& sum) {
#pragma unroll
    for (auto& of : sum) asm volatile("" : "+f"(of[0]), "+f"(of[1]), "+f"(of[2]), "+f"(of[3])::"memory");
  };
  (hold(sums), ...);
}

/// Factors in a tile of T in shared memory, by its descriptor: groups of eight rows are 1024 bytes apart, with the
/// 128-byte swizzle.
template <class T>
struct SharedFactor {
  std::uint32_t low;
  __device__ __forceinline__ explicit SharedFactor(const T* tile)
      // By the shuffle the compiler sees that it is the same in all lanes.
      : low(__shfl_sync(0xffffffffU, 1U << 16 | (shared_address(tile) & 0x3ffff) >> 4, 0)) {}
  /// Moves it by the element's distance before the swizzle: to a row that is a multiple of 8, and a column that is a
  /// multiple of 16.
  __device__ __forceinline__ std::uint64_t at(int element) const {
    constexpr std::uint64_t swizzle = 1U << 30, stride = swizzle_bytes >> 4;
    return (swizzle | stride) << 32 | (low + element * static_cast<int>(sizeof(T)) / 16);
  }
};

// A product of columns 64 or 32: the PTX of its factors, and their operands after the sums and `add`.
#define TRIREME_SUMS(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define TRIREME_PRODUCT_64(type, factors, ...)                                                                \
  asm volatile(                                                                                               \
      "{.reg .pred add;\nsetp.ne.b32 add,%32,0;\n"                                                            \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                             \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                              \
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}," factors ";}"                        \
      : TRIREME_SUMS(0), TRIREME_SUMS(1), TRIREME_SUMS(2), TRIREME_SUMS(3), TRIREME_SUMS(4), TRIREME_SUMS(5), \
        TRIREME_SUMS(6), TRIREME_SUMS(7)                                                                      \
      : "r"(int{add}), __VA_ARGS__                                                                            \
      : "memory")
#define TRIREME_PRODUCT_32(type, factors, ...)                                 \
  asm volatile(                                                                \
      "{.reg .pred add;\nsetp.ne.b32 add,%16,0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type              \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}," factors ";}" \
      : TRIREME_SUMS(0), TRIREME_SUMS(1), TRIREME_SUMS(2), TRIREME_SUMS(3)     \
      : "r"(int{add}), __VA_ARGS__                                             \
      : "memory")
#define TRIREME_PRODUCT(factors_64, factors_32, ...)        \
  static_assert(columns == 64 || columns == 32);            \
  if constexpr (columns == 64 && std::is_same_v<T, bf16>) { \
    TRIREME_PRODUCT_64("bf16", factors_64, __VA_ARGS__);    \
  } else if constexpr (columns == 64) {                     \
    TRIREME_PRODUCT_64("f16", factors_64, __VA_ARGS__);     \
  } else if constexpr (std::is_same_v<T, bf16>) {           \
    TRIREME_PRODUCT_32("bf16", factors_32, __VA_ARGS__);    \
  } else {                                                  \
    TRIREME_PRODUCT_32("f16", factors_32, __VA_ARGS__);     \
  }

/// c = a b, plus c where `add`, over 16 channels: a is rows x 16, b 16 x columns, c fp32; T is bf16 or fp16. Element
/// (k, n) of b is row n and column k of its block or, where `transposed`, row k and column n, counted from
/// b.at(element). The whole group calls it between begin_products and finish_products; until then nothing else accesses
/// a, b and c.
template <class T, int columns, bool transposed>
__device__ __forceinline__ void multiply_add_group(const std::uint32_t (&a)[4], const SharedFactor<T>& b, int element,
                                                   float (&c)[columns / 8][4], bool add = true) {
  TRIREME_PRODUCT("{%33,%34,%35,%36},%37,add,1,1,%38", "{%17,%18,%19,%20},%21,add,1,1,%22", "r"(a[0]), "r"(a[1]),
                  "r"(a[2]), "r"(a[3]), "l"(b.at(element)), "n"(int{transposed}))
}
/// The same with a in shared memory, row by row from a.at(element_of_a) on, and b not transposed.
template <class T, int columns>
__device__ __forceinline__ void multiply_add_group(const SharedFactor<T>& a, int element_of_a, const SharedFactor<T>& b,
                                                   int element, float (&c)[columns / 8][4], bool add = true) {
  TRIREME_PRODUCT("%33,%34,add,1,1,0,0", "%17,%18,add,1,1,0,0", "l"(a.at(element_of_a)), "l"(b.at(element)))
}
#undef TRIREME_PRODUCT
#undef TRIREME_PRODUCT_32
#undef TRIREME_PRODUCT_64
#undef TRIREME_SUMS

}  // namespace trireme::gpu

#pragma once

// Warp-level matrix products and asynchronous copies, available from compute capability 8.0 on. Tests substitute
// another version of this header, as for device.cuh.
//
// Fragments as the PTX ISA lays them out, g = lane / 4, t = lane % 4, two elements per register, the first in the low
// half:
//   A, 16 x 16: register r holds row g + 8 (r % 2), columns 2t + 8 (r / 2) and the next
//   B, 16 x 8:  register r holds rows 2t + 8r and the next of column g
//   C, 16 x 8, fp32: element i is row g + 8 (i / 2), column 2t + i % 2

#include <gpu/device.cuh>

namespace trireme::gpu {

/// c += a b; T is bf16 or fp16, sums are fp32. All lanes call it.
template <class T>
__device__ __forceinline__ void multiply_add(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                             float (&c)[4]) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane l gives the address, of 16 bytes, of row l % 8 of
/// matrix l / 8, and gets in to[m] two elements of matrix m: row g, columns 2t and the next. All lanes call it.
__device__ __forceinline__ void load_matrices(const void* row, std::uint32_t (&to)[4]) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
/// Loads the matrices' transposes instead: rows 2t and the next of column g.
__device__ __forceinline__ void load_transposed(const void* row, std::uint32_t (&to)[4]) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// Begins to copy 16 bytes to shared memory, zeros where not `valid`.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(address), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
/// Commits the thread's copies since the last commit as one group.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `latest` groups of the thread are in flight.
template <int latest>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(latest) : "memory");
}

/// 2^x with a relative error of about 2^-22.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two numbers rounded to T in one register, `low` in its low half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  } else {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  }
}

}  // namespace trireme::gpu

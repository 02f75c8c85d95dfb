#include "mpi/reduction.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <type_traits>

namespace trireme::mpi {
namespace {

/// The type a sum of T is formed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, fp16>, float, T>;

struct Sum {
  template <class A>
  A operator()(A a, A b) const {
    return a + b;
  }
};
struct Max {
  template <class A>
  A operator()(A a, A b) const {
    return b > a || b != b ? b : a;
  }
};

/// Eight numbers at a time if the machine converts them; compilers do not vectorise this themselves.
constexpr std::int64_t half_lanes = 8;

template <class T, class A>
void widen(const T* in, A* out, std::int64_t size) {
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, fp16>) {
    for (; i + half_lanes <= size; i += half_lanes) {
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
    }
  }
#endif
  for (; i < size; ++i) out[i] = static_cast<A>(in[i]);
}

template <class T, class A>
void narrow(const A* in, T* out, std::int64_t size) {
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, fp16>) {
    for (; i + half_lanes <= size; i += half_lanes) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
  }
#endif
  for (; i < size; ++i) out[i] = static_cast<T>(in[i]);
}

template <class T, class Op>
void reduce(std::span<const std::byte* const> sources, std::byte* out, std::int64_t count) {
  using A = Wide<T>;
  constexpr std::int64_t block = 1024;  // partial results stay in the L1 cache
  alignas(64) std::array<A, block> partial;
  alignas(64) std::array<A, block> next;
  const Op op;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t size = std::min(block, count - begin);
    widen(reinterpret_cast<const T*>(sources[0]) + begin, partial.data(), size);
    for (const std::byte* source : sources.subspan(1)) {
      widen(reinterpret_cast<const T*>(source) + begin, next.data(), size);
      for (std::int64_t i = 0; i < size; ++i) partial[i] = op(partial[i], next[i]);
    }
    narrow(partial.data(), reinterpret_cast<T*>(out) + begin, size);
  }
}

template <class T>
void reduce(ReduceOp op, std::span<const std::byte* const> sources, std::byte* out, std::int64_t count) {
  op == ReduceOp::sum ? reduce<T, Sum>(sources, out, count) : reduce<T, Max>(sources, out, count);
}

}  // namespace

void reduce_in_order(DType dtype, ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                     std::int64_t count) {
  switch (dtype) {
    case DType::int64:
      return reduce<std::int64_t>(op, sources, out, count);
    case DType::int32:
      return reduce<std::int32_t>(op, sources, out, count);
    default:
      dispatch_float(dtype, [&]<class T>() { reduce<T>(op, sources, out, count); });
  }
}

}  // namespace trireme::mpi

#include "mpi/reduction.hpp"

#include <algorithm>
#include <array>

#include "src/base/check.hpp"

namespace trireme::mpi {
namespace {

/// The type a sum of T is formed in.
template <class T>
struct Wide {
  using Type = T;
};
template <>
struct Wide<bf16> {
  using Type = float;
};
template <>
struct Wide<fp16> {
  using Type = float;
};

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

template <class T, class Op>
void reduce(std::span<const std::byte* const> sources, std::byte* out, std::int64_t count) {
  using A = typename Wide<T>::Type;
  constexpr std::int64_t block = 1024;  // partial results stay in the first-level cache
  alignas(64) std::array<A, block> partial;
  const Op op;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t size = std::min(block, count - begin);
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < size; ++i) partial[i] = static_cast<A>(first[i]);
    for (const std::byte* source : sources.subspan(1)) {
      const T* next = reinterpret_cast<const T*>(source) + begin;
      for (std::int64_t i = 0; i < size; ++i) partial[i] = op(partial[i], static_cast<A>(next[i]));
    }
    T* result = reinterpret_cast<T*>(out) + begin;
    for (std::int64_t i = 0; i < size; ++i) result[i] = static_cast<T>(partial[i]);
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

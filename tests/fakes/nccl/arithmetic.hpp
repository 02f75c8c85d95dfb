#pragma once

#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/base/error.hpp"
#include "src/tensor/dtype.hpp"

namespace fake_nccl {

inline std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

/// out[i] = sum or maximum over ranks of element first + i of their `count`.
template <class T, class Wide>
void combine(const std::byte* all, int ranks, std::size_t count, std::size_t first, std::size_t shard, ncclRedOp_t op,
             void* out) {
  const auto* in = reinterpret_cast<const T*>(all);
  for (std::size_t i = 0; i < shard; ++i) {
    Wide sum = static_cast<Wide>(in[first + i]);
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(ranks); ++rank) {
      const auto term = static_cast<Wide>(in[rank * count + first + i]);
      sum = op == ncclSum ? sum + term : std::max(sum, term);
    }
    static_cast<T*>(out)[i] = T(sum);
  }
}

inline void combine(ncclDataType_t type, const std::byte* all, int ranks, std::size_t count, std::size_t first,
                    std::size_t shard, ncclRedOp_t op, void* out) {
  switch (type) {
    case ncclFloat64:
      return combine<double, double>(all, ranks, count, first, shard, op, out);
    case ncclFloat32:
      return combine<float, float>(all, ranks, count, first, shard, op, out);
    case ncclBfloat16:
      return combine<trireme::bf16, float>(all, ranks, count, first, shard, op, out);
    case ncclFloat16:
      return combine<trireme::fp16, float>(all, ranks, count, first, shard, op, out);
    case ncclInt64:
      return combine<std::int64_t, std::int64_t>(all, ranks, count, first, shard, op, out);
    case ncclInt32:
      return combine<std::int32_t, std::int32_t>(all, ranks, count, first, shard, op, out);
    default:
      throw trireme::ShapeError("the fake of NCCL has no sums of type {}", static_cast<int>(type));
  }
}

}  // namespace fake_nccl

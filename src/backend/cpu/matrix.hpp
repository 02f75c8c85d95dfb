#pragma once

#include <cstdint>

namespace trireme::cpu {

/// A matrix in memory: element (i, k) at data[i * stride + k] or, transposed, at data[k * stride + i].
template <class T>
struct Matrix {
  const T* data;
  std::int64_t stride;
  bool transposed;

  const T* at(std::int64_t i, std::int64_t k) const { return data + (transposed ? k * stride + i : i * stride + k); }
  Matrix block(std::int64_t i, std::int64_t k) const { return {at(i, k), stride, transposed}; }
};

}  // namespace trireme::cpu

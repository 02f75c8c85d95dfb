#pragma once

#include <cstdint>
#include <memory>

#include "src/backend/cpu/scratch.hpp"
#include "src/tensor/dtype.hpp"

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

/// Products of bf16 matrices by the machine's own instructions, through oneDNN.
class Bf16Matmul {
 public:
  Bf16Matmul();
  ~Bf16Matmul();
  Bf16Matmul& operator=(Bf16Matmul&&) = delete;

  /// Returns whether this machine has bf16 instructions used by oneDNN.
  static bool available();

  /// Rows from which computing the transpose of a product of few rows is faster.
  std::int64_t min_exchanged_rows() const;

  /// c = a b, or c += a b, in fp32 on the calling thread; a [m, k], b [k, n], c [m, n], with non-zero extents.
  /// Thread-safe.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a, const Matrix<bf16>& b,
                bool accumulate, float* c, std::int64_t c_stride);

  /// c = a b + bias, rounded to bf16 from sums in fp32; bias [n] or nullptr. Otherwise the same.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a, const Matrix<bf16>& b,
                const bf16* bias, bf16* c, std::int64_t c_stride);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::cpu

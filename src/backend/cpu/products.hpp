#pragma once

#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <utility>
#include <vector>

#include "src/backend/cpu/bf16_matmul.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {

/// c = a b, or c += a b, on the calling thread; a [m, k], b [k, n], c [m, n].
template <class A>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<A>& a, const Matrix<A>& b, bool accumulate,
              A* c, std::int64_t c_stride) {
  const A beta = accumulate ? A{1} : A{0};
  const auto order = [](const Matrix<A>& matrix) { return matrix.transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](std::int64_t extent) { return static_cast<blasint>(std::max<std::int64_t>(1, extent)); };
  if constexpr (std::is_same_v<A, double>) {
    cblas_dgemm(CblasRowMajor, order(a), order(b), static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(k), 1, a.data, size(a.stride), b.data, size(b.stride), beta, c, size(c_stride));
  } else {
#if defined(__x86_64__)  // elsewhere oneDNN has no generated code for this
    // oneDNN's product is the faster of the two, especially for long k or narrow n.
    omp_set_num_threads(1);  // for single-threaded products
    const auto letter = [](const Matrix<A>& matrix) { return matrix.transposed ? 'T' : 'N'; };
    const auto extent = [](std::int64_t stride) { return std::max<std::int64_t>(1, stride); };
    const dnnl::status status = dnnl::sgemm(letter(a), letter(b), m, n, k, 1, a.data, extent(a.stride), b.data,
                                            extent(b.stride), beta, c, extent(c_stride));
    TRIREME_CHECK(status == dnnl::status::success, EnvironmentError,
                  "oneDNN failed with status {} on an fp32 product of {} x {} x {}", static_cast<int>(status), m, n, k);
#else
    cblas_sgemm(CblasRowMajor, order(a), order(b), static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(k), 1, a.data, size(a.stride), b.data, size(b.stride), beta, c, size(c_stride));
#endif
  }
}

/// Block of a matrix that begins at (i, k), in the accumulation type: the matrix's own if it has that type, else
/// converted in `buffer`.
template <class T>
Matrix<Accumulation<T>> convert_block(const Matrix<T>& matrix, std::int64_t i, std::int64_t rows, std::int64_t k,
                                      std::int64_t columns, Accumulation<T>* buffer) {
  if constexpr (std::is_same_v<T, Accumulation<T>>) {
    return matrix.block(i, k);
  } else {
    const T* from = matrix.at(i, k);
    if (matrix.transposed) std::swap(rows, columns);
    for (std::int64_t r = 0; r < rows; ++r) load_row(from + r * matrix.stride, columns, buffer + r * columns);
    return {buffer, columns, matrix.transposed};
  }
}

/// Consecutive rows of a, and the matrix b that multiplies them.
template <class T>
struct RowGroup {
  std::int64_t first, rows;
  Matrix<T> b;
};
/// Consecutive terms of a sum a b, and the matrix c to which it is added, or which it overwrites.
template <class A>
struct TermGroup {
  std::int64_t first, terms;
  A* c;
  ProductSum sum;
};

template <class T>
std::vector<RowGroup<T>> row_groups(std::span<const std::int64_t> rows, std::span<const TensorView> w,
                                    bool transposed) {
  std::vector<RowGroup<T>> groups;
  for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
    groups.push_back({first, count, {w[i].as<T>(), w[i].shape().back(), transposed}});
  });
  return groups;
}

/// Tasks of several products, numbered one product after another.
class ProductTasks {
 public:
  void add(std::int64_t count) { ends_.push_back(total() + count); }
  std::int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }
  /// The number of a task's product, and the task's number within it.
  std::pair<std::size_t, std::int64_t> find(std::int64_t task) const {
    const auto product = static_cast<std::size_t>(std::ranges::upper_bound(ends_, task) - ends_.begin());
    return {product, product == 0 ? task : task - ends_[product - 1]};
  }

 private:
  std::vector<std::int64_t> ends_;
};

}  // namespace trireme::cpu

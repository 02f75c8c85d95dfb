#include "src/backend/kernels/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// Elements that are summed to one number; those numbers are then added in order.
constexpr std::int64_t block = 16384;
/// Elements converted at a time within a block.
constexpr std::int64_t buffer_elements = 1024;

class CpuReduce final : public ReduceKernels {
 public:
  explicit CpuReduce(ThreadPool& pool) : pool_(pool) {}

  void sum_squares(Stream&, ConstTensorView x, TensorView result) override {
    check_reduction("sum_squares", result);
    add_terms(x, result, [](double element) { return element * element; });
  }

  void sum(Stream&, ConstTensorView x, TensorView result) override {
    check_reduction("sum", result);
    add_terms(x, result, [](double element) { return element; });
  }

  void sum_powers(Stream&, ConstTensorView x, int power, TensorView result) override {
    check_powers(result, power);
    add_terms(x, result, [power](double element) {
      const double size = std::abs(element);
      double term = size;
      for (int i = 1; i < power; ++i) term *= size;
      return term;
    });
  }

  void max_abs(Stream&, ConstTensorView x, TensorView result) override {
    check_reduction("max_abs", result);
    const auto larger = [](double a, double b) { return std::max(a, b); };
    reduce(x, result, larger, [](const auto* row, std::int64_t n, double largest) {
      for (std::int64_t j = 0; j < n; ++j) {
        const double size = std::abs(static_cast<double>(row[j]));
        largest = size <= largest ? largest : std::isnan(size) ? std::numeric_limits<double>::infinity() : size;
      }
      return largest;
    });
  }

  void count_zeros(Stream&, ConstTensorView x, TensorView result) override {
    check_reduction("count_zeros", result);
    add_terms(x, result, [](double element) { return element == 0 ? 1.0 : 0.0; });
  }

 private:
  /// result += sum of term(element).
  template <class Term>
  void add_terms(ConstTensorView x, TensorView result, Term term) {
    const auto plus = [](double a, double b) { return a + b; };
    reduce(x, result, plus, [term](const auto* row, std::int64_t n, double total) {
#pragma omp simd reduction(+ : total)
      for (std::int64_t j = 0; j < n; ++j) total += term(row[j]);
      return total;
    });
  }

  /// Combines the results of blocks, each of which starts at 0 and continues with fold(row, n, result).
  template <class Combine, class Fold>
  void reduce(ConstTensorView x, TensorView result, Combine combine, Fold fold) {
    dispatch_float(x.dtype(), [&]<class T, class A>() {
      const T* in = x.as<T>();
      const std::int64_t size = x.numel(), blocks = (size + block - 1) / block;
      ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(blocks) * sizeof(double));
      double* partials = lease.take<double>(blocks);
      pool_.parallel_ranges(size, block, [&](std::int64_t begin, std::int64_t end) {
        A buffer[buffer_elements];
        double total = 0;
        for (std::int64_t i = begin; i < end; i += buffer_elements) {
          const std::int64_t n = end - i < buffer_elements ? end - i : buffer_elements;
          total = fold(row_in(in + i, n, buffer), n, total);
        }
        partials[begin / block] = total;
      });
      double total = 0;
      for (std::int64_t b = 0; b < blocks; ++b) total = combine(total, partials[b]);
      *result.as<double>() = combine(*result.as<double>(), total);
    });
  }

  ThreadPool& pool_;
  ScratchPool scratch_;
};

}  // namespace

std::unique_ptr<ReduceKernels> make_reduce(ThreadPool& pool) { return std::make_unique<CpuReduce>(pool); }

}  // namespace trireme::cpu

#include "src/backend/kernels/reduce.hpp"

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// Elements that are summed to one number; those numbers are then added in order.
constexpr std::int64_t block = 16384;
/// Elements converted at a time within a block.
constexpr std::int64_t chunk = 1024;

class CpuReduce final : public ReduceKernels {
 public:
  explicit CpuReduce(ThreadPool& pool) : pool_(pool) {}

  void sum_squares(Stream&, ConstTensorView x, TensorView result) override {
    check_reduction("sum_squares", result);
    reduce(x, result, [](double element) { return element * element; });
  }

  void sum(Stream&, ConstTensorView x, TensorView result) override {
    check_reduction("sum", result);
    reduce(x, result, [](double element) { return element; });
  }

 private:
  template <class Function>
  void reduce(ConstTensorView x, TensorView result, Function term) {
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const T* in = x.as<T>();
      const std::int64_t size = x.numel(), blocks = (size + block - 1) / block;
      ScratchPool::Lease lease(scratch_, static_cast<std::size_t>(blocks) * sizeof(double));
      double* partials = lease.take<double>(blocks);
      pool_.parallel_ranges(size, block, [&](std::int64_t begin, std::int64_t end) {
        A buffer[chunk];
        double total = 0;
        for (std::int64_t i = begin; i < end; i += chunk) {
          const std::int64_t n = end - i < chunk ? end - i : chunk;
          const A* row = row_in(in + i, n, buffer);
#pragma omp simd reduction(+ : total)
          for (std::int64_t j = 0; j < n; ++j) total += term(row[j]);
        }
        partials[begin / block] = total;
      });
      double total = 0;
      for (std::int64_t b = 0; b < blocks; ++b) total += partials[b];
      *result.as<double>() += total;
    });
  }

  ThreadPool& pool_;
  ScratchPool scratch_;
};

}  // namespace

std::unique_ptr<ReduceKernels> make_reduce(ThreadPool& pool) { return std::make_unique<CpuReduce>(pool); }

}  // namespace trireme::cpu

#pragma once

#include <benchmark/benchmark.h>

#include "src/tensor/dtype.hpp"

namespace trireme::bench {

/// Threads the benchmarks use: TRIREME_THREADS, OMP_NUM_THREADS or the cores of this process.
int threads();

double seconds();

/// Greatest GFLOP/s of products of this type on all threads at once: of each library at several extents, one product
/// per thread, measured once, and of all that this program `reached`. So no share of it is above 1.
double product_ceiling(DType dtype, double reached);

/// Greatest GB/s of a copy, on all threads, that reads half of `bytes` and writes the other half, and of all that this
/// program `reached` with as many bytes. Data that fit into the caches are cached, as for a repeatedly run kernel. The
/// copy is measured once for each size, the best of several.
double copy_ceiling(double bytes, double reached);

/// Calls `work` as often as the benchmark asks, and returns the calls per second.
template <class Work>
double calls_per_second(benchmark::State& state, Work&& work) {
  const double begin = seconds();
  for (auto _ : state) work();
  return static_cast<double>(state.iterations()) / (seconds() - begin);
}

/// Reports a rate, its ceiling and their ratio.
void report(benchmark::State& state, const char* unit, double rate, double ceiling);

/// Measures `work`, products of `operations` in units of 1e9 operations.
template <class Work>
void measure_products(benchmark::State& state, double operations, DType dtype, Work&& work) {
  const double rate = operations * calls_per_second(state, work);
  report(state, "GFLOP/s", rate, product_ceiling(dtype, rate));
}

}  // namespace trireme::bench

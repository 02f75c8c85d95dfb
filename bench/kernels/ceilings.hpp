#pragma once

#include <benchmark/benchmark.h>

#include "src/tensor/dtype.hpp"

namespace trireme::bench {

/// Threads the benchmarks use: TRIREME_THREADS, OMP_NUM_THREADS or the cores of this process.
int threads();

/// GFLOP/s of a large square product by the library itself, OpenBLAS or oneDNN, one per thread on all threads
/// simultaneously. It bounds a linear layer of this type on this machine. Measured once, the best of several.
double product_ceiling(DType dtype);

/// Reports GFLOP/s, the ceiling of products, and their ratio; `operations` of an iteration in units of 1e9.
void report_products(benchmark::State& state, double operations, DType dtype);

/// GB/s of a copy, on all threads, that reads half of `bytes` and writes the other half. Data that fit into the caches
/// are cached, as for a repeatedly run kernel. Measured once for each size, the best of several.
double copy_ceiling(double bytes);

}  // namespace trireme::bench

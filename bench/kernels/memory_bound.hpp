#pragma once

#include <benchmark/benchmark.h>

#include "bench/kernels/ceilings.hpp"
#include "src/backend/backend.hpp"

namespace trireme::bench {

/// Runs `kernel`, which moves `bytes` from and to memory, and reports GB/s relative to a copy of the same size.
template <class Kernel>
void measure(benchmark::State& state, double bytes, Kernel&& kernel) {
  for (auto _ : state) kernel();
  state.counters["GB/s"] = benchmark::Counter(1e-9 * bytes, benchmark::Counter::kIsIterationInvariantRate);
  const double ceiling = copy_ceiling(bytes);
  state.counters["ceiling"] = ceiling;
  state.counters["share"] = benchmark::Counter(1e-9 * bytes / ceiling, benchmark::Counter::kIsIterationInvariantRate);
}

/// A tensor of one number, not 0.
inline Tensor filled(Backend& b, DType dtype, const Shape& shape) {
  Tensor tensor(b, dtype, shape);
  b.elementwise().fill(b.compute_stream(), 0.37, tensor);
  return tensor;
}

}  // namespace trireme::bench

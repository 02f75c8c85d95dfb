#include "bench/kernels/ceilings.hpp"

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <vector>

#include "src/backend/cpu/bf16_matmul.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::bench {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Shortest of several runs of `work(thread)` on all threads at once.
template <class Work>
double shortest(ThreadPool& pool, Work&& work) {
  double best = 1e300;
  for (int run = 0; run < 8; ++run) {
    const double begin = seconds();
    pool.parallel_for(pool.threads(), work);
    best = std::min(best, seconds() - begin);
  }
  return best;
}

template <class T, class Multiply>
double measure_product(Multiply&& multiply) {
  constexpr std::int64_t size = 1536;
  ThreadPool pool(threads());
  struct Matrices {
    std::vector<T> a, b;
    std::vector<Accumulation<T>> c;
  };
  std::vector<Matrices> matrices(pool.threads());
  for (Matrices& m : matrices) {
    m.a.assign(size * size, T(1.25f));
    m.b.assign(size * size, T(0.75f));
    m.c.resize(size * size);
  }
  const double time = shortest(
      pool, [&](std::int64_t i) { multiply(size, matrices[i].a.data(), matrices[i].b.data(), matrices[i].c.data()); });
  return 2e-9 * size * size * size * pool.threads() / time;
}

double measure_product(DType dtype) {
  openblas_set_num_threads(1);
  if (dtype == DType::fp64) {
    return measure_product<double>([](int n, const double* a, const double* b, double* c) {
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a, n, b, n, 0, c, n);
    });
  }
  if (dtype == DType::bf16 && cpu::Bf16Matmul::available()) {
    cpu::Bf16Matmul matmul;
    return measure_product<bf16>([&](std::int64_t n, const bf16* a, const bf16* b, float* c) {
      matmul.multiply(n, n, n, {a, n, false}, {b, n, true}, false, c, n);
    });
  }
  return measure_product<float>([](int n, const float* a, const float* b, float* c) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a, n, b, n, 0, c, n);
  });
}

}  // namespace

int threads() { return default_thread_count(1); }

double product_ceiling(DType dtype) {
  static std::map<DType, double> measured;
  const auto [entry, is_new] = measured.try_emplace(dtype, 0);
  if (is_new) entry->second = measure_product(dtype);
  return entry->second;
}

double copy_ceiling(double bytes) {
  static std::map<double, double> measured;
  const auto [entry, is_new] = measured.try_emplace(bytes, 0);
  if (is_new) {
    ThreadPool pool(threads());
    const std::size_t slice = std::max<std::size_t>(1, static_cast<std::size_t>(bytes / 2) / pool.threads());
    const std::size_t size = slice * pool.threads();
    std::vector<char> from(size, 1), to(size);
    const double time =
        shortest(pool, [&](std::int64_t i) { std::memcpy(to.data() + i * slice, from.data() + i * slice, slice); });
    entry->second = 2e-9 * static_cast<double>(size) / time;
  }
  return entry->second;
}

void report_products(benchmark::State& state, double operations, DType dtype) {
  constexpr auto rate = benchmark::Counter::kIsIterationInvariantRate;
  const double ceiling = product_ceiling(dtype);
  state.counters["GFLOP/s"] = benchmark::Counter(operations, rate);
  state.counters["ceiling"] = ceiling;
  state.counters["share"] = benchmark::Counter(operations / ceiling, rate);
}

}  // namespace trireme::bench

#include "bench/kernels/ceilings.hpp"

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "src/backend/cpu/bf16_tiles.hpp"
#include "src/backend/cpu/products.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::bench {
namespace {

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

/// Product of an extent at which libraries are fast: a large square one, and tiles of linear layers.
struct Extents {
  std::int64_t m, n, k;
};
constexpr Extents extents[] = {{1536, 1536, 1536}, {768, 768, 768}, {256, 512, 768}, {256, 512, 3072}};

/// Greatest GFLOP/s of `multiply(extents, a, b, c)`, one per thread on all threads at once, over the extents and both
/// orders of b.
template <class T, class Multiply>
double fastest_product(Multiply&& multiply) {
  ThreadPool pool(threads());
  struct Matrices {
    std::vector<T> a, b;
    std::vector<Accumulation<T>> c;
  };
  double best = 0;
  for (const auto [m, n, k] : extents) {
    std::vector<Matrices> matrices(pool.threads());
    for (Matrices& of_thread : matrices) {
      of_thread.a.assign(m * k, T(1.25f));
      of_thread.b.assign(k * n, T(0.75f));
      of_thread.c.resize(m * n);
    }
    const double operations = 2e-9 * m * n * k * pool.threads();
    const auto repetitions = static_cast<std::int64_t>(std::ceil(4 * pool.threads() / operations));
    for (const bool transposed : {false, true}) {
      const double time = shortest(pool, [&](std::int64_t i) {
        const Matrices& own = matrices[i];
        for (std::int64_t repetition = 0; repetition < repetitions; ++repetition) {
          multiply(Extents{m, n, k}, cpu::Matrix<T>{own.a.data(), k, false},
                   cpu::Matrix<T>{own.b.data(), transposed ? k : n, transposed}, matrices[i].c.data());
        }
      });
      best = std::max(best, static_cast<double>(repetitions) * operations / time);
    }
  }
  return best;
}

double measure_product(DType dtype) {
  openblas_set_num_threads(1);
  if (dtype == DType::fp64) {
    return fastest_product<double>([](const Extents& e, const auto& a, const auto& b, double* c) {
      cpu::multiply(e.m, e.n, e.k, a, b, false, c, e.n);
    });
  }
  if (dtype == DType::bf16 && cpu::Bf16Matmul::available()) {
    cpu::Bf16Matmul matmul;
    const double of_library = fastest_product<bf16>([&](const Extents& e, const auto& a, const auto& b, float* c) {
      matmul.multiply(e.m, e.n, e.k, a, b, false, c, e.n);
    });
    if (!cpu::have_bf16_tiles()) return of_library;
    cpu::ScratchPool scratch;
    const double by_tiles = fastest_product<bf16>([&](const Extents& e, const auto& a, const auto& b, float*) {
      cpu::multiply_by_tiles(e.m, e.n, e.k, a, b, scratch, {}, [](const cpu::ProductBlock&) {});
    });
    return std::max(of_library, by_tiles);
  }
  const double of_backend = fastest_product<float>([](const Extents& e, const auto& a, const auto& b, float* c) {
    cpu::multiply(e.m, e.n, e.k, a, b, false, c, e.n);
  });
  const double of_openblas = fastest_product<float>([](const Extents& e, const auto& a, const auto& b, float* c) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans, static_cast<int>(e.m),
                static_cast<int>(e.n), static_cast<int>(e.k), 1, a.data, static_cast<int>(a.stride), b.data,
                static_cast<int>(b.stride), 0, c, static_cast<int>(e.n));
  });
  return std::max(of_backend, of_openblas);
}

}  // namespace

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int threads() { return default_thread_count(1); }

double product_ceiling(DType dtype, double reached) {
  static std::map<DType, double> measured;
  const auto [entry, is_new] = measured.try_emplace(dtype, 0);
  if (is_new) entry->second = measure_product(dtype);
  entry->second = std::max(entry->second, reached);
  return entry->second;
}

double copy_ceiling(double bytes, double reached) {
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
  entry->second = std::max(entry->second, reached);
  return entry->second;
}

void report(benchmark::State& state, const char* unit, double rate, double ceiling) {
  state.counters[unit] = rate;
  state.counters["ceiling"] = ceiling;
  state.counters["share"] = rate / ceiling;
}

}  // namespace trireme::bench

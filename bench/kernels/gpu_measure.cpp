#include "bench/kernels/gpu_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cuda/runtime/stream.hpp"
#include "src/base/hash.hpp"
#include "src/base/median.hpp"
#include "src/base/timer.hpp"

namespace trireme::bench {

GpuMeasure::GpuMeasure(Backend& backend, bool dry_run, bool once, std::ostream& json)
    : b(backend),
      stream(b.compute_stream()),
      dry_run_(dry_run),
      once_(once),
      json_(json),
      random_(b, DType::fp32, {dry_run ? 1 << 12 : 1 << 22}) {
  std::vector<float> values(static_cast<std::size_t>(random_.view().numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(splitmix64(1, i) >> 40) * 0x1p-23F - 1;
  }
  b.copy_from_host(stream, ConstTensorView(values.data(), random_.view().shape()), random_);
  fmt::print("{}\n{:<34} {:<28} {:<5} {:>10} {:>14} {:>6}\n", b.description(), "kernel", "shape", "type", "us", "rate",
             "share");
  large_copy_ = copy_rate(2.0 * (dry_run ? 1 << 17 : 1 << 30));
  const std::int64_t n = dry_run ? 64 : 8192;
  const Tensor x = filled({n, n}), w = filled({n, n}), y = filled({n, n});
  products("product", fmt::format("{0} x {0} x {0}", n), 2.0 * static_cast<double>(n * n * n),
           [&](int) { b.gemm().linear(stream, x, w, {}, Activation::none, {}, y); });
}

Tensor GpuMeasure::filled(const Shape& shape, DType dtype) {
  Tensor tensor(b, dtype, shape);
  const std::int64_t numel = tensor.view().numel(), max_count = random_.view().numel();
  for (std::int64_t begin = 0; begin < numel; begin += max_count) {
    const std::int64_t count = std::min(max_count, numel - begin);
    b.elementwise().convert(stream, random_.view().flat(0, count), tensor.view().flat(begin, count));
  }
  return tensor;
}

double GpuMeasure::copy_rate(double bytes) {
  const auto [entry, is_new] = copies_.try_emplace(bytes, 0);
  if (!is_new) return entry->second;
  const Shape elements{static_cast<std::int64_t>(bytes / 2) / static_cast<std::int64_t>(sizeof(bf16))};
  struct Tensors {
    Tensor from, to;
  };
  std::vector<Tensors> sets;
  for (int i = 0; i < copies_beyond_caches(bytes); ++i) {
    sets.emplace_back(filled(elements), filled(elements));
  }
  const auto copy = [&](int call) {
    const Tensors& set = sets[static_cast<std::size_t>(call) % sets.size()];
    if (b.memory_is_host())
      b.elementwise().convert(stream, set.from, set.to);
    else
      cuda::copy(cuda::cuda_stream(stream), set.from, set.to);
  };
  const std::string shape = fmt::format("{:.4g} MiB", bytes / 2 / (1 << 20));
  return entry->second = measure({"copy", shape, DType::bf16, "GB/s", 1e-9}, large_copy_, bytes, copy);
}

double GpuMeasure::measure(const Line& line, double ceiling, double amount, const Work& work) {
  const double time = seconds(work), rate = amount / time;
  if (ceiling == 0) ceiling = rate;
  fmt::print("{:<34} {:<28} {:<5} {:>10.1f} {:>6.{}f} {:<7} {:>6.3f}\n", line.kernel, line.shape, name_of(line.dtype),
             1e6 * time, line.per_unit * rate, line.per_unit == 1e-9 ? 0 : 1, line.unit, rate / ceiling);
  std::fflush(stdout);
  json_
      << fmt::format(
             R"({{"kernel": "{}", "shape": "{}", "dtype": "{}", "us": {:.2f}, "rate": {:.4g}, "unit": "{}", "ceiling": {:.4g}, "share": {:.4f}}})",
             line.kernel, line.shape, name_of(line.dtype), 1e6 * time, line.per_unit * rate, line.unit,
             line.per_unit * ceiling, rate / ceiling)
      << std::endl;
  return rate;
}

double GpuMeasure::seconds(const Work& work) {
  int call = 0;
  const auto call_work = [&](int calls) {
    for (int i = 0; i < calls; ++i) work(call++);
  };
  const auto time_of = [&](int calls) {
    if (b.memory_is_host()) {
      const Timer timer;
      call_work(calls);
      return timer.elapsed_ms() / 1e3 / calls;
    }
    // Keeps the GPU busy while the first measured call is enqueued, so it never waits for the host.
    if (calls > 1) call_work(2);
    return timer_.time_us(cuda::cuda_stream(stream), [&] { call_work(calls); }) / 1e6 / calls;
  };
  const double first = time_of(1);  // autotunes products
  if (once_) return first;
  const int calls = dry_run_ ? 1 : std::clamp(static_cast<int>(2e-3 / time_of(1)), 1, 1000);
  std::vector<double> times(dry_run_ ? 1 : 7);
  for (double& time : times) time = time_of(calls);
  return median(std::move(times));
}

}  // namespace trireme::bench

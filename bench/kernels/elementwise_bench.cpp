#include <array>

#include "bench/kernels/memory_bound.hpp"
#include "src/backend/cpu/cpu_backend.hpp"

namespace trireme::bench {
namespace {

constexpr std::int64_t s = 2048, batch = 8, h = 1024;
constexpr std::array<std::int64_t, batch> samples = {0, 1, 2, 3, 4, 5, 6, 7};

void bias_dropout_add(benchmark::State& state, DType dtype, double probability, bool backward) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  const Dropout dropout(probability, 1, 1, DropoutSite::mlp_output, samples.data());
  const Tensor x = filled(b, dtype, {s, batch, h}), residual = filled(b, dtype, {s, batch, h});
  const Tensor bias = filled(b, dtype, {h}), dbias = filled(b, accumulation_type(dtype), {h});
  const double bytes = static_cast<double>(s * batch * h * size_of(dtype));
  measure(state, (backward ? 2 : 3) * bytes, [&] {
    if (backward)
      b.elementwise().bias_dropout_add_backward(b.compute_stream(), x, dropout, residual, dbias);
    else
      b.elementwise().bias_dropout_add(b.compute_stream(), x, bias, residual, dropout, residual);
  });
}

void glu(benchmark::State& state, DType dtype, bool backward) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  const Tensor gate_up = filled(b, dtype, {s, batch, 2 * h}), y = filled(b, dtype, {s, batch, h});
  const Tensor dgate_up = filled(b, dtype, {s, batch, 2 * h});
  const double bytes = static_cast<double>(y.view().size_bytes());
  measure(state, (backward ? 5 : 3) * bytes, [&] {
    if (backward)
      b.elementwise().glu_backward(b.compute_stream(), y, gate_up, dgate_up);
    else
      b.elementwise().glu(b.compute_stream(), gate_up, y);
  });
}

/// All heads of 64 or 128 channels of one projection.
void rotate(benchmark::State& state, DType dtype, std::int64_t d) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  const Tensor x = filled(b, dtype, {s, batch, h});
  const RotaryHeads heads{{x, batch * h, h, d}, s, batch, h / d, {}};
  measure(state, static_cast<double>(2 * x.view().size_bytes()), [&] {
    b.rotary().rotate(b.compute_stream(), {d, 10000}, heads, Rotation::forward);
  });
}

void adamw(benchmark::State& state, DType dtype) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  constexpr std::int64_t n = 32 << 20;
  const DType wide = accumulation_type(dtype);
  const Tensor g = filled(b, wide, {n}), w = filled(b, wide, {n}), m = filled(b, wide, {n}), v = filled(b, wide, {n});
  const Tensor rounded = dtype == wide ? Tensor() : filled(b, dtype, {n});
  const AdamWStep step{.learning_rate = 1e-3, .weight_decay = 0.1};
  measure(state, static_cast<double>(n * (7 * size_of(wide) + (dtype == wide ? 0 : size_of(dtype)))),
          [&] { b.optimizer().adamw(b.compute_stream(), step, g, w, m, v, rounded); });
}

void sgd(benchmark::State& state, DType dtype) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  constexpr std::int64_t n = 32 << 20;
  const DType wide = accumulation_type(dtype);
  const Tensor g = filled(b, wide, {n}), w = filled(b, wide, {n}), m = filled(b, wide, {n});
  const Tensor rounded = dtype == wide ? Tensor() : filled(b, dtype, {n});
  const SgdStep step{.learning_rate = 1e-3, .weight_decay = 0.1};
  measure(state, static_cast<double>(n * (5 * size_of(wide) + (dtype == wide ? 0 : size_of(dtype)))),
          [&] { b.optimizer().sgd(b.compute_stream(), step, g, w, m, rounded); });
}

void sum_squares(benchmark::State& state, DType dtype) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  constexpr std::int64_t n = 64 << 20;
  const Tensor x = filled(b, dtype, {n}), result = filled(b, DType::fp64, {1});
  measure(state, static_cast<double>(n * size_of(dtype)),
          [&] { b.reduce().sum_squares(b.compute_stream(), x, result); });
}

void add(benchmark::State& state, DType dtype) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  constexpr std::int64_t n = 32 << 20;
  const Tensor x = filled(b, dtype, {n}), y = filled(b, dtype, {n});
  measure(state, static_cast<double>(3 * n * size_of(dtype)), [&] { b.elementwise().add(b.compute_stream(), x, y); });
}

const bool registered = [] {
  const auto add_benchmark = [](const std::string& name, auto function) {
    benchmark::RegisterBenchmark(name.c_str(), function)->Unit(benchmark::kMicrosecond)->UseRealTime();
  };
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const std::string type(name_of(dtype));
    for (const double probability : {0.0, 0.1}) {
      for (const bool backward : {false, true}) {
        add_benchmark(fmt::format("{}/bias_dropout_add{}/p{}", type, backward ? "_backward" : "", probability),
                      [=](benchmark::State& state) { bias_dropout_add(state, dtype, probability, backward); });
      }
    }
    for (const bool backward : {false, true}) {
      add_benchmark(type + (backward ? "/glu_backward" : "/glu"),
                    [=](benchmark::State& state) { glu(state, dtype, backward); });
    }
    for (const std::int64_t d : {64, 128}) {
      add_benchmark(fmt::format("{}/rotate/d{}", type, d), [=](benchmark::State& state) { rotate(state, dtype, d); });
    }
    add_benchmark(type + "/adamw", [=](benchmark::State& state) { adamw(state, dtype); });
    add_benchmark(type + "/sgd", [=](benchmark::State& state) { sgd(state, dtype); });
    add_benchmark(type + "/sum_squares", [=](benchmark::State& state) { sum_squares(state, dtype); });
    add_benchmark(type + "/add", [=](benchmark::State& state) { add(state, dtype); });
  }
  return true;
}();

}  // namespace
}  // namespace trireme::bench

#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <vector>

#include "bench/kernels/ceilings.hpp"
#include "src/backend/cpu/cpu_backend.hpp"

// Kernels that the rate of memory bounds, one of each kind. kernels_calibration times all those of a step.

namespace trireme::bench {
namespace {

constexpr std::int64_t s = 2048, batch = 8, h = 1024, rows = s * batch;
constexpr std::int64_t vocabulary = 50257, columns = 50304, tokens = 1024;
constexpr std::array<std::int64_t, batch> samples = {0, 1, 2, 3, 4, 5, 6, 7};

/// A tensor of one number, not 0.
Tensor filled(Backend& b, DType dtype, const Shape& shape) {
  Tensor tensor(b, dtype, shape);
  b.elementwise().fill(b.compute_stream(), 0.37, tensor);
  return tensor;
}

struct Measurement {
  Backend& b;
  benchmark::State& state;

  /// Runs `kernel`, which moves `bytes` from and to memory, and reports GB/s relative to a copy of the same size.
  template <class Kernel>
  void run(double bytes, Kernel&& kernel) const {
    const double rate = 1e-9 * bytes * calls_per_second(state, kernel);
    report(state, "GB/s", rate, copy_ceiling(bytes, rate));
  }
};

void bias_dropout_add(const Measurement& m, DType dtype, double probability, bool backward) {
  Backend& b = m.b;
  const Dropout dropout(probability, 1, 1, DropoutSite::mlp_output, samples.data());
  const Tensor x = filled(b, dtype, {s, batch, h}), residual = filled(b, dtype, {s, batch, h});
  const Tensor bias = filled(b, dtype, {h}), dbias = filled(b, accumulation_type(dtype), {h});
  const double bytes = static_cast<double>(s * batch * h * size_of(dtype));
  m.run((backward ? 2 : 3) * bytes, [&] {
    if (backward)
      b.elementwise().bias_dropout_add_backward(b.compute_stream(), x, dropout, residual, dbias);
    else
      b.elementwise().bias_dropout_add(b.compute_stream(), x, bias, residual, dropout, residual);
  });
}

void adamw(const Measurement& m, DType dtype) {
  Backend& b = m.b;
  constexpr std::int64_t n = 32 << 20;
  const DType wide = accumulation_type(dtype);
  const Tensor g = filled(b, wide, {n}), w = filled(b, wide, {n}), mean = filled(b, wide, {n}),
               square = filled(b, wide, {n});
  const Tensor rounded = dtype == wide ? Tensor() : filled(b, dtype, {n});
  const AdamWStep step{.rates = {{{1e-3, 0.1}}}};
  m.run(static_cast<double>(n * (7 * size_of(wide) + (dtype == wide ? 0 : size_of(dtype)))),
        [&] { b.optimizer().adamw(b.compute_stream(), step, {}, g, w, mean, square, rounded); });
}

void sum_squares(const Measurement& m, DType dtype) {
  Backend& b = m.b;
  constexpr std::int64_t n = 64 << 20;
  const Tensor x = filled(b, dtype, {n}), result = filled(b, DType::fp64, {1});
  m.run(static_cast<double>(n * size_of(dtype)), [&] { b.reduce().sum_squares(b.compute_stream(), x, result); });
}

/// Operands of the kernels below: hidden states, and statistics of their rows.
struct Hidden {
  Hidden(Backend& b, DType dtype)
      : x(filled(b, dtype, {s, batch, h})),
        y(filled(b, dtype, {s, batch, h})),
        weight(filled(b, dtype, {h})),
        dweight(filled(b, accumulation_type(dtype), {h})),
        mean(filled(b, accumulation_type(dtype), {rows})),
        rstd(filled(b, accumulation_type(dtype), {rows})) {}
  Tensor x, y, weight, dweight, mean, rstd;
};

void normalise(const Measurement& m, DType dtype, bool rms) {
  Backend& b = m.b;
  const Hidden t(b, dtype);
  const TensorView bias = rms ? TensorView() : t.weight.view();
  const NormStatistics statistics{rms ? TensorView() : t.mean.view(), t.rstd};
  m.run(static_cast<double>(2 * t.x.view().size_bytes()),
        [&] { b.norm().normalise(b.compute_stream(), t.x, t.weight, bias, 1e-5, t.y, statistics); });
}

void normalise_backward(const Measurement& m, DType dtype, bool rms) {
  Backend& b = m.b;
  const Hidden t(b, dtype);
  const TensorView dbias = rms ? TensorView() : t.dweight.view();
  const NormStatistics statistics{rms ? TensorView() : t.mean.view(), t.rstd};
  const Tensor residual = filled(b, dtype, {rows, h});
  m.run(static_cast<double>(4 * t.x.view().size_bytes()), [&] {
    b.norm().normalise_backward(b.compute_stream(), t.y, t.x, t.weight, statistics, residual, residual, t.dweight,
                                dbias);
  });
}

void cross_entropy(const Measurement& m, DType dtype, bool backward) {
  Backend& b = m.b;
  Stream& stream = b.compute_stream();
  const VocabularyShard shard{0, vocabulary};
  const Tensor logits = filled(b, dtype, {tokens, columns});
  const std::vector<std::int32_t> target(tokens, 7);
  const ConstTensorView targets(target.data(), {tokens});
  const Tensor maximum = filled(b, accumulation_type(dtype), {tokens}),
               sum = filled(b, accumulation_type(dtype), {tokens});
  const double bytes = static_cast<double>(logits.view().size_bytes());
  m.run(backward ? 2 * bytes : bytes, [&] {
    if (backward)
      b.cross_entropy().backward(stream, shard, maximum, maximum, targets, maximum, 0, logits);
    else
      b.cross_entropy().statistics(stream, logits, shard, targets, maximum, sum, sum);
  });
}

template <class... Parameters>
void add_benchmark(const std::string& name, void (*function)(const Measurement&, DType, Parameters...), DType dtype,
                   std::type_identity_t<Parameters>... parameters) {
  const auto run = [=](benchmark::State& state) {
    const auto backend = cpu::make_backend(threads());
    function({*backend, state}, dtype, parameters...);
  };
  benchmark::RegisterBenchmark((std::string(name_of(dtype)) + "/" + name).c_str(), run)
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

const bool registered = [] {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const bool backward : {false, true}) {
      const std::string pass = backward ? "_backward" : "";
      for (const double p : {0.0, 0.1}) {
        const std::string probability = fmt::format("/p{}", p);
        add_benchmark("bias_dropout_add" + pass + probability, bias_dropout_add, dtype, p, backward);
      }
      add_benchmark(backward ? "cross_entropy_backward" : "cross_entropy_statistics", cross_entropy, dtype, backward);
      for (const bool rms : {false, true}) {
        add_benchmark((rms ? "rms_norm" : "layer_norm") + pass, backward ? normalise_backward : normalise, dtype, rms);
      }
    }
    add_benchmark("adamw", adamw, dtype);
    add_benchmark("sum_squares", sum_squares, dtype);
  }
  return true;
}();

}  // namespace
}  // namespace trireme::bench

// The CUDA kernels at the shapes of GPT-2 1.2B, of 124M at micro-batch 64 and of a TP-8 rank of 8.3B: time, rate, and
// share of a plain copy's or a large product's rate measured in the same run. One JSON object a line.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <vector>

#include "cuda/backend/cuda_backend.hpp"
#include "cuda/runtime/copy.hpp"
#include "src/base/hash.hpp"

namespace trireme::bench {
namespace {

struct Model {
  const char* name;
  std::int64_t s, b, h, heads, d, f, v;
};
constexpr Model models[] = {{"1.2B", 1024, 8, 1536, 16, 96, 6144, 51200},
                            {"124M", 1024, 64, 768, 12, 64, 3072, 50304},
                            {"8.3B/TP-8", 1024, 8, 3072, 4, 96, 1536, 6400}};

class Bench {
 public:
  Bench() : backend_(cuda::make_backend({}, TRIREME_CUDA_ARCHITECTURES)), b(*backend_), stream(b.compute_stream()) {
    const Tensor from = filled(DType::bf16, {std::int64_t{1} << 29}), to = filled(DType::bf16, {std::int64_t{1} << 29});
    copy_ = 2.0 * static_cast<double>(from.view().size_bytes()) /
            seconds([&] { cuda::copy(cuda::cuda_stream(stream), from, to); });
    constexpr std::int64_t n = 8192;
    const Tensor x = filled(DType::bf16, {n, n}), w = filled(DType::bf16, {n, n}), y = filled(DType::bf16, {n, n});
    product_ = 2.0 * n * n * n / seconds([&] { b.gemm().linear(stream, x, w, {}, Activation::none, {}, y); });
    std::cout << fmt::format(R"({{"kernel": "copy", "gb_per_s": {:.0f}}})", 1e-9 * copy_) << "\n"
              << fmt::format(R"({{"kernel": "product 8192", "tflops": {:.1f}}})", 1e-12 * product_) << std::endl;
  }

  /// Random numbers in [-1, 1): constants would draw less power, and let the clock rise.
  Tensor filled(DType dtype, const Shape& shape) {
    Tensor tensor(b, dtype, shape);
    const std::int64_t piece = std::min<std::int64_t>(tensor.view().numel(), 1 << 22);
    std::vector<float> values(static_cast<std::size_t>(piece));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(splitmix64(1, i) >> 40) * 0x1p-23F - 1;
    }
    const Tensor random(b, DType::fp32, {piece});
    b.copy_from_host(stream, ConstTensorView(values.data(), {piece}), random);
    for (std::int64_t begin = 0; begin < tensor.view().numel(); begin += piece) {
      const std::int64_t count = std::min(piece, tensor.view().numel() - begin);
      b.elementwise().convert(stream, random.view().flat(0, count), tensor.view().flat(begin, count));
    }
    stream.synchronize();
    return tensor;
  }
  void memory(const std::string& name, const Model& model, double bytes, const std::function<void()>& run) {
    const double time = seconds(run);
    std::cout << fmt::format(R"({{"kernel": "{}", "model": "{}", "us": {:.1f}, "gb_per_s": {:.0f}, "share": {:.3f}}})",
                             name, model.name, 1e6 * time, 1e-9 * bytes / time, bytes / time / copy_)
              << std::endl;
  }
  void products(const std::string& name, const Model& model, double operations, const std::function<void()>& run) {
    const double time = seconds(run);
    std::cout << fmt::format(R"({{"kernel": "{}", "model": "{}", "us": {:.1f}, "tflops": {:.1f}, "share": {:.3f}}})",
                             name, model.name, 1e6 * time, 1e-12 * operations / time, operations / time / product_)
              << std::endl;
  }

 private:
  std::unique_ptr<Backend> backend_;

 public:
  Backend& b;
  Stream& stream;

 private:
  /// Median over seven runs of ten calls each, after three that are not counted.
  double seconds(const std::function<void()>& run) {
    constexpr int runs = 7, calls = 10;
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) run();
    for (int i = 0; i < runs; ++i) {
      stream.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (int call = 0; call < calls; ++call) run();
      stream.synchronize();
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls);
    }
    std::ranges::nth_element(times, times.begin() + runs / 2);
    return times[runs / 2];
  }

  double copy_ = 0, product_ = 0;  // bytes and operations a second
};

void run(Bench& bench, const Model& m) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  constexpr DType type = DType::bf16;
  const std::int64_t n = m.s * m.b;
  const double hidden = 2.0 * static_cast<double>(n * m.h), wide = 2.0 * static_cast<double>(n * m.f);
  const Shape shape{m.s, m.b, m.h};
  const Tensor samples(b, DType::int64, {m.b});
  const std::vector<std::int64_t> numbers(static_cast<std::size_t>(m.b), 7);
  b.copy_from_host(stream, ConstTensorView(numbers.data(), {m.b}), samples);
  const auto* sample_numbers = samples.view().as<std::int64_t>();
  {
    const Tensor x = bench.filled(type, shape), y = bench.filled(type, shape), residual = bench.filled(type, shape);
    const Tensor sum = bench.filled(type, shape), weight = bench.filled(type, {m.h});
    const Tensor dweight = bench.filled(DType::fp32, {m.h}), mean = bench.filled(DType::fp32, {n});
    const Tensor rstd = bench.filled(DType::fp32, {n});
    const Dropout dropout(0.1, 1, 1, DropoutSite::mlp_output, sample_numbers);
    bench.memory("layer_norm", m, 2 * hidden, [&] {
      b.norm().normalise(stream, x, weight, weight, 1e-5, y, {mean, rstd});
    });
    bench.memory("rms_norm", m, 2 * hidden, [&] { b.norm().normalise(stream, x, weight, {}, 1e-5, y, {{}, rstd}); });
    bench.memory("layer_norm_backward", m, 4 * hidden, [&] {
      b.norm().normalise_backward(stream, y, x, weight, {mean, rstd}, residual, sum, dweight, dweight);
    });
    bench.memory("bias_dropout_add_norm", m, 4 * hidden, [&] {
      b.norm().bias_dropout_add_norm(stream, x, weight, residual, dropout, weight, weight, 1e-5, sum, y, {mean, rstd});
    });
    bench.memory("bias_dropout_add_backward", m, 2 * hidden,
                 [&] { b.elementwise().bias_dropout_add_backward(stream, x, dropout, y, dweight); });
  }
  {
    const Tensor x = bench.filled(type, {n, m.f}), y = bench.filled(type, {n, m.f});
    const Tensor gate_up = bench.filled(type, {n, 2 * m.f}), gradient = bench.filled(type, {n, 2 * m.f});
    bench.memory("gelu", m, 2 * wide, [&] { b.elementwise().activate(stream, Activation::gelu_tanh, x, y); });
    bench.memory("swiglu", m, 3 * wide, [&] { b.elementwise().swiglu(stream, gate_up, y); });
    bench.memory("swiglu_backward", m, 5 * wide,
                 [&] { b.elementwise().swiglu_backward(stream, y, gate_up, gradient); });
  }
  {
    const std::int64_t rows = std::min<std::int64_t>(n, 8192);
    const double bytes = 2.0 * static_cast<double>(rows * m.v);
    const Tensor logits = bench.filled(type, {rows, m.v}), maximum = bench.filled(DType::fp32, {rows});
    const Tensor sum = bench.filled(DType::fp32, {rows}), targets(b, DType::int32, {rows});
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows), 7);
    b.copy_from_host(stream, ConstTensorView(ids.data(), {rows}), targets);
    const VocabularyShard shard{0, m.v};
    bench.memory("cross_entropy_statistics", m, bytes,
                 [&] { b.cross_entropy().statistics(stream, logits, shard, targets, maximum, sum, sum); });
    bench.memory("cross_entropy_backward", m, 2 * bytes,
                 [&] { b.cross_entropy().backward(stream, shard, maximum, sum, targets, maximum, logits); });
  }
  {
    const Shape parameters{std::int64_t{1} << 28};
    const double count = static_cast<double>(parameters[0]);
    const Tensor g = bench.filled(DType::fp32, parameters), w = bench.filled(DType::fp32, parameters);
    const Tensor mean = bench.filled(DType::fp32, parameters), square = bench.filled(DType::fp32, parameters);
    const Tensor rounded = bench.filled(type, parameters), sum = bench.filled(DType::fp64, {1});
    b.elementwise().fill(stream, 1e-4, square);  // no root of it is NaN
    bench.memory("adamw", m, 30 * count,
                 [&] { b.optimizer().adamw(stream, {.learning_rate = 1e-4}, g, w, mean, square, rounded); });
    bench.memory("sum_squares", m, 4 * count, [&] { b.reduce().sum_squares(stream, g, sum); });
  }
  const Tensor qkv = bench.filled(type, {m.s, m.b, 3, m.heads, m.d}),
               dqkv = bench.filled(type, {m.s, m.b, 3, m.heads, m.d});
  const Tensor out = bench.filled(type, {m.s, m.b, m.heads, m.d}), dout = bench.filled(type, {m.s, m.b, m.heads, m.d});
  const Tensor lse(b, DType::fp32, {m.b, m.heads, m.s}), row_dot(b, DType::fp32, {m.b, m.heads, m.s});
  const std::int64_t row = m.heads * m.d;
  const auto part = [&](const Tensor& x, std::int64_t index) {
    return Heads{x.view().flat(index * row, x.view().numel() - index * row), 3 * m.b * row, 3 * row, m.d};
  };
  const auto whole = [&](const Tensor& x) { return Heads{x, m.b * row, row, m.d}; };
  const double operations =
      4.0 * static_cast<double>(m.b * row) * static_cast<double>(m.s) * static_cast<double>(m.s + 1) / 2;
  for (const double probability : {0.0, 0.1}) {
    const AttentionProblem problem{.queries = m.s,
                                   .keys = m.s,
                                   .batch = m.b,
                                   .heads = m.heads,
                                   .kv_heads = m.heads,
                                   .head_dim = m.d,
                                   .scale = 1 / std::sqrt(static_cast<double>(m.d)),
                                   .dropout = {probability, 1, 1, DropoutSite::attention_scores, sample_numbers}};
    bench.products(fmt::format("attention, dropout {}", probability), m, operations, [&] {
      b.attention().attention(stream, problem, part(qkv, 0), part(qkv, 1), part(qkv, 2), whole(out), lse);
    });
    bench.products(fmt::format("attention_backward, dropout {}", probability), m, 2.5 * operations, [&] {
      b.attention().attention_backward(stream, problem, whole(dout), part(qkv, 0), part(qkv, 1), part(qkv, 2),
                                       whole(out), lse, row_dot, part(dqkv, 0), part(dqkv, 1), part(dqkv, 2));
    });
  }
}

}  // namespace
}  // namespace trireme::bench

int main() {
  try {
    trireme::bench::Bench bench;
    for (const auto& model : trireme::bench::models) trireme::bench::run(bench, model);
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
  return 0;
}

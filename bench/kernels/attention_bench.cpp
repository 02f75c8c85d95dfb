#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "bench/kernels/ceilings.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/base/hash.hpp"

namespace trireme::bench {
namespace {

struct Heads4 {
  std::int64_t batch, s, heads, d;
};
constexpr Heads4 shapes[] = {{8, 256, 4, 64}, {4, 256, 12, 64}, {4, 1024, 4, 64}, {2, 1024, 12, 64}, {1, 1024, 16, 96}};

/// Random numbers of order one, in a fused tensor [s, b, 3, heads, d] of queries, keys and values or in part of one.
Tensor random_heads(Backend& b, DType dtype, const Heads4& shape, std::int64_t count) {
  Tensor tensor(b, dtype, {shape.s, shape.batch, count, shape.heads, shape.d});
  std::vector<double> values(static_cast<std::size_t>(tensor.view().numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(splitmix64(count, i) >> 40) * 0x1p-23 - 1;
  b.elementwise().convert(b.compute_stream(), ConstTensorView(values.data(), tensor.view().shape()), tensor);
  return tensor;
}

template <class View>
HeadsOf<View> heads_of(const Tensor& tensor, std::int64_t index) {
  const Shape shape = tensor.view().shape();
  const std::int64_t h = shape[3] * shape[4];
  const std::int64_t size = tensor.view().numel() - index * h;
  return {tensor.view().flat(index * h, size), shape[1] * shape[2] * h, shape[2] * h, shape[4]};
}

/// Reports the operations of the products alone (2 forward, 5 backward), of which causal attention needs half, beside
/// the rate of a large product.
void attention(benchmark::State& state, DType dtype, const Heads4& shape, double probability, bool backward) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const Tensor qkv = random_heads(b, dtype, shape, 3), dqkv = random_heads(b, dtype, shape, 3);
  const Tensor out = random_heads(b, dtype, shape, 1), dout = random_heads(b, dtype, shape, 1);
  const Shape rows{shape.batch, shape.heads, shape.s};
  const Tensor log_sum_exp(b, accumulation_type(dtype), rows), row_dot(b, accumulation_type(dtype), rows);
  std::vector<std::int64_t> samples(static_cast<std::size_t>(shape.batch));
  std::iota(samples.begin(), samples.end(), 0);
  const AttentionProblem problem{.queries = shape.s,
                                 .keys = shape.s,
                                 .batch = shape.batch,
                                 .heads = shape.heads,
                                 .kv_heads = shape.heads,
                                 .head_dim = shape.d,
                                 .scale = 1 / std::sqrt(static_cast<double>(shape.d)),
                                 .causal = true,
                                 .dropout = {probability, 1, 1, DropoutSite::attention_scores, samples.data()},
                                 .first_head = 0};
  const auto q = heads_of<ConstTensorView>(qkv, 0), k = heads_of<ConstTensorView>(qkv, 1);
  const auto v = heads_of<ConstTensorView>(qkv, 2);
  b.attention().attention(stream, problem, q, k, v, heads_of<TensorView>(out, 0), log_sum_exp);
  for (auto _ : state) {
    if (backward) {
      b.attention().attention_backward(
          stream, problem, heads_of<ConstTensorView>(dout, 0), q, k, v, heads_of<ConstTensorView>(out, 0), log_sum_exp,
          row_dot, heads_of<TensorView>(dqkv, 0), heads_of<TensorView>(dqkv, 1), heads_of<TensorView>(dqkv, 2));
    } else {
      b.attention().attention(stream, problem, q, k, v, heads_of<TensorView>(out, 0), log_sum_exp);
    }
  }
  const double visible =
      static_cast<double>(shape.batch * shape.heads * shape.s) * static_cast<double>(shape.s + 1) / 2;
  const double operations = (backward ? 5 : 2) * 2e-9 * visible * static_cast<double>(shape.d);
  report_products(state, operations, dtype);
}

const bool registered = [] {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::fp64}) {
    for (const Heads4& shape : shapes) {
      for (const double probability : {0.0, 0.1}) {
        for (const bool backward : {false, true}) {
          benchmark::RegisterBenchmark(
              fmt::format("{}/attention{}/b{}_s{}_{}x{}/p{}", name_of(dtype), backward ? "_backward" : "", shape.batch,
                          shape.s, shape.heads, shape.d, probability)
                  .c_str(),
              [=](benchmark::State& state) { attention(state, dtype, shape, probability, backward); })
              ->Unit(benchmark::kMicrosecond)
              ->UseRealTime();
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace trireme::bench

#include <array>
#include <vector>

#include "bench/kernels/memory_bound.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/base/hash.hpp"

namespace trireme::bench {
namespace {

constexpr std::int64_t s = 2048, batch = 8, h = 1024, rows = s * batch;
constexpr std::int64_t vocabulary = 50257, columns = 50304, tokens = 1024;
constexpr std::array<std::int64_t, batch> samples = {0, 1, 2, 3, 4, 5, 6, 7};

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

void normalise(benchmark::State& state, DType dtype, bool rms) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  const Hidden t(b, dtype);
  const TensorView bias = rms ? TensorView() : t.weight.view();
  const NormStatistics statistics{rms ? TensorView() : t.mean.view(), t.rstd};
  measure(state, static_cast<double>(2 * t.x.view().size_bytes()),
          [&] { b.norm().normalise(b.compute_stream(), t.x, t.weight, bias, 1e-5, t.y, statistics); });
}

void normalise_backward(benchmark::State& state, DType dtype, bool rms) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  const Hidden t(b, dtype);
  const TensorView dbias = rms ? TensorView() : t.dweight.view();
  const NormStatistics statistics{rms ? TensorView() : t.mean.view(), t.rstd};
  const Tensor residual = filled(b, dtype, {rows, h});
  measure(state, static_cast<double>(4 * t.x.view().size_bytes()), [&] {
    b.norm().normalise_backward(b.compute_stream(), t.y, t.x, t.weight, statistics, residual, residual, t.dweight,
                                dbias);
  });
}

void bias_dropout_add_norm(benchmark::State& state, DType dtype, double probability) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  const Hidden t(b, dtype);
  const Tensor residual = filled(b, dtype, {rows, h});
  const Dropout dropout(probability, 1, 1, DropoutSite::mlp_output, samples.data());
  measure(state, static_cast<double>(4 * t.x.view().size_bytes()), [&] {
    b.norm().bias_dropout_add_norm(b.compute_stream(), t.x, t.weight, residual, dropout, t.weight, t.weight, 1e-5,
                                   residual, t.y, {t.mean, t.rstd});
  });
}

void embedding(benchmark::State& state, DType dtype, bool backward) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  std::vector<std::int32_t> id(rows);
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::int32_t>(splitmix64(1, i) % vocabulary);
  const ConstTensorView ids(id.data(), {rows});
  const Tensor y = filled(b, dtype, {rows, h});
  const DType accumulation = accumulation_type(dtype);
  const Tensor table = filled(b, backward ? accumulation : dtype, {vocabulary, h});
  const double bytes = static_cast<double>(y.view().size_bytes());
  const double sums = static_cast<double>(rows * h * size_of(accumulation));
  measure(state, backward ? bytes + 2 * sums : 2 * bytes, [&] {
    if (backward)
      b.embedding().lookup_backward(b.compute_stream(), ids, y, 0, table);
    else
      b.embedding().lookup(b.compute_stream(), ids, table, 0, y);
  });
}

void add_positions(benchmark::State& state, DType dtype, double probability, bool backward) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  const Hidden t(b, dtype);
  const Tensor table = filled(b, backward ? accumulation_type(dtype) : dtype, {s, h});
  const Dropout dropout(probability, 1, 0, DropoutSite::embedding, samples.data());
  measure(state, static_cast<double>(2 * t.x.view().size_bytes()), [&] {
    if (backward)
      b.embedding().add_positions_backward(b.compute_stream(), t.x, {}, dropout, t.y, table);
    else
      b.embedding().add_positions(b.compute_stream(), table, {}, dropout, t.x);
  });
}

void cross_entropy(benchmark::State& state, DType dtype, bool backward) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const VocabularyShard shard{0, vocabulary};
  const Tensor logits = filled(b, dtype, {tokens, columns});
  const std::vector<std::int32_t> target(tokens, 7);
  const ConstTensorView targets(target.data(), {tokens});
  const Tensor maximum = filled(b, accumulation_type(dtype), {tokens}),
               sum = filled(b, accumulation_type(dtype), {tokens});
  const double bytes = static_cast<double>(logits.view().size_bytes());
  measure(state, backward ? 2 * bytes : bytes, [&] {
    if (backward)
      b.cross_entropy().backward(stream, shard, maximum, maximum, targets, maximum, logits);
    else
      b.cross_entropy().statistics(stream, logits, shard, targets, maximum, sum, sum);
  });
}

const bool registered = [] {
  const auto add = [](const std::string& name, auto function) {
    benchmark::RegisterBenchmark(name.c_str(), function)->Unit(benchmark::kMicrosecond)->UseRealTime();
  };
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const std::string type(name_of(dtype));
    for (const bool rms : {false, true}) {
      const std::string kind = rms ? "/rms_norm" : "/layer_norm";
      add(type + kind, [=](benchmark::State& state) { normalise(state, dtype, rms); });
      add(type + kind + "_backward", [=](benchmark::State& state) { normalise_backward(state, dtype, rms); });
    }
    add(type + "/lookup", [=](benchmark::State& state) { embedding(state, dtype, false); });
    add(type + "/lookup_backward", [=](benchmark::State& state) { embedding(state, dtype, true); });
    for (const double p : {0.0, 0.1}) {
      add(fmt::format("{}/bias_dropout_add_norm/p{}", type, p),
          [=](benchmark::State& state) { bias_dropout_add_norm(state, dtype, p); });
      add(fmt::format("{}/add_positions/p{}", type, p),
          [=](benchmark::State& state) { add_positions(state, dtype, p, false); });
      add(fmt::format("{}/add_positions_backward/p{}", type, p),
          [=](benchmark::State& state) { add_positions(state, dtype, p, true); });
    }
    add(type + "/cross_entropy_statistics", [=](benchmark::State& state) { cross_entropy(state, dtype, false); });
    add(type + "/cross_entropy_backward", [=](benchmark::State& state) { cross_entropy(state, dtype, true); });
  }
  return true;
}();

}  // namespace
}  // namespace trireme::bench

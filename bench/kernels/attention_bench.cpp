#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
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

/// Attention of one shape, forward or backward.
class AttentionCall {
 public:
  AttentionCall(DType dtype, const Heads4& shape, double probability, bool backward)
      : backend_(cpu::make_backend(threads())),
        backward_(backward),
        samples_(static_cast<std::size_t>(shape.batch)),
        qkv_(random_heads(*backend_, dtype, shape, 3)),
        dqkv_(random_heads(*backend_, dtype, shape, 3)),
        out_(random_heads(*backend_, dtype, shape, 1)),
        dout_(random_heads(*backend_, dtype, shape, 1)),
        log_sum_exp_(*backend_, accumulation_type(dtype), {shape.batch, shape.heads, shape.s}),
        row_dot_(*backend_, accumulation_type(dtype), {shape.batch, shape.heads, shape.s}) {
    std::iota(samples_.begin(), samples_.end(), 0);
    problem = {.queries = shape.s,
               .keys = shape.s,
               .batch = shape.batch,
               .heads = shape.heads,
               .kv_heads = shape.heads,
               .head_dim = shape.d,
               .scale = 1 / std::sqrt(static_cast<double>(shape.d)),
               .dropout = {probability, 1, 1, DropoutSite::attention_scores, samples_.data()}};
    forward();
  }
  void run() const {
    if (!backward_) return forward();
    backend_->attention().attention_backward(backend_->compute_stream(), problem, heads_of<ConstTensorView>(dout_, 0),
                                             heads_of<ConstTensorView>(qkv_, 0), heads_of<ConstTensorView>(qkv_, 1),
                                             heads_of<ConstTensorView>(qkv_, 2), heads_of<ConstTensorView>(out_, 0),
                                             log_sum_exp_, row_dot_, heads_of<TensorView>(dqkv_, 0),
                                             heads_of<TensorView>(dqkv_, 1), heads_of<TensorView>(dqkv_, 2));
  }
  /// Time of a call of `one`.
  double seconds(const AttentionProblem& one) {
    problem = one;
    if (backward_) forward();  // queries that attend to fewer keys have other statistics
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  AttentionProblem problem;

 private:
  void forward() const {
    backend_->attention().attention(backend_->compute_stream(), problem, heads_of<ConstTensorView>(qkv_, 0),
                                    heads_of<ConstTensorView>(qkv_, 1), heads_of<ConstTensorView>(qkv_, 2),
                                    heads_of<TensorView>(out_, 0), log_sum_exp_);
  }

  std::unique_ptr<Backend> backend_;
  bool backward_;
  std::vector<std::int64_t> samples_;
  Tensor qkv_, dqkv_, out_, dout_, log_sum_exp_, row_dot_;
};

/// Reports the operations of the products only (2 forward, 5 backward), half of which causal attention needs, relative
/// to the rate of a large product.
void attention(benchmark::State& state, DType dtype, const Heads4& shape, double probability, bool backward) {
  const AttentionCall call(dtype, shape, probability, backward);
  const double visible =
      static_cast<double>(shape.batch * shape.heads * shape.s) * static_cast<double>(shape.s + 1) / 2;
  const double operations = (backward ? 5 : 2) * 2e-9 * visible * static_cast<double>(shape.d);
  measure_products(state, operations, dtype, [&] { call.run(); });
}

/// Masks that leave fewer pairs of a query and a key.
enum class Mask {
  padding,    ///< BERT's: samples fill a quarter of their sequence
  documents,  ///< eight documents in each sample, mutually masked: an eighth of an eighth of the pairs each
  window      ///< over an eighth of the sequence
};

/// Attention with a mask, alternating with attention of full samples, undivided samples or the entire past. `gain` is
/// the time of the latter relative to that with the mask.
void masked_attention(benchmark::State& state, DType dtype, const Heads4& shape, double probability, bool backward,
                      Mask mask) {
  AttentionCall call(dtype, shape, probability, backward);
  const auto lengths_of = [&](std::int64_t length) {
    return std::vector(static_cast<std::size_t>(shape.batch), static_cast<std::int32_t>(length));
  };
  const std::vector<std::int32_t> full = lengths_of(shape.s), quarter = lengths_of(shape.s / 4);
  std::vector<std::int32_t> first_visible;
  const std::int64_t document = shape.s / 8 + 1;  // ends within tiles
  for (std::int64_t i = 0; i < shape.s * shape.batch; ++i) {
    first_visible.push_back(static_cast<std::int32_t>(i / shape.batch / document * document));
  }
  AttentionProblem whole = call.problem;
  if (mask == Mask::padding) {
    whole.causal = false;
    whole.lengths = full.data();
  }
  AttentionProblem masked = whole;
  if (mask == Mask::padding) masked.lengths = quarter.data();
  if (mask == Mask::documents) masked.first_visible = first_visible.data();
  if (mask == Mask::window) masked.window = shape.s / 8 - 1;
  call.seconds(whole);
  double of_whole = 0, of_masked = 0;
  for (auto _ : state) {
    const double seconds = call.seconds(masked);
    state.SetIterationTime(seconds);
    of_masked += seconds;
    of_whole += call.seconds(whole);
  }
  state.counters["gain"] = of_whole / of_masked;
}

const bool registered = [] {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::fp64}) {
    for (const double probability : {0.0, 0.1}) {
      for (const bool backward : {false, true}) {
        const auto add = [&](const char* kind, const Heads4& shape, auto function) {
          const std::string name =
              fmt::format("{}/{}{}/b{}_s{}_{}x{}/p{}", name_of(dtype), kind, backward ? "_backward" : "", shape.batch,
                          shape.s, shape.heads, shape.d, probability);
          const auto run = [=](benchmark::State& state) { function(state, dtype, shape, probability, backward); };
          return benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond);
        };
        const auto add_masked = [&](const char* kind, const Heads4& shape, Mask mask) {
          add(kind, shape, [mask](auto&&... arguments) { masked_attention(arguments..., mask); })->UseManualTime();
        };
        for (const Heads4& shape : shapes) add("attention", shape, attention)->UseRealTime();
        add_masked("padded_attention", {4, 512, 16, 64}, Mask::padding);
        add_masked("packed_attention", {1, 2048, 8, 64}, Mask::documents);
        add_masked("windowed_attention", {1, 2048, 8, 64}, Mask::window);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace trireme::bench

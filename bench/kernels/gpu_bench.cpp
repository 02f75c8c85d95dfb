// The CUDA kernels at the shapes of GPT-2 1.2B, of 124M at micro-batch 64 and of a TP-8 rank of 8.3B, and attention at
// the shapes that others publish: time, rate, and share of what a plain copy or a large product reaches in the same
// run. usage: kernels_gpu_bench [--json FILE] [--dry-run]
//   --json FILE   also one JSON object a line
//   --dry-run     tiny shapes on the CPU backend: whether this program works
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <vector>

#include "cuda/backend/cuda_backend.hpp"
#include "cuda/runtime/copy.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/base/hash.hpp"

namespace trireme::bench {
namespace {

struct Model {
  const char* name;
  std::int64_t s, b, h, heads, d, f, v;
};

/// Measures and prints.
class Bench {
 public:
  Bench(Backend& backend, bool dry_run, std::ostream& json)
      : b(backend), stream(b.compute_stream()), dry_run_(dry_run), json_(json) {
    fmt::print("{}\n{:<34} {:<28} {:<5} {:>10} {:>14} {:>6}\n", b.description(), "kernel", "shape", "type", "us",
               "rate", "share");
    const Shape bytes{dry_run ? 1 << 16 : 1 << 29};
    const Tensor from = filled(DType::bf16, bytes), to = filled(DType::bf16, bytes);
    measure({"copy", fmt::format("{} MiB", from.view().size_bytes() >> 20), DType::bf16, "GB/s", 1e-9}, copy_,
            2.0 * static_cast<double>(from.view().size_bytes()), [&](int) {
              if (b.memory_is_host())
                b.elementwise().convert(stream, from, to);
              else
                cuda::copy(cuda::cuda_stream(stream), from, to);
            });
    const std::int64_t n = dry_run ? 64 : 8192;
    const Tensor x = filled(DType::bf16, {n, n}), w = filled(DType::bf16, {n, n}), y = filled(DType::bf16, {n, n});
    measure({"product", fmt::format("{0} x {0} x {0}", n), DType::bf16, "TFLOP/s", 1e-12}, product_,
            2.0 * static_cast<double>(n * n * n),
            [&](int) { b.gemm().linear(stream, x, w, {}, Activation::none, {}, y); });
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

  using Run = std::function<void(int call)>;  // calls are numbered, so that they can take turns with memory
  /// A kernel that moves `bytes` from and to memory, as its definition has it: each input once, each output once.
  void memory(const std::string& kernel, const std::string& shape, double bytes, const Run& run) {
    measure({kernel, shape, DType::bf16, "GB/s", 1e-9}, copy_, bytes, run);
  }
  /// One on tensor cores.
  void products(const std::string& kernel, const std::string& shape, double operations, const Run& run) {
    measure({kernel, shape, DType::bf16, "TFLOP/s", 1e-12}, product_, operations, run);
  }
  /// How many tensors of a size it takes that no call finds its own in the caches.
  int copies_beyond_caches(double bytes) const { return dry_run_ ? 2 : static_cast<int>(4e8 / bytes) + 1; }

  Backend& b;
  Stream& stream;

 private:
  struct Line {
    std::string kernel, shape;
    DType dtype;
    const char* unit;
    double per_unit;
  };
  /// `ceiling` is set where it is still 0.
  void measure(const Line& line, double& ceiling, double amount, const Run& run) {
    const double time = seconds(run), rate = amount / time;
    if (ceiling == 0) ceiling = rate;
    fmt::print("{:<34} {:<28} {:<5} {:>10.1f} {:>6.{}f} {:<7} {:>6.3f}\n", line.kernel, line.shape, name_of(line.dtype),
               1e6 * time, line.per_unit * rate, line.per_unit == 1e-9 ? 0 : 1, line.unit, rate / ceiling);
    std::fflush(stdout);
    json_
        << fmt::format(
               R"({{"kernel": "{}", "shape": "{}", "dtype": "{}", "us": {:.2f}, "rate": {:.4g}, "unit": "{}", "share": {:.4f}}})",
               line.kernel, line.shape, name_of(line.dtype), 1e6 * time, line.per_unit * rate, line.unit,
               rate / ceiling)
        << std::endl;
  }
  /// Median over seven runs of at least ten calls and 2 ms each, after calls that are not counted.
  double seconds(const Run& run) {
    int call = 0;
    const auto time_of = [&](int calls) {
      stream.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) run(call++);
      stream.synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
    };
    time_of(3);
    const int calls = dry_run_ ? 2 : std::clamp(static_cast<int>(2e-3 / time_of(10)), 10, 1000);
    std::vector<double> times(7);
    for (double& time : times) time = time_of(calls);
    std::ranges::nth_element(times, times.begin() + 3);
    return times[3];
  }

  bool dry_run_;
  std::ostream& json_;
  double copy_ = 0, product_ = 0;  // bytes and operations a second
};

Tensor sample_numbers(Backend& b, std::int64_t count) {
  Tensor samples(b, DType::int64, {count});
  const std::vector<std::int64_t> numbers(static_cast<std::size_t>(count), 7);
  b.copy_from_host(b.compute_stream(), ConstTensorView(numbers.data(), {count}), samples);
  b.compute_stream().synchronize();
  return samples;
}
Tensor tokens(Backend& b, std::int64_t count, std::int64_t below) {
  Tensor tensor(b, DType::int32, {count});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // The larger the number, the rarer, as in text.
    const double u = static_cast<double>(splitmix64(2, i) >> 11) * 0x1p-53;
    ids[i] = static_cast<std::int32_t>(std::pow(static_cast<double>(below), u)) - 1;
  }
  b.copy_from_host(b.compute_stream(), ConstTensorView(ids.data(), {count}), tensor);
  b.compute_stream().synchronize();
  return tensor;
}

/// Layer norms, dropout, residuals and embeddings.
void run_hidden(Bench& bench, const Model& m) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const std::int64_t n = m.s * m.b;
  const double bytes = 2.0 * static_cast<double>(n * m.h);
  const std::string name = fmt::format("{}: {} x {}", m.name, n, m.h);
  const Shape shape{m.s, m.b, m.h};
  const Tensor samples = sample_numbers(b, m.b);
  const Dropout dropout(0.1, 1, 1, DropoutSite::mlp_output, samples.view().as<std::int64_t>());
  struct Tensors {
    Tensor x, y, residual, sum;
  };
  std::vector<Tensors> sets;
  for (int i = 0; i < bench.copies_beyond_caches(4 * bytes); ++i) {
    sets.emplace_back(bench.filled(DType::bf16, shape), bench.filled(DType::bf16, shape),
                      bench.filled(DType::bf16, shape), bench.filled(DType::bf16, shape));
  }
  const auto of = [&](int call) -> Tensors& { return sets[static_cast<std::size_t>(call) % sets.size()]; };
  const Tensor weight = bench.filled(DType::bf16, {m.h}), dweight = bench.filled(DType::fp32, {m.h});
  const Tensor mean = bench.filled(DType::fp32, {n}), rstd = bench.filled(DType::fp32, {n});
  bench.memory("layer norm", name, 2 * bytes, [&](int call) {
    b.norm().normalise(stream, of(call).x, weight, weight, 1e-5, of(call).y, {mean, rstd});
  });
  bench.memory("layer norm, backward + residual", name, 4 * bytes, [&](int call) {
    b.norm().normalise_backward(stream, of(call).y, of(call).x, weight, {mean, rstd}, of(call).residual, of(call).sum,
                                dweight, dweight);
  });
  bench.memory("RMSNorm", name, 2 * bytes, [&](int call) {
    b.norm().normalise(stream, of(call).x, weight, {}, 1e-5, of(call).y, {{}, rstd});
  });
  bench.memory("RMSNorm, backward + residual", name, 4 * bytes, [&](int call) {
    b.norm().normalise_backward(stream, of(call).y, of(call).x, weight, {{}, rstd}, of(call).residual, of(call).sum,
                                dweight, {});
  });
  bench.memory("bias + dropout + residual + norm", name, 4 * bytes, [&](int call) {
    b.norm().bias_dropout_add_norm(stream, of(call).x, weight, of(call).residual, dropout, weight, weight, 1e-5,
                                   of(call).sum, of(call).y, {mean, rstd});
  });
  bench.memory("bias + dropout, backward", name, 2 * bytes, [&](int call) {
    b.elementwise().bias_dropout_add_backward(stream, of(call).x, dropout, of(call).y, dweight);
  });
  const Tensor ids = tokens(b, n, m.v), table = bench.filled(DType::bf16, {m.v, m.h});
  const Tensor dtable = bench.filled(DType::fp32, {m.v, m.h}), positions = bench.filled(DType::bf16, {m.s, m.h});
  bench.memory("embedding", name, 2 * bytes,
               [&](int call) { b.embedding().lookup(stream, ids, table, 0, of(call).y); });
  bench.memory("embedding, backward", name, bytes,
               [&](int call) { b.embedding().lookup_backward(stream, ids, of(call).y, 0, dtable); });
  bench.memory("positions + dropout", name, 2 * bytes,
               [&](int call) { b.embedding().add_positions(stream, positions, {}, dropout, of(call).x); });
}

/// The inner layer of the MLP, cross entropy, and what goes over all parameters.
void run_wide(Bench& bench, const Model& m, std::int64_t parameters) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const std::int64_t n = m.s * m.b;
  {
    const double bytes = 2.0 * static_cast<double>(n * m.f);
    const std::string name = fmt::format("{}: {} x {}", m.name, n, m.f);
    const Tensor x = bench.filled(DType::bf16, {n, m.f}), y = bench.filled(DType::bf16, {n, m.f});
    const Tensor gate_up = bench.filled(DType::bf16, {n, 2 * m.f}), gradient = bench.filled(DType::bf16, {n, 2 * m.f});
    bench.memory("GELU", name, 2 * bytes, [&](int) { b.elementwise().activate(stream, Activation::gelu_tanh, x, y); });
    bench.memory("SwiGLU", name, 3 * bytes, [&](int) { b.elementwise().swiglu(stream, gate_up, y); });
    bench.memory("SwiGLU, backward", name, 5 * bytes,
                 [&](int) { b.elementwise().swiglu_backward(stream, y, gate_up, gradient); });
  }
  {
    const std::int64_t rows = std::min<std::int64_t>(n, 8192);
    const double bytes = 2.0 * static_cast<double>(rows * m.v);
    const std::string name = fmt::format("{}: {} x {}", m.name, rows, m.v);
    const Tensor logits = bench.filled(DType::bf16, {rows, m.v}), maximum = bench.filled(DType::fp32, {rows});
    const Tensor sum = bench.filled(DType::fp32, {rows}), target = bench.filled(DType::fp32, {rows});
    const Tensor targets = tokens(b, rows, m.v);
    const VocabularyShard shard{0, m.v};
    CrossEntropyKernels& kernels = b.cross_entropy();
    bench.memory("cross entropy", name, bytes,
                 [&](int) { kernels.statistics(stream, logits, shard, targets, maximum, sum, target); });
    bench.memory("cross entropy, backward", name, 2 * bytes,
                 [&](int) { kernels.backward(stream, shard, maximum, sum, targets, target, logits); });
  }
  {
    const Shape shape{parameters};
    const double count = static_cast<double>(parameters);
    const std::string name = fmt::format("{} parameters", parameters);
    const Tensor g = bench.filled(DType::fp32, shape), w = bench.filled(DType::fp32, shape);
    const Tensor mean = bench.filled(DType::fp32, shape), square = bench.filled(DType::fp32, shape);
    const Tensor rounded = bench.filled(DType::bf16, shape), sum = bench.filled(DType::fp64, {1});
    b.elementwise().fill(stream, 1e-4, square);  // no root of it is NaN
    bench.memory("AdamW", name, 30 * count,
                 [&](int) { b.optimizer().adamw(stream, {.learning_rate = 1e-4}, g, w, mean, square, rounded); });
    bench.memory("norm of gradients", name, 4 * count, [&](int) { b.reduce().sum_squares(stream, g, sum); });
    bench.memory("cast to bf16", name, 6 * count, [&](int) { b.elementwise().convert(stream, w, rounded); });
  }
}

/// The four linear layers, each in three products.
void run_products(Bench& bench, const Model& m) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const std::int64_t n = m.s * m.b, attended = m.heads * m.d;
  struct Linear {
    const char* name;
    std::int64_t in, out;
    bool activated;
  };
  for (const auto& [layer, in, out, activated] : {Linear{"qkv", m.h, 3 * attended, false},
                                                  {"proj", attended, m.h, false},
                                                  {"fc + GELU", m.h, m.f, true},
                                                  {"fc_proj", m.f, m.h, false}}) {
    const std::string name = fmt::format("{}: {} x {} x {}", m.name, n, out, in);
    const double operations = 2.0 * static_cast<double>(n * in) * static_cast<double>(out);
    const Tensor x = bench.filled(DType::bf16, {n, in}), w = bench.filled(DType::bf16, {out, in});
    const Tensor bias = bench.filled(DType::bf16, {out}), y = bench.filled(DType::bf16, {n, out});
    const Tensor z = activated ? bench.filled(DType::bf16, {n, out}) : Tensor();
    const Tensor dw = bench.filled(DType::fp32, {out, in}), dbias = bench.filled(DType::fp32, {out});
    // The layer behind an activated one ends its backward with the activation's.
    const bool after = std::string_view(layer) == "fc_proj";
    const Tensor before = after ? bench.filled(DType::bf16, {n, in}) : Tensor();
    bench.products(fmt::format("{}, forward", layer), name, operations, [&](int) {
      b.gemm().linear(stream, x, w, bias, activated ? Activation::gelu_tanh : Activation::none, z, y);
    });
    bench.products(fmt::format("{}, input gradient{}", layer, after ? " + GELU's" : ""), name, operations, [&](int) {
      b.gemm().linear_backward_input(stream, y, w, after ? Activation::gelu_tanh : Activation::none, before, x);
    });
    bench.products(fmt::format("{}, weight gradient", layer), name, operations,
                   [&](int) { b.gemm().linear_backward_weight(stream, y, x, dw, dbias); });
  }
}

struct AttentionShape {
  std::string name;
  std::int64_t s, b, heads, d;
  bool causal = true;
  double dropout = 0;
};
void run_attention(Bench& bench, const AttentionShape& a) {
  Backend& b = bench.b;
  const Tensor samples = sample_numbers(b, a.b);
  const std::int64_t row = a.heads * a.d;
  const Tensor qkv = bench.filled(DType::bf16, {a.s, a.b, 3, a.heads, a.d}),
               dqkv = bench.filled(DType::bf16, {a.s, a.b, 3, a.heads, a.d});
  const Tensor out = bench.filled(DType::bf16, {a.s, a.b, a.heads, a.d}),
               dout = bench.filled(DType::bf16, {a.s, a.b, a.heads, a.d});
  const Tensor lse(b, DType::fp32, {a.b, a.heads, a.s}), row_dot(b, DType::fp32, {a.b, a.heads, a.s});
  const auto part = [&](const Tensor& x, std::int64_t index) {
    return Heads{x.view().flat(index * row, x.view().numel() - index * row), 3 * a.b * row, 3 * row, a.d};
  };
  const auto whole = [&](const Tensor& x) { return Heads{x, a.b * row, row, a.d}; };
  // A causal mask leaves half of the pairs.
  const double pairs = static_cast<double>(a.s) * static_cast<double>(a.causal ? a.s + 1 : 2 * a.s) / 2;
  const double operations = 4.0 * static_cast<double>(a.b * row) * pairs;
  const AttentionProblem problem{
      .queries = a.s,
      .keys = a.s,
      .batch = a.b,
      .heads = a.heads,
      .kv_heads = a.heads,
      .head_dim = a.d,
      .scale = 1 / std::sqrt(static_cast<double>(a.d)),
      .causal = a.causal,
      .dropout = {a.dropout, 1, 1, DropoutSite::attention_scores, samples.view().as<std::int64_t>()}};
  const std::string kind =
      fmt::format("{}{}", a.causal ? "causal" : "full", a.dropout > 0 ? fmt::format(", dropout {}", a.dropout) : "");
  const std::string name = fmt::format("{}{} x {} x {} x {}", a.name, a.b, a.s, a.heads, a.d);
  bench.products("attention, " + kind, name, operations, [&](int) {
    b.attention().attention(bench.stream, problem, part(qkv, 0), part(qkv, 1), part(qkv, 2), whole(out), lse);
  });
  bench.products("its backward", name, 2.5 * operations, [&](int) {
    b.attention().attention_backward(bench.stream, problem, whole(dout), part(qkv, 0), part(qkv, 1), part(qkv, 2),
                                     whole(out), lse, row_dot, part(dqkv, 0), part(dqkv, 1), part(dqkv, 2));
  });
}

void run(Backend& backend, bool dry_run, std::ostream& json) {
  Bench bench(backend, dry_run, json);
  std::vector<Model> models{{"1.2B", 1024, 8, 1536, 16, 96, 6144, 51200},
                            {"124M", 1024, 64, 768, 12, 64, 3072, 50304},
                            {"8.3B/TP-8", 1024, 8, 3072, 4, 96, 1536, 6400}};
  if (dry_run) models = {{"tiny", 16, 2, 64, 1, 64, 128, 256}};
  for (const Model& m : models) {
    run_hidden(bench, m);
    run_wide(bench, m, dry_run ? 1 << 12 : 1 << 28);
    run_products(bench, m);
    for (const double dropout : {0.0, 0.1}) {
      run_attention(bench, {fmt::format("{}: ", m.name), m.s, m.b, m.heads, m.d, true, dropout});
    }
  }
  // 16k tokens and 2048 channels, as the papers on flash attention have them.
  for (const std::int64_t d : {64, 128}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t s : {1024, 2048}) {
        if (!dry_run) run_attention(bench, {"", s, 16384 / s, 2048 / d, d, causal});
      }
    }
  }
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  bool dry_run = false;
  std::ofstream json;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--dry-run") {
      dry_run = true;
    } else if (arguments[i] == "--json" && i + 1 < arguments.size()) {
      json.open(arguments[++i]);
      if (!json) return std::cerr << "cannot write " << arguments[i] << "\n", 5;
    } else {
      return std::cerr << "usage: kernels_gpu_bench [--json FILE] [--dry-run]\n", 2;
    }
  }
  try {
    const auto backend = dry_run ? cpu::make_backend(1) : cuda::make_backend({}, TRIREME_CUDA_ARCHITECTURES);
    bench::run(*backend, dry_run, json);
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
  return 0;
}

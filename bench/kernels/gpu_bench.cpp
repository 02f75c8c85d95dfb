// The CUDA kernels at the shapes of GPT-2 1.2B, of 124M at micro-batch 64 and of a TP-8 rank of 8.3B. Attention also
// at published shapes, and once more by warp groups, last. Prints time, rate, and the share of the rate of a copy of as
// many bytes or a large product in the same run.
//
// usage: kernels_gpu_bench [--attention | --profile] [--gemm-cache FILE] [--json FILE] [--dry-run]
//
//   --attention         attention alone
//   --profile           only the kernels of GPT-2 1.2B, each called once for a profiler; printed times are invalid
//   --gemm-cache FILE   file with the fastest algorithm of each product, read and extended
//   --json FILE         also one JSON object a line
//   --dry-run           tiny shapes on the CPU backend, to test this program
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <vector>

#include "bench/kernels/gpu_experts.hpp"
#include "bench/kernels/gpu_measure.hpp"
#include "cuda/backend/cuda_backend.hpp"
#include "cuda/kernels/epilogue.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/kernels/attention_problem.hpp"
#include "src/backend/kernels/warp_groups.hpp"
#include "src/base/hash.hpp"

namespace trireme::bench {
namespace {

struct Model {
  const char* name;
  std::int64_t s, b, h, heads, d, f, v;
};

template <class T>
Tensor uploaded(Backend& b, const std::vector<T>& values) {
  const Shape shape{std::ssize(values)};
  Tensor tensor(b, dtype_of<T>(), shape);
  b.copy_from_host(b.compute_stream(), ConstTensorView(values.data(), shape), tensor);
  b.compute_stream().synchronize();
  return tensor;
}
Tensor tokens(Backend& b, std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // Larger ids are rarer, as in text.
    const double u = static_cast<double>(splitmix64(2, i) >> 11) * 0x1p-53;
    ids[i] = static_cast<std::int32_t>(std::pow(static_cast<double>(below), u)) - 1;
  }
  return uploaded(b, ids);
}

/// Layer norms, dropout, residuals and embeddings.
void run_hidden(GpuMeasure& bench, const Model& m) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const std::int64_t n = m.s * m.b;
  const double bytes = 2.0 * static_cast<double>(n * m.h);
  const std::string name = fmt::format("{}: {} x {}", m.name, n, m.h);
  const Shape shape{m.s, m.b, m.h};
  const Tensor samples = uploaded(b, std::vector<std::int64_t>(static_cast<std::size_t>(m.b), 7));
  const Dropout dropout(0.1, 1, 1, DropoutSite::mlp_output, samples.view().as<std::int64_t>());
  struct Tensors {
    Tensor x, y, residual, sum;
  };
  std::vector<Tensors> sets;
  for (int i = 0; i < bench.copies_beyond_caches(4 * bytes); ++i) {
    sets.emplace_back(bench.filled(shape), bench.filled(shape), bench.filled(shape), bench.filled(shape));
  }
  const auto of = [&](int call) -> Tensors& { return sets[static_cast<std::size_t>(call) % sets.size()]; };
  const Tensor weight = bench.filled({m.h}), dweight = bench.filled({m.h}, DType::fp32);
  const Tensor mean = bench.filled({n}, DType::fp32), rstd = bench.filled({n}, DType::fp32);
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
  const Tensor ids = tokens(b, n, m.v), table = bench.filled({m.v, m.h});
  const Tensor dtable = bench.filled({m.v, m.h}, DType::fp32), positions = bench.filled({m.s, m.h});
  bench.memory("embedding", name, 2 * bytes,
               [&](int call) { b.embedding().lookup(stream, ids, table, 0, of(call).y); });
  bench.memory("embedding, backward", name, bytes,
               [&](int call) { b.embedding().lookup_backward(stream, ids, of(call).y, 0, dtable); });
  bench.memory("positions + dropout", name, 2 * bytes,
               [&](int call) { b.embedding().add_positions(stream, positions, {}, dropout, of(call).x); });
  const Tensor dpositions = bench.filled({m.s, m.h}, DType::fp32);
  bench.memory("positions + dropout, backward", name, 2 * bytes, [&](int call) {
    b.embedding().add_positions_backward(stream, of(call).x, {}, dropout, of(call).y, dpositions);
  });
}

/// Queries and keys, turned in place.
void run_rotary(GpuMeasure& bench, const Model& m) {
  const std::int64_t row = m.heads * m.d;
  const double bytes = 2.0 * static_cast<double>(m.s * m.b * 2 * row);
  std::vector<Tensor> sets;
  for (int i = 0; i < bench.copies_beyond_caches(1.5 * bytes); ++i) {
    sets.push_back(bench.filled({m.s, m.b, 3, m.heads, m.d}));
  }
  bench.memory("rotary embedding", fmt::format("{}: {} x {}", m.name, m.s * m.b, 2 * row), 2 * bytes, [&](int call) {
    const Heads heads{sets[static_cast<std::size_t>(call) % sets.size()], 3 * m.b * row, 3 * row, m.d};
    bench.b.rotary().rotate(bench.stream, {.channels = m.d}, {heads, m.s, m.b, 2 * m.heads, {}}, Rotation::forward);
  });
}

/// The inner layer of the MLP.
void run_feed_forward(GpuMeasure& bench, const Model& m) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const std::int64_t n = m.s * m.b;
  const double bytes = 2.0 * static_cast<double>(n * m.f);
  const std::string name = fmt::format("{}: {} x {}", m.name, n, m.f);
  struct Tensors {
    Tensor x, y, gate_up, gradient;
  };
  std::vector<Tensors> sets;
  for (int i = 0; i < bench.copies_beyond_caches(6 * bytes); ++i) {
    sets.emplace_back(bench.filled({n, m.f}), bench.filled({n, m.f}), bench.filled({n, 2 * m.f}),
                      bench.filled({n, 2 * m.f}));
  }
  const auto of = [&](int call) -> Tensors& { return sets[static_cast<std::size_t>(call) % sets.size()]; };
  bench.memory("GELU", name, 2 * bytes,
               [&](int call) { b.elementwise().activate(stream, Activation::gelu_tanh, of(call).x, of(call).y); });
  bench.memory("SwiGLU", name, 3 * bytes,
               [&](int call) { b.elementwise().glu(stream, Activation::silu, of(call).gate_up, of(call).y); });
  bench.memory("SwiGLU, backward", name, 5 * bytes, [&](int call) {
    b.elementwise().glu_backward(stream, Activation::silu, of(call).y, of(call).gate_up, of(call).gradient);
  });
  if (!b.memory_is_host()) {
    // Epilogues that cuBLASLt does not fuse, or fuses more slowly.
    const Tensor bias = bench.filled({m.f}), sums = bench.filled({m.f}, DType::fp32);
    const Tensor scratch(b, DType::fp32, {static_cast<std::int64_t>(cuda::column_sums_bytes(n, m.f)) / 4});
    bench.memory("bias + GELU after a product", name, 3 * bytes, [&](int call) {
      cuda::bias_activation(stream, DType::bf16, n, m.f, bias.view().data(), Activation::gelu_tanh,
                            of(call).x.view().data(), true, of(call).y.view().data());
    });
    bench.memory("GELU, backward after a product", name, 3 * bytes, [&](int call) {
      cuda::activation_backward(stream, DType::bf16, n * m.f, Activation::gelu_tanh, of(call).x.view().data(),
                                of(call).y.view().data());
    });
    bench.memory("column sums", name, bytes, [&](int call) {
      cuda::column_sums(stream, DType::bf16, n, m.f, of(call).x.view().data(), scratch.view().data(),
                        sums.view().as<float>());
    });
  }
}

void run_cross_entropy(GpuMeasure& bench, const Model& m) {
  Stream& stream = bench.stream;
  const std::int64_t rows = std::min<std::int64_t>(m.s * m.b, 8192);
  const double bytes = 2.0 * static_cast<double>(rows * m.v);
  const std::string name = fmt::format("{}: {} x {}", m.name, rows, m.v);
  const Tensor logits = bench.filled({rows, m.v}), maximum = bench.filled({rows}, DType::fp32);
  const Tensor sum = bench.filled({rows}, DType::fp32), target = bench.filled({rows}, DType::fp32);
  const Tensor targets = tokens(bench.b, rows, m.v);
  const VocabularyShard shard{0, m.v};
  CrossEntropyKernels& kernels = bench.b.cross_entropy();
  bench.memory("cross entropy", name, bytes,
               [&](int) { kernels.statistics(stream, logits, shard, targets, maximum, sum, target); });
  bench.memory("cross entropy, backward", name, 2 * bytes,
               [&](int) { kernels.backward(stream, shard, maximum, sum, targets, target, 0, logits); });
}

/// Kernels that go over all parameters.
void run_parameters(GpuMeasure& bench, std::int64_t parameters) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const Shape shape{parameters};
  const double count = static_cast<double>(parameters);
  const std::string name = fmt::format("{} parameters", parameters);
  const Tensor g = bench.filled(shape, DType::fp32), w = bench.filled(shape, DType::fp32);
  const Tensor mean = bench.filled(shape, DType::fp32), square = bench.filled(shape, DType::fp32);
  const Tensor rounded = bench.filled(shape), sum = bench.filled({1}, DType::fp64);
  b.elementwise().fill(stream, 1e-4, square);  // no root of it is NaN
  bench.memory("AdamW", name, 30 * count,
               [&](int) { b.optimizer().adamw(stream, {.rates = {{{1e-4}}}}, {}, g, w, mean, square, rounded); });
  bench.memory("SGD", name, 22 * count,
               [&](int) { b.optimizer().sgd(stream, {.rates = {{{1e-4}}}}, {}, g, w, mean, rounded); });
  bench.memory("norm of gradients", name, 4 * count, [&](int) { b.reduce().sum_squares(stream, g, sum); });
  bench.memory("cast to bf16", name, 6 * count, [&](int) { b.elementwise().convert(stream, w, rounded); });
}

/// A linear layer: its three products.
struct Linear {
  const char* name;
  std::int64_t rows, in, out;
  bool has_bias = true;
  Activation activation = Activation::none;  ///< its own
  Activation before = Activation::none;      ///< activation of the layer in front, whose backward ends this one's
};
void run_linear(GpuMeasure& bench, const Model& m, const Linear& l) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const std::string name = fmt::format("{}: {} x {} x {}", m.name, l.rows, l.out, l.in);
  const double operations = 2.0 * static_cast<double>(l.rows * l.in) * static_cast<double>(l.out);
  const Tensor x = bench.filled({l.rows, l.in}), w = bench.filled({l.out, l.in});
  const Tensor y = bench.filled({l.rows, l.out}), dw = bench.filled({l.out, l.in}, DType::fp32);
  const auto where = [&](bool there, DType dtype, const Shape& shape) {
    return there ? bench.filled(shape, dtype) : Tensor();
  };
  const Tensor bias = where(l.has_bias, DType::bf16, {l.out}), dbias = where(l.has_bias, DType::fp32, {l.out});
  const Tensor z = where(l.activation != Activation::none, DType::bf16, {l.rows, l.out});
  const Tensor before = where(l.before != Activation::none, DType::bf16, {l.rows, l.in});
  bench.products(fmt::format("{}, forward", l.name), name, operations,
                 [&](int) { b.gemm().linear(stream, x, w, bias, l.activation, z, y); });
  bench.products(fmt::format("{}, input gradient{}", l.name, l.before == Activation::none ? "" : " + GELU's"), name,
                 operations, [&](int) { b.gemm().linear_backward_input(stream, y, w, l.before, before, x); });
  bench.products(fmt::format("{}, weight gradient", l.name), name, operations,
                 [&](int) { b.gemm().linear_backward_weight(stream, y, x, dw, dbias); });
}
/// Linear layers of a transformer's layer.
void run_layer(GpuMeasure& bench, const Model& m) {
  const std::int64_t n = m.s * m.b, attended = m.heads * m.d;
  run_linear(bench, m, {"qkv", n, m.h, 3 * attended});
  run_linear(bench, m, {"proj", n, attended, m.h});
  run_linear(bench, m, {.name = "fc + GELU", .rows = n, .in = m.h, .out = m.f, .activation = Activation::gelu_tanh});
  run_linear(bench, m, {.name = "fc_proj", .rows = n, .in = m.f, .out = m.h, .before = Activation::gelu_tanh});
}

struct AttentionShape {
  std::string name;
  std::int64_t s, b, heads, d;
  bool causal = true;
  double dropout = 0;
  bool padded = false;         ///< samples of s / b, 2 s / b ... s positions; else all of s
  std::int64_t documents = 1;  ///< number in each sample, of equal length, mutually masked
  std::int64_t window = -1;    ///< AttentionProblem::window
};
/// `form` names the kernels in use.
void run_attention(GpuMeasure& bench, const AttentionShape& a, const char* form) {
  Backend& b = bench.b;
  const Tensor samples = uploaded(b, std::vector<std::int64_t>(static_cast<std::size_t>(a.b), 7));
  const std::int64_t row = a.heads * a.d;
  const Tensor qkv = bench.filled({a.s, a.b, 3, a.heads, a.d}), dqkv = bench.filled({a.s, a.b, 3, a.heads, a.d});
  const Tensor out = bench.filled({a.s, a.b, a.heads, a.d}), dout = bench.filled({a.s, a.b, a.heads, a.d});
  const Tensor lse(b, DType::fp32, {a.b, a.heads, a.s}), row_dot(b, DType::fp32, {a.b, a.heads, a.s});
  const auto heads_of = [&](const Tensor& x, std::int64_t index) {
    return Heads{x.view().flat(index * row, x.view().numel() - index * row), 3 * a.b * row, 3 * row, a.d};
  };
  const auto whole = [&](const Tensor& x) { return Heads{x, a.b * row, row, a.d}; };
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 1; i <= a.b; ++i) lengths.push_back(static_cast<std::int32_t>(a.padded ? a.s * i / a.b : a.s));
  const Tensor of_samples = uploaded(b, lengths);
  std::vector<std::int32_t> starts;
  const std::int64_t document = a.s / a.documents;
  for (std::int64_t i = 0; i < a.s * a.b; ++i) {
    starts.push_back(static_cast<std::int32_t>(i / a.b / document * document));
  }
  const Tensor first_visible = uploaded(b, starts);
  double pairs = 0;  // pairs of a query and a key without padding; a causal mask leaves half
  for (const double length : lengths) pairs += length * (a.causal ? (length + 1) / 2 : length);
  if (a.documents > 1) pairs = static_cast<double>(a.b * a.s) * static_cast<double>(document + 1) / 2;
  if (a.window >= 0) {
    const double span = static_cast<double>(std::min(a.window + 1, a.s));
    pairs = static_cast<double>(a.b) * span * (static_cast<double>(a.s) - (span - 1) / 2);
  }
  const double operations = 4.0 * static_cast<double>(row) * pairs;
  const AttentionProblem problem{
      .queries = a.s,
      .keys = a.s,
      .batch = a.b,
      .heads = a.heads,
      .kv_heads = a.heads,
      .head_dim = a.d,
      .scale = 1 / std::sqrt(static_cast<double>(a.d)),
      .causal = a.causal,
      .lengths = a.padded ? of_samples.view().as<std::int32_t>() : nullptr,
      .first_visible = a.documents > 1 ? first_visible.view().as<std::int32_t>() : nullptr,
      .window = a.window,
      .dropout = {a.dropout, 1, 1, DropoutSite::attention_scores, samples.view().as<std::int64_t>()}};
  const std::string kind = fmt::format("{}{}{}{}", a.documents > 1 ? fmt::format("{} documents, ", a.documents) : "",
                                       a.window < 0 ? "" : fmt::format("window {}, ", a.window),
                                       a.causal   ? "causal"
                                       : a.padded ? "padded"
                                                  : "full",
                                       a.dropout > 0 ? fmt::format(", dropout {}", a.dropout) : "");
  const std::string name = fmt::format("{}{} x {} x {} x {}", a.name, a.b, a.s, a.heads, a.d);
  bench.products(fmt::format("attention{}, {}", form, kind), name, operations, [&](int) {
    b.attention().attention(bench.stream, problem, heads_of(qkv, 0), heads_of(qkv, 1), heads_of(qkv, 2), whole(out),
                            lse);
  });
  bench.products(fmt::format("its backward{}", form), name, 2.5 * operations, [&](int) {
    b.attention().attention_backward(bench.stream, problem, whole(dout), heads_of(qkv, 0), heads_of(qkv, 1),
                                     heads_of(qkv, 2), whole(out), lse, row_dot, heads_of(dqkv, 0), heads_of(dqkv, 1),
                                     heads_of(dqkv, 2));
  });
}

/// Attention of single queries of `texts` texts of s positions each.
void run_decoding(GpuMeasure& bench, std::int64_t s, std::int64_t texts, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t d) {
  const Shape cached{texts, s, 2, kv_heads, d};
  const double bytes = 2.0 * static_cast<double>(cached.numel());
  std::vector<Tensor> caches;
  for (int i = bench.copies_beyond_caches(bytes); i > 0; --i) caches.push_back(bench.filled(cached));
  const Tensor q = bench.filled({texts, heads, d}), out = bench.filled({texts, heads, d});
  const Tensor lse(bench.b, DType::fp32, {texts, heads});
  const AttentionProblem problem{.queries = 1,
                                 .keys = s,
                                 .batch = texts,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = d,
                                 .scale = 1 / std::sqrt(static_cast<double>(d)),
                                 .causal = false,
                                 .dropout = {}};
  bench.memory("attention of single queries", fmt::format("{} x {} x {}/{} x {}", texts, s, heads, kv_heads, d), bytes,
               [&](int call) {
                 const TensorView cache = caches[static_cast<std::size_t>(call) % caches.size()];
                 const std::int64_t row = 2 * kv_heads * d;
                 const auto keys = [&](std::int64_t begin) {
                   return Heads{cache.flat(begin, cache.numel() - begin), row, s * row, d};
                 };
                 const Heads queries{q, heads * d, heads * d, d}, results{out, heads * d, heads * d, d};
                 bench.b.attention().attention(bench.stream, problem, queries, keys(0), keys(kv_heads * d), results,
                                               lse);
               });
}

enum class Selection { all, attention, profile };

/// Returns the shapes of attention that were measured.
std::vector<AttentionShape> run_all(GpuMeasure& bench, Selection selection, bool dry_run) {
  std::vector<AttentionShape> measured;
  const auto measure_attention = [&](AttentionShape a) {
    run_attention(bench, a, "");
    measured.push_back(std::move(a));
  };
  std::vector<Model> models{{"1.2B", 1024, 8, 1536, 16, 96, 6144, 51200},
                            {"124M", 1024, 64, 768, 12, 64, 3072, 50304},
                            {"8.3B/TP-8", 1024, 8, 3072, 4, 96, 1536, 6400}};
  // Models of which only products are measured.
  std::vector<Model> widths{{"355M", 1024, 8, 1024, 16, 64, 4096, 50304},
                            {"2.5B", 1024, 8, 1920, 20, 96, 7680, 51200},
                            {"4.2B", 1024, 8, 2304, 24, 96, 9216, 51200},
                            {"8.3B", 1024, 8, 3072, 32, 96, 12288, 51200}};
  if (dry_run) models = widths = {{"tiny", 16, 2, 64, 1, 64, 128, 256}};
  if (selection == Selection::profile) models.resize(1);
  for (const Model& m : models) {
    if (selection != Selection::attention) {
      run_hidden(bench, m);
      run_rotary(bench, m);
      run_feed_forward(bench, m);
      measure_experts(bench, m.name, m.s * m.b, m.h);
      run_cross_entropy(bench, m);
      run_parameters(bench, dry_run ? 1 << 12 : 1 << 28);
      run_layer(bench, m);
      run_linear(bench, m,
                 {.name = "logits",
                  .rows = std::min<std::int64_t>(m.s * m.b, 8192),
                  .in = m.h,
                  .out = m.v,
                  .has_bias = false});
    }
    for (const double dropout : {0.0, 0.1}) {
      measure_attention({fmt::format("{}: ", m.name), m.s, m.b, m.heads, m.d, true, dropout});
    }
  }
  if (selection == Selection::profile) return measured;
  if (selection == Selection::all) {
    for (const Model& m : widths) run_layer(bench, m);
  }
  if (!dry_run) measure_attention({"", 2048, 2, 16, 128});  // Transformer Engine's notebook
  for (const bool padded : {false, true}) {
    const std::int64_t s = dry_run ? 16 : 512, b = dry_run ? 2 : 32;
    measure_attention({"BERT: ", s, b, 16, 64, false, 0.1, padded});
  }
  measure_attention(
      {.name = "packed: ", .s = dry_run ? 16 : 4096, .b = dry_run ? 2 : 4, .heads = 16, .d = 128, .documents = 8});
  measure_attention(
      {.name = "Mistral: ", .s = dry_run ? 16 : 16384, .b = 1, .heads = 32, .d = 128, .window = dry_run ? 4 : 4095});
  for (const std::int64_t kv_heads : {32, 8}) {
    for (const std::int64_t texts : {1, 16}) run_decoding(bench, dry_run ? 300 : 1024, texts, 32, kv_heads, 128);
  }
  // 16k tokens and about 2048 channels, as the papers on flash attention have them.
  for (const std::int64_t d : {64, 96, 128, 192, 256}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t s : {1024, 2048}) {
        const bool skipped = d == 256 && !causal;  // slow without tensor cores, and published for none
        if (!dry_run && !skipped) measure_attention({"", s, 16384 / s, d == 96 ? 16 : 2048 / d, d, causal});
      }
    }
  }
  return measured;
}

void run(Backend& backend, Selection selection, bool dry_run, std::ostream& json) {
  GpuMeasure bench(backend, dry_run, selection == Selection::profile, json);
  const std::vector<AttentionShape> measured = run_all(bench, selection, dry_run);
  // Last: a fault in a kernel takes the GPU from this process.
  if (!use_warp_groups(backend.attention(), true)) return;
  for (const AttentionShape& a : measured) {
    if (has_warp_group_attention(a.d)) run_attention(bench, a, " by warp groups");
  }
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  bool dry_run = false;
  auto selection = bench::Selection::all;
  std::string gemm_cache;
  std::ofstream json;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--dry-run") {
      dry_run = true;
    } else if (arguments[i] == "--attention") {
      selection = bench::Selection::attention;
    } else if (arguments[i] == "--profile") {
      selection = bench::Selection::profile;
    } else if (arguments[i] == "--gemm-cache" && i + 1 < arguments.size()) {
      gemm_cache = arguments[++i];
    } else if (arguments[i] == "--json" && i + 1 < arguments.size()) {
      json.open(arguments[++i]);
      if (!json) return std::cerr << "cannot write " << arguments[i] << "\n", 5;
    } else {
      std::cerr << "usage: kernels_gpu_bench [--attention | --profile] [--gemm-cache FILE] [--json FILE] [--dry-run]\n";
      return 2;
    }
  }
  try {
    // Kernels take less than a second: after the maximum wait the GPU counts as hung.
    const auto backend =
        dry_run ? cpu::make_backend(1)
                : cuda::make_backend({.max_wait_s = 20, .algorithm_cache = gemm_cache}, TRIREME_CUDA_ARCHITECTURES);
    bench::run(*backend, selection, dry_run, json);
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
  return 0;
}

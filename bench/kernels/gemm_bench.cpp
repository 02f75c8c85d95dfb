#include <benchmark/benchmark.h>

#include "bench/kernels/ceilings.hpp"
#include "src/backend/cpu/cpu_backend.hpp"

namespace trireme::bench {
namespace {

struct Layer {
  const char* name;
  std::int64_t n, in, out;
  bool has_bias = true;
};
// n tokens at a time; hidden size 256, and 768 (GPT-2 124M), with the vocabulary padded to 50304.
constexpr Layer layers[] = {{"h256/proj", 2048, 256, 256},
                            {"h256/qkv", 2048, 256, 768},
                            {"h256/fc", 2048, 256, 1024},
                            {"h256/fc_proj", 2048, 1024, 256},
                            {"h256/logits", 2048, 256, 50304, false},
                            {"h768/proj", 1024, 768, 768},
                            {"h768/qkv", 1024, 768, 2304},
                            {"h768/fc", 1024, 768, 3072},
                            {"h768/fc_proj", 1024, 3072, 768},
                            {"h768/logits", 1024, 768, 50304, false}};

// Text generation: a token of each of n texts.
constexpr Layer few_rows[] = {{"h768/fc/1", 1, 768, 3072},
                              {"h768/fc/4", 4, 768, 3072},
                              {"h768/fc/8", 8, 768, 3072},
                              {"h768/fc/16", 16, 768, 3072},
                              {"h768/fc/32", 32, 768, 3072}};

/// The tensors of a linear layer, forward and backward, holding small numbers that are not 0.
struct Tensors {
  Tensors(Backend& b, DType dtype, const Layer& l)
      : x(b, dtype, {l.n, l.in}),
        w(b, dtype, {l.out, l.in}),
        bias(b, dtype, {l.out}),
        z(b, dtype, {l.n, l.out}),
        y(b, dtype, {l.n, l.out}),
        z_in(b, dtype, {l.n, l.in}),
        dw(b, accumulation_type(dtype), {l.out, l.in}),
        dbias(b, accumulation_type(dtype), {l.out}) {
    for (const TensorView t :
         {x.view(), w.view(), bias.view(), z.view(), y.view(), z_in.view(), dw.view(), dbias.view()}) {
      b.elementwise().fill(b.compute_stream(), 0.37, t);
    }
  }
  Tensor x, w, bias, z, y, z_in, dw, dbias;
};

enum class Pass { forward, forward_gelu, backward_input, backward_input_gelu, backward_weight };
constexpr const char* pass_names[] = {"forward", "forward_gelu", "backward_input", "backward_input_gelu",
                                      "backward_weight"};

void run(benchmark::State& state, DType dtype, const Layer& layer, Pass pass) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const Tensors t(b, dtype, layer);
  const TensorView bias = layer.has_bias ? t.bias.view() : TensorView();
  const TensorView dbias = layer.has_bias ? t.dbias.view() : TensorView();
  const double operations = 2e-9 * static_cast<double>(layer.n) * layer.in * layer.out;
  measure_products(state, operations, dtype, [&] {
    switch (pass) {
      case Pass::forward:
        b.gemm().linear(stream, t.x, t.w, bias, Activation::none, {}, t.y);
        break;
      case Pass::forward_gelu:
        b.gemm().linear(stream, t.x, t.w, bias, Activation::gelu_tanh, t.z, t.y);
        break;
      case Pass::backward_input:
        b.gemm().linear_backward_input(stream, t.y, t.w, Activation::none, {}, t.x);
        break;
      case Pass::backward_input_gelu:
        b.gemm().linear_backward_input(stream, t.y, t.w, Activation::gelu_tanh, t.z_in, t.x);
        break;
      case Pass::backward_weight:
        b.gemm().linear_backward_weight(stream, t.y, t.x, t.dw, dbias);
        break;
    }
  });
}

/// The products of a layer of experts, forward and backward, at `n` tokens an expert: grouped, or one after another.
void run_experts(benchmark::State& state, DType dtype, const Layer& expert, std::int64_t count, bool grouped) {
  const auto backend = cpu::make_backend(threads());
  Backend& b = *backend;
  Stream& stream = b.compute_stream();
  const Tensors all(b, dtype, {"", count * expert.n, expert.in, expert.out});
  std::vector<Tensors> of_expert;
  std::vector<TensorView> w, dw;
  for (std::int64_t i = 0; i < count; ++i) {
    of_expert.emplace_back(b, dtype, Layer{"", 0, expert.in, expert.out});
    w.push_back(of_expert.back().w);
    dw.push_back(of_expert.back().dw);
  }
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(count), expert.n);
  const double operations = 6e-9 * static_cast<double>(count * expert.n) * expert.in * expert.out;
  measure_products(state, operations, dtype, [&] {
    if (grouped) {
      b.gemm().grouped_linear(stream, rows, all.x, w, all.y);
      b.gemm().grouped_backward_input(stream, rows, all.y, w, all.z_in);
      b.gemm().grouped_backward_weight(stream, rows, all.y, all.x, dw);
      return;
    }
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t n) {
      const TensorView x = all.x.view().rows(first, n), y = all.y.view().rows(first, n);
      b.gemm().linear(stream, x, w[i], {}, Activation::none, {}, y);
      b.gemm().linear_backward_input(stream, y, w[i], Activation::none, {}, all.z_in.view().rows(first, n));
      b.gemm().linear_backward_weight(stream, y, x, dw[i], {});
    });
  });
}

/// Registers the passes up to `last` of a layer.
void add(DType dtype, const Layer& layer, Pass last) {
  for (int pass = 0; pass <= static_cast<int>(last); ++pass) {
    benchmark::RegisterBenchmark(
        fmt::format("{}/{}/{}", name_of(dtype), layer.name, pass_names[pass]).c_str(),
        [dtype, layer, pass](benchmark::State& state) { run(state, dtype, layer, static_cast<Pass>(pass)); })
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
  }
}

const bool registered = [] {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const Layer& expert : {Layer{"h64", 32, 64, 128}, Layer{"h256", 32, 256, 192}, Layer{"h768", 64, 768, 1536}}) {
      for (const bool grouped : {false, true}) {
        benchmark::RegisterBenchmark(
            fmt::format("{}/128 experts/{}/{}", name_of(dtype), expert.name, grouped ? "grouped" : "single").c_str(),
            [=](benchmark::State& state) { run_experts(state, dtype, expert, 128, grouped); })
            ->Unit(benchmark::kMicrosecond)
            ->UseRealTime();
      }
    }
  }
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::fp64}) {
    for (const Layer& layer : layers) add(dtype, layer, Pass::backward_weight);
    for (const Layer& layer : few_rows) add(dtype, layer, Pass::forward);
  }
  return true;
}();

}  // namespace
}  // namespace trireme::bench

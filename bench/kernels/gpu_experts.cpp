#include "bench/kernels/gpu_experts.hpp"

#include <fmt/format.h>

#include <vector>

namespace trireme::bench {

void measure_experts(GpuMeasure& bench, const std::string& model, std::int64_t n, std::int64_t h) {
  Backend& b = bench.b;
  Stream& stream = bench.stream;
  const std::int64_t count = 64, k = 2, rows = n * k;
  const double row_bytes = 2.0 * static_cast<double>(h), bytes = row_bytes * static_cast<double>(rows);
  const double logit_bytes = 2.0 * static_cast<double>(n * count), choice_bytes = 4.0 * static_cast<double>(rows);
  const std::string name = fmt::format("{}: {} x {}", model, n, h),
                    routed = fmt::format("{}: {} x {}", model, n, count);
  const Tensor logits = bench.filled({n, count}), dlogits = bench.filled({n, count});
  const Tensor weights = bench.filled({n, k}, DType::fp32), counts = bench.filled({count}, DType::fp32);
  const Tensor sums = bench.filled({count}, DType::fp32), token_sums = bench.filled({2}, DType::fp32);
  const Tensor experts(b, DType::int32, {n, k}), kept(b, DType::int32, {n, k}), row_of(b, DType::int32, {n, k});
  const Tensor of_expert(b, DType::int32, {count}), slot_of(b, DType::int32, {rows}), token_of(b, DType::int32, {rows});
  const RouterProblem problem{.per_token = k};
  ExpertKernels& kernels = b.experts();
  bench.memory("routing", routed, 2 * logit_bytes,
               [&](int) { kernels.route(stream, problem, logits, {}, experts, weights, counts, sums, token_sums); });
  bench.memory("routing, backward", routed, 2 * logit_bytes, [&](int) {
    kernels.route_backward(stream, problem, logits, experts, weights, {counts, 1e-6, 1e-6}, dlogits);
  });
  bench.memory("limit of the load", routed, 3 * choice_bytes,
               [&](int) { kernels.limit_load(stream, experts, weights, count, rows / count, false, kept); });
  bench.memory("order of rows", routed, 5 * choice_bytes,
               [&](int) { kernels.sort(stream, experts, 0, 0, of_expert, row_of, slot_of, token_of); });
  struct Tensors {
    Tensor x, y;
  };
  std::vector<Tensors> sets;
  for (int i = 0; i < bench.copies_beyond_caches(2 * bytes); ++i) {
    sets.emplace_back(bench.filled({rows, h}), bench.filled({rows, h}));
  }
  const auto of = [&](int call) -> Tensors& { return sets[static_cast<std::size_t>(call) % sets.size()]; };
  const Tensor tokens = bench.filled({n, h}), dweights = bench.filled({n, k}, DType::fp32);
  bench.memory("rows of tokens", name, bytes + row_bytes * static_cast<double>(n),
               [&](int call) { b.embedding().lookup(stream, token_of, tokens, 0, of(call).x); });
  bench.memory("sums of rows", name, bytes + row_bytes * static_cast<double>(n),
               [&](int call) { kernels.sum_rows(stream, of(call).x, row_of, tokens); });
  bench.memory("weighted rows", name, 2 * bytes,
               [&](int call) { kernels.scale_rows(stream, of(call).x, weights, slot_of, of(call).y); });
  bench.memory("weighted rows, backward", name, 3 * bytes, [&](int call) {
    kernels.scale_rows_backward(stream, of(call).x, of(call + 1).x, weights, slot_of, of(call).y, dweights);
  });
}

}  // namespace trireme::bench

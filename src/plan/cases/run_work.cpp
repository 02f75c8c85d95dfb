#include "src/plan/cases/run_work.hpp"

#include <algorithm>
#include <array>

namespace trireme::plan {
namespace {

/// Kernels of a layer in PyTorch.
constexpr int forward_kernels = 20, backward_input_kernels = 30, backward_weight_kernels = 8;

/// Sizes of a micro-batch on a tensor rank.
struct Sizes {
  explicit Sizes(const PublishedRun& run)
      : t(run.tp),
        tokens(static_cast<double>(run.micro_batch * run.sequence)),
        s(static_cast<double>(run.sequence)),
        h(static_cast<double>(run.hidden)),
        heads(static_cast<double>(run.micro_batch * run.heads) / t),
        d(h / static_cast<double>(run.heads)),
        hidden_bytes(2 * tokens * h),
        score_bytes(2 * heads * s * s) {}
  double t;
  double tokens, s, h;
  double heads;  ///< heads of all sequences
  double d;
  double hidden_bytes, score_bytes;
};

WorkTime attention_time(const Sizes& z, const Framework& framework, const PublishedCosts& costs, bool backward) {
  WorkTime work;
  if (framework.flash_attention > 0) {
    // Half of the pairs; backward computes the scores again, five products.
    const double flops = 2 * z.heads * z.s * z.s * z.d;
    work.attention = costs.flash_attention(backward ? 2.5 * flops : flops, z.s, backward) / framework.flash_attention;
  } else {
    work.attention = (backward ? 2 : 1) *
                     (costs.head_products(z.heads, z.s, z.s, z.d) + costs.head_products(z.heads, z.s, z.d, z.s));
  }
  return work;
}

double kernel_time(const PublishedCosts& costs, const Framework& framework, double bytes) {
  return framework.fused_kernels ? costs.memory(bytes) : costs.unfused_memory(bytes);
}

/// Memory-bound kernels. Sequence parallelism also divides the hidden tensors.
WorkTime kernels_time(const Sizes& z, const Framework& framework, const PublishedCosts& costs,
                      const Framework::Tensors& tensors, bool sequence_parallel) {
  const double hidden = tensors.hidden / (sequence_parallel ? z.t : 1) + tensors.divided / z.t;
  WorkTime work;
  work.memory_bound = kernel_time(costs, framework, hidden * z.hidden_bytes + tensors.scores * z.score_bytes);
  return work;
}

/// The attention recomputed by selective recomputation.
WorkTime core_attention(const Sizes& z, const Framework& framework, const PublishedCosts& costs) {
  WorkTime work = attention_time(z, framework, costs, false);
  work.memory_bound = kernel_time(costs, framework, framework.forward.scores * z.score_bytes);
  return work;
}

}  // namespace

PartTime& PartTime::operator+=(const PartTime& other) {
  forward += other.forward;
  backward_input += other.backward_input;
  backward_weight += other.backward_weight;
  return *this;
}
PartTime operator*(double factor, const PartTime& part) {
  return {factor * part.forward, factor * part.backward_input, factor * part.backward_weight};
}

PartTime layer_time(const PublishedRun& run, const PublishedCosts& costs) {
  const Sizes z(run);
  struct Weight {
    double outputs, inputs;
  };
  const std::array<Weight, 4> weights = {
      {{3 * z.h / z.t, z.h}, {z.h, z.h / z.t}, {4 * z.h / z.t, z.h}, {z.h, 4 * z.h / z.t}}};
  PartTime layer;
  for (const Weight& w : weights) {
    layer.forward.products += costs.layer_product(z.tokens, w.outputs, w.inputs);
    layer.backward_input.products += costs.layer_product(z.tokens, w.inputs, w.outputs);
    layer.backward_weight.products += costs.layer_product(w.outputs, w.inputs, z.tokens);
  }
  layer.forward += attention_time(z, run.framework, costs, false);
  layer.forward += kernels_time(z, run.framework, costs, run.framework.forward, run.sequence_parallel);
  layer.backward_input += attention_time(z, run.framework, costs, true);
  layer.backward_input += kernels_time(z, run.framework, costs, run.framework.backward, run.sequence_parallel);
  layer.forward.memory_bound += costs.launches(forward_kernels);
  layer.backward_input.memory_bound += costs.launches(backward_input_kernels);
  layer.backward_weight.memory_bound += costs.launches(backward_weight_kernels);
  // Two sums in each direction; sequence parallelism makes each a scatter and a gather of the same bytes.
  const double sum = costs.collective(Collective::all_reduce, z.hidden_bytes, run.tp, 1);
  layer.forward.of(Traffic::tensor).exposed_ms = 2 * sum;
  layer.backward_input.of(Traffic::tensor).exposed_ms =
      run.framework.overlaps_tensor ? std::max(0.0, 2 * sum - layer.backward_weight.products) : 2 * sum;
  if (run.recomputation == Recomputation::full) layer.backward_input += layer.forward;
  if (run.recomputation == Recomputation::selective) layer.backward_input += core_attention(z, run.framework, costs);
  return layer;
}

PartTime embedding_time(const PublishedRun& run, const PublishedCosts& costs) {
  const Sizes z(run);
  PartTime part;
  part.forward.memory_bound = part.backward_input.memory_bound = costs.memory(3 * z.hidden_bytes);
  return part;
}

PartTime head_time(const PublishedRun& run, const PublishedCosts& costs) {
  const Sizes z(run);
  const double words = static_cast<double>(run.vocabulary) / z.t;
  PartTime part;
  part.forward.products = costs.product(z.tokens, words, z.h);
  part.backward_input.products = costs.product(z.tokens, z.h, words);
  part.backward_weight.products = costs.product(words, z.h, z.tokens);
  part.forward.memory_bound = costs.memory(run.framework.loss_bytes / 2 * z.tokens * words + 3 * z.hidden_bytes);
  part.backward_input.memory_bound = costs.memory(run.framework.loss_bytes / 2 * z.tokens * words + 3 * z.hidden_bytes);
  part.backward_input.of(Traffic::tensor).exposed_ms =
      costs.collective(Collective::all_reduce, z.hidden_bytes, run.tp, 1);
  return part;
}

}  // namespace trireme::plan

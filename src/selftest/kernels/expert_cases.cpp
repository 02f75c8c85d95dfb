#include "src/selftest/kernels/trial.hpp"

namespace trireme::selftest {
namespace {

/// Experts of a layer, and of a token.
constexpr std::int64_t layer_experts = 24, token_experts = 4;
/// Biases differ by more than scores: rounded scores change no choice.
constexpr double max_bias = 100;

Case route(const Extents& e, const char* name, const RouterProblem& problem, bool with_bias = false) {
  return {
      fmt::format("route {} [{}, {}]", name, e.rows(), layer_experts), [=](Trial& t) {
        const Shape choices{e.rows(), problem.per_token}, loads{problem.segments, layer_experts};
        const TensorView logits = t.input({e.rows(), layer_experts}, 4), dlogits = t.output(logits.shape());
        const TensorView experts = t.integers(choices, 1), weights = t.wide_output(choices);
        const TensorView counts = t.wide_output(loads), sums = t.wide_output(loads), token_sums = t.wide_output({2});
        const TensorView bias = with_bias ? t.wide_input({layer_experts}, -max_bias, max_bias) : TensorView();
        t.b.experts().route(t.stream(), problem, logits, bias, experts, weights, counts, sums, token_sums);
        t.take(weights);
        t.take(counts, Precision::exact);
        for (const TensorView& result : {sums, token_sums}) t.take(result);
        const TensorView dweights = t.wide_input(choices, -1, 1);
        t.b.experts().route_backward(t.stream(), problem, logits, experts, dweights, {counts, 0.01, 0.001}, dlogits);
        t.take(dlogits);
      }};
}

/// All kernels of rows, for experts of which half are of this rank, with a limited load.
Case rows(const Extents& e) {
  return {
      fmt::format("sort, scale_rows, sum_rows [{}, {}]", e.rows(), e.h), [=](Trial& t) {
        const std::int64_t n = e.rows(), entries = n * token_experts;
        const Shape choices{n, token_experts}, row_shape{entries, e.h};
        const TensorView logits = t.input({n, layer_experts}, 4), weights = t.wide_input(choices, 0, 1);
        const TensorView experts = t.integers(choices, 1), kept = t.integers(choices, 1);
        const TensorView row_of = t.integers(choices, 1), slot_of = t.integers({entries}, 1);
        const TensorView token_of = t.integers({entries}, 1), counts = t.integers({layer_experts / 2}, 1);
        ExpertKernels& kernels = t.b.experts();
        kernels.route(t.stream(), {.per_token = token_experts}, logits, {}, experts, t.wide_output(choices), {}, {},
                      {});
        kernels.sort(t.stream(), experts, layer_experts / 4, 0, counts, row_of, slot_of, token_of);
        const TensorView x = t.input({n, e.h}), gathered = t.output(row_shape);
        t.b.embedding().lookup(t.stream(), token_of, x, 0, gathered);
        t.take(gathered, Precision::exact);
        const TensorView noisy = t.output({e.s, e.b, e.h});
        const RouterJitter noise{0.1, Dropout(0, 1234, 3, DropoutSite::router_input, t.samples(e.b))};
        kernels.jitter(t.stream(), noise, x.reshape({e.s, e.b, e.h}), noisy);
        t.take(noisy);

        const std::int64_t capacity = entries / layer_experts;
        for (const bool by_position : {false, true}) {
          const TensorView y = t.input(row_shape), sum = t.output({n, e.h});
          kernels.limit_load(t.stream(), experts, weights, layer_experts, capacity, by_position, kept);
          kernels.sort(t.stream(), kept, layer_experts / 4, 0, counts, row_of, slot_of, token_of);
          kernels.sum_rows(t.stream(), y, row_of, sum);
          t.take(sum);
        }
        const TensorView load = t.wide_input({2 * layer_experts + 3}, 0, 1);
        kernels.add_load(t.stream(), layer_experts, experts, kept, t.wide_input({layer_experts}, 0, 9),
                         t.wide_input({layer_experts}, 0, 9), 0.5, t.wide_input({2}, 0, 9), 0.25, load);
        t.take(load);
        {  // Rows up to the capacity, of which some have no token.
          const std::int64_t padded = layer_experts * capacity;
          const TensorView all = t.integers({layer_experts}, 1), slots = t.integers({padded}, 1);
          const TensorView y = t.input({padded, e.h}), dy = t.input({padded, e.h}), scaled = t.output({padded, e.h});
          kernels.sort(t.stream(), kept, 0, capacity, all, row_of, slots, t.integers({padded}, 1));
          kernels.scale_rows(t.stream(), y, weights, slots, scaled);
          t.take(scaled);
          const TensorView dweights = t.wide_input(choices, 0, 1);
          kernels.scale_rows_backward(t.stream(), dy, y, weights, slots, dy, dweights);
          for (const TensorView& result : {dy, dweights}) t.take(result);
        }
        // Each choice has a row.
        const TensorView all = t.integers({layer_experts}, 1), scaled = t.output(row_shape);
        kernels.sort(t.stream(), experts, 0, 0, all, row_of, slot_of, token_of);
        const TensorView y = t.input(row_shape), dy = t.input(row_shape);
        kernels.scale_rows(t.stream(), y, weights, slot_of, scaled);
        t.take(scaled);
        const TensorView dweights = t.wide_output(choices);
        kernels.scale_rows_backward(t.stream(), dy, y, weights, slot_of, dy, dweights);
        for (const TensorView& result : {dy, dweights}) t.take(result);
      }};
}

}  // namespace

std::vector<Case> expert_cases(const Extents& e) {
  return {route(e, "softmax of chosen", {.per_token = token_experts, .segments = e.b}),
          route(e, "softmax", {.per_token = token_experts, .softmax_of_chosen = false}),
          route(e, "sigmoid in groups",
                {.per_token = token_experts,
                 .score = RouterScore::sigmoid,
                 .scaling = 2.5,
                 .groups = 8,
                 .groups_per_token = 2}),
          route(e, "sigmoid with a bias", {.per_token = token_experts, .score = RouterScore::sigmoid}, true), rows(e)};
}

}  // namespace trireme::selftest

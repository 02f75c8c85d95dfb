#include "src/selftest/kernels/trial.hpp"

// Cases of the cross entropy, the optimizers and the sums.

namespace trireme::selftest {
namespace {

Case cross_entropy(const Extents& e) {
  return {fmt::format("cross_entropy [{}, {}]", e.rows(), e.v), [=](Trial& t) {
            const std::int64_t n = e.rows(), classes = e.v - 3;  // the last columns are padding
            const VocabularyShard shard{.first_class = 0, .classes = classes};
            const TensorView logits = t.input({n, e.v}, 4), targets = t.integers({n}, classes);
            const TensorView weights = t.wide_input({n}, 0, 1), gradient = t.wide_input({n}, 0, 1);
            const TensorView maximum = t.wide_output({n}), sum_exp = t.wide_output({n});
            const TensorView target_logit = t.wide_output({n}), rivals = t.wide_output({n}),
                             losses = t.wide_output({n});
            CrossEntropyKernels& kernels = t.b.cross_entropy();
            kernels.statistics(t.stream(), logits, shard, targets, maximum, sum_exp, target_logit);
            t.take(maximum, Precision::exact);
            t.take(sum_exp);
            t.take(target_logit, Precision::exact);
            kernels.rivals(t.stream(), logits, shard, targets, target_logit, rivals);
            t.take(rivals, Precision::exact);
            const TensorView higher = t.wide_input({n}, 4, 5);  // the maximum over other ranks
            kernels.rescale(t.stream(), maximum, higher, sum_exp);
            kernels.losses(t.stream(), higher, sum_exp, target_logit, weights, losses);
            t.take(losses);
            kernels.backward(t.stream(), shard, higher, sum_exp, targets, gradient, logits);
            t.take(logits);
          }};
}

Case adamw(std::int64_t size) {
  return {fmt::format("adamw [{}]", size), [=](Trial& t) {
            const TensorView gradient = t.wide_input({size}, -1, 1), w = t.wide_input({size}, -1, 1);
            const TensorView m = t.wide_input({size}, -0.1, 0.1), v = t.wide_input({size}, 0.01, 0.1);
            const TensorView rounded = t.output({size});
            const AdamWStep step{.learning_rate = 1e-2, .weight_decay = 0.1, .update = 3, .gradient_scale = 0.5};
            t.b.optimizer().adamw(t.stream(), step, gradient, w, m, v, rounded);
            for (const TensorView& result : {w, m, v, rounded}) t.take(result);
          }};
}

Case sgd(std::int64_t size) {
  return {fmt::format("sgd [{}]", size), [=](Trial& t) {
            const TensorView gradient = t.wide_input({size}, -1, 1), w = t.wide_input({size}, -1, 1);
            const TensorView m = t.wide_input({size}, -1, 1), rounded = t.output({size});
            const SgdStep step{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.5};
            t.b.optimizer().sgd(t.stream(), step, gradient, w, m, rounded);
            for (const TensorView& result : {w, m, rounded}) t.take(result);
          }};
}

Case sums(std::int64_t size) {
  return {fmt::format("sum, sum_squares, sum_powers, max_abs, count_zeros [{}]", size), [=](Trial& t) {
            const TensorView x = t.input({size}), sum = t.sum(), squares = t.sum();
            const TensorView powers = t.sum(), largest = t.sum(), zeros = t.sum();
            t.b.reduce().sum_powers(t.stream(), x, 3, powers);
            t.b.reduce().max_abs(t.stream(), x, largest);
            t.b.reduce().count_zeros(t.stream(), x, zeros);
            for (const TensorView& result : {powers, largest, zeros}) t.take(result, Precision::rounded);
            t.b.reduce().sum(t.stream(), x, sum);
            t.b.reduce().sum_squares(t.stream(), x, squares);
            t.take(sum, Precision::rounded);
            t.take(squares, Precision::rounded);
          }};
}

}  // namespace

std::vector<Case> cross_entropy_cases(const Extents& e) { return {cross_entropy(e)}; }

std::vector<Case> optimizer_cases(const Extents& e) { return {adamw(e.h * e.h + 1), sgd(e.h * e.h + 1)}; }

std::vector<Case> reduce_cases(const Extents& e) { return {sums(e.rows() * e.h + 1)}; }

}  // namespace trireme::selftest

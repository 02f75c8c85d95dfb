#include <cmath>

#include "src/selftest/kernels/trial.hpp"

namespace trireme::selftest {
namespace {

/// Rows n, in and out features of a linear layer.
struct LinearExtents {
  std::int64_t n, in, out;
  std::string text() const { return fmt::format("[{}, {}] x {}", n, in, out); }
};

struct Epilogue {
  const char* name;
  bool bias;
  Activation activation;
  bool keeps_pre_activation;
};

Case linear(const LinearExtents& e, const Epilogue& epilogue) {
  return {fmt::format("linear{} {}", epilogue.name, e.text()), [=](Trial& t) {
            const TensorView x = t.input({e.n, e.in});
            const TensorView w = t.input({e.out, e.in}, 2 / std::sqrt(static_cast<double>(e.in)));
            const TensorView bias = epilogue.bias ? t.input({e.out}) : TensorView();
            const TensorView z = epilogue.keeps_pre_activation ? t.output({e.n, e.out}) : TensorView();
            const TensorView y = t.output({e.n, e.out});
            t.b.gemm().linear(t.stream(), x, w, bias, epilogue.activation, z, y);
            // A product whose epilogue is not fused is rounded before it.
            const bool has_epilogue = epilogue.bias || epilogue.activation != Activation::none;
            if (z) t.take(z, Precision::mixed);
            t.take(y, has_epilogue ? Precision::mixed : Precision::rounded);
          }};
}

Case backward_input(const LinearExtents& e, const char* name, Activation activation) {
  return {fmt::format("linear_backward_input{} {}", name, e.text()), [=](Trial& t) {
            const TensorView dy = t.input({e.n, e.out});
            const TensorView w = t.input({e.out, e.in}, 2 / std::sqrt(static_cast<double>(e.out)));
            const TensorView z = activation == Activation::none ? TensorView() : t.input({e.n, e.in}, 3);
            const TensorView dx = t.output({e.n, e.in});
            t.b.gemm().linear_backward_input(t.stream(), dy, w, activation, z, dx);
            t.take(dx, activation == Activation::none ? Precision::rounded : Precision::mixed);
          }};
}

Case backward_weight(const LinearExtents& e, bool with_bias) {
  return {fmt::format("linear_backward_weight{} {}", with_bias ? " bias" : "", e.text()), [=](Trial& t) {
            const TensorView dy = t.input({e.n, e.out}), x = t.input({e.n, e.in});
            const TensorView dw = t.wide_input({e.out, e.in}, -1, 1);
            const TensorView dbias = with_bias ? t.wide_input({e.out}, -1, 1) : TensorView();
            t.b.gemm().linear_backward_weight(t.stream(), dy, x, dw, dbias);
            t.take(dw);
            if (dbias) t.take(dbias);
          }};
}

/// Products of three groups of rows, one of them empty.
Case grouped(const LinearExtents& e) {
  return {fmt::format("grouped products {}", e.text()), [=](Trial& t) {
            const std::vector<std::int64_t> rows = {e.n / 3, 0, e.n - e.n / 3};
            const TensorView x = t.input({e.n, e.in}), dy = t.input({e.n, e.out});
            std::vector<TensorView> w, dw;
            for (std::size_t i = 0; i < rows.size(); ++i) {
              w.push_back(t.input({e.out, e.in}, 2 / std::sqrt(static_cast<double>(e.in))));
              dw.push_back(t.wide_input({e.out, e.in}, -1, 1));
            }
            const TensorView y = t.output({e.n, e.out}), dx = t.output({e.n, e.in});
            t.b.gemm().grouped_linear(t.stream(), rows, x, w, y);
            t.b.gemm().grouped_backward_input(t.stream(), rows, dy, w, dx);
            t.b.gemm().grouped_backward_weight(t.stream(), rows, dy, x, dw);
            t.take(y, Precision::rounded);
            t.take(dx, Precision::rounded);
            for (const TensorView& gradient : dw) t.take(gradient);
          }};
}

/// Two products of transposed factors, added to a third matrix.
Case batched(std::int64_t rows, std::int64_t columns) {
  return {fmt::format("batched products [2, {}, {}]", rows, columns), [=](Trial& t) {
            const TensorView x = t.input({2, rows, columns}, 2 / std::sqrt(static_cast<double>(columns)));
            const TensorView gram = t.output({2, rows, rows}), sum = t.output({2, rows, columns});
            t.b.gemm().batched(t.stream(), {.b_transposed = true}, x, x, {}, gram);
            t.take(gram);
            const TensorView square = t.input({2, rows, rows}, 2 / std::sqrt(static_cast<double>(rows)));
            t.b.gemm().batched(t.stream(), {.a_transposed = true, .alpha = 0.5, .beta = 2}, square, x, x, sum);
            t.take(sum);
          }};
}

/// The three products of a layer in FP8, with blocks that are not full.
Case in_fp8(bool by_blocks) {
  constexpr std::int64_t n = 144, in = 176, out = 48;
  return {fmt::format("products in FP8{} [{}, {}] x {}", by_blocks ? " by blocks" : "", n, in, out), [=](Trial& t) {
            const TensorView x = t.input({n, in}), dy = t.input({n, out});
            const TensorView w = t.input({out, in}, 2 / std::sqrt(static_cast<double>(in)));
            const TensorView amax = t.sum();
            t.b.elementwise().fill(t.stream(), 0.75, amax);  // larger numbers saturate
            Fp8Operand narrow{.amax = by_blocks ? TensorView() : amax}, wide = narrow;
            wide.format = Fp8Format::e5m2;
            const TensorView y = t.output({n, out}), dx = t.output({n, in}), dw = t.wide_output({out, in});
            const TensorView dbias = t.wide_input({out}, -1, 1);
            t.b.gemm().linear(t.stream(), x, w, {}, Activation::none, {}, y, Fp8Product{narrow, narrow});
            t.b.gemm().linear_backward_input(t.stream(), dy, w, Activation::none, {}, dx, Fp8Product{wide, narrow});
            t.b.gemm().linear_backward_weight(t.stream(), dy, x, dw, dbias, ProductSum::overwrite,
                                              Fp8Product{wide, narrow});
            t.take(y, Precision::mixed);  // sums of a forward may be shorter
            t.take(dx, Precision::rounded);
            t.take(dw);
            t.take(dbias);
          }};
}

}  // namespace

std::vector<Case> fp8_cases(const Fp8Cases& tested) {
  std::vector<Case> cases;
  if (tested.whole) cases.push_back(in_fp8(false));
  if (tested.blocks) cases.push_back(in_fp8(true));
  return cases;
}

std::vector<Case> gemm_cases(const Extents& e) {
  const LinearExtents square{e.rows(), e.h, e.h}, wide{e.rows(), e.h, e.f}, narrow{e.rows(), e.f, e.h};
  std::vector<Case> cases = {linear(square, {"", false, Activation::none, false}),
                             linear(square, {" bias", true, Activation::none, false})};
  for (const Epilogue& epilogue : {Epilogue{" gelu_tanh", false, Activation::gelu_tanh, true},
                                   Epilogue{" bias gelu_tanh", true, Activation::gelu_tanh, false},
                                   Epilogue{" bias gelu_tanh kept", true, Activation::gelu_tanh, true},
                                   Epilogue{" bias gelu_erf kept", true, Activation::gelu_erf, true},
                                   Epilogue{" bias tanh kept", true, Activation::tanh, true}}) {
    cases.push_back(linear(wide, epilogue));
  }
  cases.push_back(backward_input(square, "", Activation::none));
  cases.push_back(backward_input(narrow, " gelu_tanh", Activation::gelu_tanh));
  cases.push_back(backward_input(narrow, " gelu_erf", Activation::gelu_erf));
  cases.push_back(backward_input(narrow, " tanh", Activation::tanh));
  cases.push_back(backward_weight(square, false));
  cases.push_back(backward_weight(wide, true));
  cases.push_back(grouped(square));
  cases.push_back(batched(e.h, e.f));
  return cases;
}

}  // namespace trireme::selftest

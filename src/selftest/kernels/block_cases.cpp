#include "src/selftest/kernels/trial.hpp"

// Cases of norms, elementwise kernels and embeddings.

namespace trireme::selftest {
namespace {

constexpr double epsilon = 1e-5;

std::string text_of(const Extents& e) { return fmt::format("[{}, {}, {}]", e.s, e.b, e.h); }

Dropout dropout_of(Trial& t, const Extents& e, DropoutSite site) { return {0.1, 1234, 3, site, t.samples(e.b)}; }

NormStatistics statistics_of(Trial& t, const Extents& e, bool is_layer_norm) {
  return {is_layer_norm ? t.wide_output({e.rows()}) : TensorView(), t.wide_output({e.rows()})};
}

Case normalise(const Extents& e, bool is_layer_norm) {
  return {fmt::format("{} {}", is_layer_norm ? "layer_norm" : "rms_norm", text_of(e)), [=](Trial& t) {
            const Shape shape{e.s, e.b, e.h};
            const TensorView x = t.input(shape, 2), weight = t.input({e.h});
            const TensorView bias = is_layer_norm ? t.input({e.h}) : TensorView();
            const NormStatistics statistics = statistics_of(t, e, is_layer_norm);
            const TensorView y = t.output(shape), dx = t.output(shape);
            t.b.norm().normalise(t.stream(), x, weight, bias, epsilon, y, statistics);
            t.take(y);
            const TensorView dy = t.input(shape), residual = t.input(shape);
            const TensorView dweight = t.wide_input({e.h}, -1, 1);
            const TensorView dbias = is_layer_norm ? t.wide_input({e.h}, -1, 1) : TensorView();
            t.b.norm().normalise_backward(t.stream(), dy, x, weight, statistics, residual, dx, dweight, dbias);
            t.take(dx);
            t.take(dweight);
            if (dbias) t.take(dbias);
          }};
}

Case add_norm(const Extents& e, bool is_layer_norm) {
  return {fmt::format("bias_dropout_add_{} {}", is_layer_norm ? "layer_norm" : "rms_norm", text_of(e)), [=](Trial& t) {
            const Shape shape{e.s, e.b, e.h};
            const TensorView x = t.input(shape), bias = t.input({e.h}), residual = t.input(shape);
            const TensorView weight = t.input({e.h}), norm_bias = is_layer_norm ? t.input({e.h}) : TensorView();
            const TensorView sum = t.output(shape), y = t.output(shape);
            t.b.norm().bias_dropout_add_norm(t.stream(), x, bias, residual,
                                             dropout_of(t, e, DropoutSite::attention_output), weight, norm_bias,
                                             epsilon, sum, y, statistics_of(t, e, is_layer_norm));
            t.take(sum);
            t.take(y, Precision::mixed);
          }};
}

Case bias_dropout_add(const Extents& e) {
  return {"bias_dropout_add " + text_of(e), [=](Trial& t) {
            const Shape shape{e.s, e.b, e.h};
            const Dropout dropout = dropout_of(t, e, DropoutSite::mlp_output);
            const TensorView x = t.input(shape), bias = t.input({e.h}), residual = t.input(shape);
            const TensorView sum = t.output(shape), dx = t.output(shape), dbias = t.wide_input({e.h}, -1, 1);
            t.b.elementwise().bias_dropout_add(t.stream(), x, bias, residual, dropout, sum);
            t.take(sum);
            t.b.elementwise().bias_dropout_add_backward(t.stream(), residual, dropout, dx, dbias);
            t.take(dx);
            t.take(dbias, Precision::mixed);
          }};
}

Case activation(const Extents& e, const char* name, Activation kind) {
  return {fmt::format("{} [{}, {}]", name, e.rows(), e.f), [=](Trial& t) {
            const Shape shape{e.rows(), e.f};
            const TensorView x = t.input(shape, 4), dy = t.input(shape), y = t.output(shape), dx = t.output(shape);
            t.b.elementwise().activate(t.stream(), kind, x, y);
            t.take(y);
            t.b.elementwise().activate_backward(t.stream(), kind, dy, x, dx);
            t.take(dx);
          }};
}

Case glu(const Extents& e) {
  return {fmt::format("glu [{}, {}]", e.rows(), e.f), [=](Trial& t) {
            const TensorView gate_up = t.input({e.rows(), 2 * e.f}, 4), dy = t.input({e.rows(), e.f});
            const TensorView y = t.output({e.rows(), e.f}), dgate_up = t.output({e.rows(), 2 * e.f});
            t.b.elementwise().glu(t.stream(), gate_up, y);
            t.take(y);
            t.b.elementwise().glu_backward(t.stream(), dy, gate_up, dgate_up);
            t.take(dgate_up);
          }};
}

Case fill_add_scale(const Extents& e) {
  return {"fill, convert, add, scale, divide_by_norm " + text_of(e), [=](Trial& t) {
            const Shape shape{e.s, e.b, e.h};
            const TensorView x = t.wide_input(shape, -1, 1), y = t.output(shape), z = t.output(shape);
            t.b.elementwise().convert(t.stream(), x, y);
            t.round(y);
            t.take(y, Precision::exact);
            t.b.elementwise().fill(t.stream(), 0.5, z);
            t.b.elementwise().add(t.stream(), y, z);
            t.take(z);
            t.b.elementwise().scale(t.stream(), 0.25, y);
            t.take(y);
            const TensorView squares = t.sum();
            t.b.reduce().sum_squares(t.stream(), x, squares);
            t.b.elementwise().divide_by_norm(t.stream(), squares, 1e-7, y);
            t.take(y);
          }};
}

Case lookup(const Extents& e) {
  return {fmt::format("lookup of {} in [{}, {}]", e.rows(), e.v, e.h), [=](Trial& t) {
            const TensorView ids = t.integers({e.rows()}, e.v), table = t.input({e.v / 2, e.h});
            const TensorView y = t.output({e.rows(), e.h}), dy = t.input({e.rows(), e.h});
            const std::int64_t first_row = e.v / 4;  // other ranks hold the rows before and after
            t.b.embedding().lookup(t.stream(), ids, table, first_row, y);
            t.take(y, Precision::exact);
            const TensorView dtable = t.wide_input({e.v / 2, e.h}, -1, 1);
            t.b.embedding().lookup_backward(t.stream(), ids, dy, first_row, dtable);
            t.take(dtable);
          }};
}

Case positions(const Extents& e) {
  return {"add_positions " + text_of(e), [=](Trial& t) {
            const Shape shape{e.s, e.b, e.h};
            const Dropout dropout = dropout_of(t, e, DropoutSite::embedding);
            const Positions rows{0, e.s / 2, e.s};  // two pieces of a sequence, as a context rank holds them
            const TensorView table = t.input({2 * e.s, e.h}), x = t.input(shape), dy = t.input(shape);
            const TensorView dx = t.output(shape), dtable = t.wide_input({2 * e.s, e.h}, -1, 1);
            t.b.embedding().add_positions(t.stream(), table, rows, dropout, x);
            t.take(x);
            t.b.embedding().add_positions_backward(t.stream(), dy, rows, dropout, dx, dtable);
            t.take(dx);
            t.take(dtable, Precision::mixed);
          }};
}

}  // namespace

std::vector<Case> norm_cases(const Extents& e) {
  return {normalise(e, true), normalise(e, false), add_norm(e, true), add_norm(e, false)};
}

std::vector<Case> elementwise_cases(const Extents& e) {
  return {fill_add_scale(e),
          bias_dropout_add(e),
          activation(e, "gelu_tanh", Activation::gelu_tanh),
          activation(e, "gelu_erf", Activation::gelu_erf),
          activation(e, "tanh", Activation::tanh),
          glu(e)};
}

std::vector<Case> embedding_cases(const Extents& e) { return {lookup(e), positions(e)}; }

}  // namespace trireme::selftest

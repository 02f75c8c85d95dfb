#include <cmath>

#include "src/selftest/kernels/trial.hpp"

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

Case glu(const Extents& e, const char* name, Activation kind) {
  return {fmt::format("glu {} [{}, {}]", name, e.rows(), e.f), [=](Trial& t) {
            const TensorView gate_up = t.input({e.rows(), 2 * e.f}, 4), dy = t.input({e.rows(), e.f});
            const TensorView y = t.output({e.rows(), e.f}), dgate_up = t.output({e.rows(), 2 * e.f});
            t.b.elementwise().glu(t.stream(), kind, gate_up, y);
            t.take(y);
            t.b.elementwise().glu_backward(t.stream(), kind, dy, gate_up, dgate_up);
            t.take(dgate_up);
          }};
}

Case soft_cap(const Extents& e) {
  return {"soft_cap " + text_of(e), [=](Trial& t) {
            const TensorView y = t.input({e.s, e.b, e.h}, 4);
            t.b.elementwise().soft_cap(t.stream(), 2, y);
            t.take(y);
          }};
}

Case fill_add_scale(const Extents& e) {
  return {"fill, convert, add, multiply, scale, divide_by_norms " + text_of(e), [=](Trial& t) {
            const Shape shape{e.s, e.b, e.h};
            const TensorView x = t.wide_input(shape, -1, 1), y = t.output(shape), z = t.output(shape);
            t.b.elementwise().convert(t.stream(), x, y);
            t.round(y);
            t.take(y, Precision::exact);
            t.b.elementwise().fill(t.stream(), 0.5, z);
            t.b.elementwise().add(t.stream(), y, z);
            t.take(z);
            t.round(z);
            t.b.elementwise().multiply(t.stream(), y, z);
            t.take(z);
            t.b.elementwise().scale(t.stream(), 0.25, y);
            t.take(y);
            const TensorView squares = t.sum();
            t.b.reduce().sum_squares(t.stream(), x, squares);
            t.b.elementwise().divide_by_norms(t.stream(), squares, 1e-7, y, y);
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

/// Heads of a dense tensor [positions, batch, heads, channels].
Heads heads_of(TensorView data, std::int64_t batch, std::int64_t heads, std::int64_t d) {
  return {data, batch * heads * d, heads * d, d};
}

struct Variant {
  const char* name;
  bool causal = true;
  bool padding = false;
  bool dropout = false;
  bool documents = false;
  bool window = false;
  bool soft_cap = false;
  bool biases = false;
};

AttentionProblem problem_of(Trial& t, const Extents& e, const Variant& variant) {
  AttentionProblem p{.queries = e.s,
                     .keys = e.s,
                     .batch = e.b,
                     .heads = e.heads,
                     .kv_heads = e.kv_heads,
                     .head_dim = e.d,
                     .scale = 1 / std::sqrt(static_cast<double>(e.d)),
                     .causal = variant.causal,
                     .dropout = {}};
  if (variant.padding) p.lengths = t.lengths(e.b, e.s);
  if (variant.window) p.window = e.s / 3;
  if (variant.soft_cap) p.soft_cap = 3;
  if (variant.biases) p.alibi_heads = e.heads;
  if (variant.documents) p.first_visible = t.document_starts(e.s, e.b);
  if (variant.dropout) p.dropout = {0.1, 1234, 3, DropoutSite::attention_scores, t.samples(e.b)};
  return p;
}

Case attention(const Extents& e, const Variant& variant) {
  return {
      fmt::format("attention{} [{}, {}, {}/{}, {}]", variant.name, e.s, e.b, e.heads, e.kv_heads, e.d), [=](Trial& t) {
        const AttentionProblem p = problem_of(t, e, variant);
        const Shape queries{e.s, e.b, e.heads, e.d}, keys{e.s, e.b, e.kv_heads, e.d};
        const TensorView q = t.input(queries, 2), k = t.input(keys, 2), v = t.input(keys), dout = t.input(queries);
        const TensorView out = t.output(queries), log_sum_exp = t.wide_output({e.b, e.heads, e.s});
        const auto of_queries = [&](TensorView x) { return heads_of(x, e.b, e.heads, e.d); };
        const auto of_keys = [&](TensorView x) { return heads_of(x, e.b, e.kv_heads, e.d); };
        t.b.attention().attention(t.stream(), p, of_queries(q), of_keys(k), of_keys(v), of_queries(out), log_sum_exp);
        t.take(out, Precision::mixed);
        t.take(log_sum_exp);
        t.round(out);  // backward reads it as rounded
        const TensorView row_dot = t.wide_output({e.b, e.heads, e.s});
        const TensorView dq = t.output(queries), dk = t.output(keys), dv = t.output(keys);
        t.b.attention().attention_backward(t.stream(), p, of_queries(dout), of_queries(q), of_keys(k), of_keys(v),
                                           of_queries(out), log_sum_exp, row_dot, of_queries(dq), of_keys(dk),
                                           of_keys(dv));
        for (const TensorView& gradient : {dq, dk, dv}) t.take(gradient, Precision::mixed);
      }};
}

/// One query of each text, at the end of its keys, as in generation.
Case decode(const Extents& e) {
  return {fmt::format("attention of single queries [{}, {}, {}/{}, {}]", e.s, e.b, e.heads, e.kv_heads, e.d),
          [=](Trial& t) {
            AttentionProblem p = problem_of(t, e, {"", false, true});
            p.queries = 1;
            const TensorView q = t.input({1, e.b, e.heads, e.d}, 2), out = t.output({1, e.b, e.heads, e.d});
            const TensorView k = t.input({e.s, e.b, e.kv_heads, e.d}, 2), v = t.input({e.s, e.b, e.kv_heads, e.d});
            const TensorView log_sum_exp = t.wide_output({e.b, e.heads, 1});
            t.b.attention().attention(t.stream(), p, heads_of(q, e.b, e.heads, e.d), heads_of(k, e.b, e.kv_heads, e.d),
                                      heads_of(v, e.b, e.kv_heads, e.d), heads_of(out, e.b, e.heads, e.d), log_sum_exp);
            t.take(out, Precision::mixed);
            t.take(log_sum_exp);
          }};
}

/// With `documents` each sample has separate positions.
Case rotate(const Extents& e, Rotation rotation, bool documents = false) {
  return {fmt::format("rotate {}{} [{}, {}, {}, {}]", rotation == Rotation::forward ? "forward" : "backward",
                      documents ? " documents" : "", e.s, e.b, e.heads, e.d),
          [=](Trial& t) {
            const TensorView x = t.input({e.s, e.b, e.heads, e.d});
            t.b.rotary().rotate(t.stream(), {.channels = e.d / 2},
                                {.data = heads_of(x, e.b, e.heads, e.d),
                                 .rows = e.s,
                                 .batch = e.b,
                                 .heads = e.heads,
                                 .positions = {5, e.s / 2, 2 * e.s},
                                 .position_ids = documents ? t.document_starts(e.s, e.b) : nullptr},
                                rotation);
            t.take(x);
          }};
}

Case cross_entropy(const Extents& e, double soft_cap) {
  return {fmt::format("cross_entropy{} [{}, {}]", soft_cap > 0 ? " soft cap" : "", e.rows(), e.v), [=](Trial& t) {
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
            kernels.backward(t.stream(), shard, higher, sum_exp, targets, gradient, soft_cap, logits);
            t.take(logits);
            const TensorView others = t.input({n, e.v}, 4);
            kernels.losses_and_gradient(t.stream(), shard, targets, weights, gradient, soft_cap, losses, others);
            t.take(losses);
            t.take(others);
          }};
}

Case adamw(std::int64_t size) {
  return {fmt::format("adamw [{}]", size), [=](Trial& t) {
            const TensorView gradient = t.wide_input({size}, -1, 1), w = t.wide_input({size}, -1, 1);
            const TensorView m = t.wide_input({size}, -0.1, 0.1), v = t.wide_input({size}, 0.01, 0.1);
            const TensorView rounded = t.output({size});
            const AdamWStep step{.rates = {{{1e-2, 0.1}}}, .update = 3, .gradient_scale = 0.5};
            t.b.optimizer().adamw(t.stream(), step, {}, gradient, w, m, v, rounded);
            for (const TensorView& result : {w, m, v, rounded}) t.take(result);
          }};
}

Case clear(std::int64_t size) {
  return {fmt::format("clear [{}]", size), [=](Trial& t) {
            const TensorView gradient = t.wide_input({size}, -1, 1);
            t.b.optimizer().clear(t.stream(), {}, gradient);
            t.take(gradient);
          }};
}

Case sgd(std::int64_t size) {
  return {fmt::format("sgd [{}]", size), [=](Trial& t) {
            const TensorView gradient = t.wide_input({size}, -1, 1), w = t.wide_input({size}, -1, 1);
            const TensorView m = t.wide_input({size}, -1, 1), rounded = t.output({size});
            const SgdStep step{.rates = {{{1e-2, 0.1}}}, .gradient_scale = 0.5};
            t.b.optimizer().sgd(t.stream(), step, {}, gradient, w, m, rounded);
            for (const TensorView& result : {w, m, rounded}) t.take(result);
          }};
}

Case blend(std::int64_t size) {
  return {fmt::format("blend [{}]", size), [=](Trial& t) {
            const TensorView x = t.wide_input({size}, -1, 1), y = t.wide_input({size}, -1, 1);
            const TensorView rounded = t.output({size});
            t.b.optimizer().blend(t.stream(), -0.3, x, 0.75, y, rounded);
            for (const TensorView& result : {y, rounded}) t.take(result);
          }};
}

Case decide() {
  return {"decide", [](Trial& t) {
            const TensorView losses = t.sum(), of_groups = t.sum(), norm = t.sum(), factor = t.sum();
            t.b.reduce().sum_squares(t.stream(), t.wide_input({100}, -1, 1), of_groups);
            t.b.optimizer().decide(t.stream(), {.loss_scale = 8, .norm_limit = 0.1}, losses, of_groups, norm, factor);
            for (const TensorView& result : {norm, factor}) t.take(result, Precision::rounded);
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

std::vector<Case> norm_cases(const Extents& e) {
  return {normalise(e, true), normalise(e, false), add_norm(e, true), add_norm(e, false)};
}

std::vector<Case> elementwise_cases(const Extents& e) {
  return {fill_add_scale(e),
          bias_dropout_add(e),
          activation(e, "gelu_tanh", Activation::gelu_tanh),
          activation(e, "gelu_erf", Activation::gelu_erf),
          activation(e, "tanh", Activation::tanh),
          glu(e, "silu", Activation::silu),
          glu(e, "gelu_tanh", Activation::gelu_tanh),
          soft_cap(e)};
}

std::vector<Case> embedding_cases(const Extents& e) { return {lookup(e), positions(e)}; }

std::vector<Case> attention_cases(const Extents& e) {
  Extents all_heads = e;
  all_heads.kv_heads = e.heads;
  Extents cached = e, all_cached = all_heads;
  cached.s = all_cached.s = 10 * e.s;  // several splits of the keys
  return {attention(all_heads, {" causal"}),
          decode(all_cached),
          decode(cached),
          attention(all_heads, {" causal dropout", true, false, true}),
          attention(all_heads, {" padding", false, true, false}),
          attention(e, {" causal grouped"}),
          attention(e, {" causal grouped documents", true, false, false, true}),
          attention(e, {" causal grouped window", true, false, false, false, true}),
          attention(e, {" causal grouped window soft cap", true, false, false, false, true, true}),
          attention(e, {" causal grouped biases", true, false, false, false, false, false, true})};
}

std::vector<Case> warp_group_cases() {
  std::vector<Case> cases;
  for (const std::int64_t d : {64, 96, 128}) {
    // Two blocks of queries, and more tiles of keys than stages in shared memory.
    cases.push_back(attention({.s = 270, .b = 1, .heads = 1, .kv_heads = 1, .d = d},
                              {" by warp groups, causal dropout", true, false, true}));
  }
  return cases;
}

std::vector<Case> rotary_cases(const Extents& e) {
  return {rotate(e, Rotation::forward), rotate(e, Rotation::backward), rotate(e, Rotation::forward, true)};
}

std::vector<Case> cross_entropy_cases(const Extents& e) { return {cross_entropy(e, 0), cross_entropy(e, 5)}; }

std::vector<Case> optimizer_cases(const Extents& e) {
  return {adamw(e.h * e.h + 1), clear(e.h * e.h + 1), sgd(e.h * e.h + 1), blend(e.h * e.h + 1), decide()};
}

std::vector<Case> reduce_cases(const Extents& e) { return {sums(e.rows() * e.h + 1)}; }

}  // namespace trireme::selftest

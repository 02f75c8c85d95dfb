#include <cmath>

#include "src/selftest/kernels/trial.hpp"

// Cases of attention and of rotary position embeddings.

namespace trireme::selftest {
namespace {

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

}  // namespace

std::vector<Case> attention_cases(const Extents& e) {
  Extents all_heads = e;
  all_heads.kv_heads = e.heads;
  return {attention(all_heads, {" causal"}),
          attention(all_heads, {" causal dropout", true, false, true}),
          attention(all_heads, {" padding", false, true, false}),
          attention(e, {" causal grouped"}),
          attention(e, {" causal grouped documents", true, false, false, true}),
          attention(e, {" causal grouped window", true, false, false, false, true})};
}

std::vector<Case> rotary_cases(const Extents& e) {
  return {rotate(e, Rotation::forward), rotate(e, Rotation::backward), rotate(e, Rotation::forward, true)};
}

}  // namespace trireme::selftest

#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "src/backend/kernels/dropout.hpp"
#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// How a router turns logits into scores.
enum class RouterScore { softmax, sigmoid };

/// Most experts that a layer can have: kernels keep the logits of a token in registers.
constexpr std::int64_t max_routed_experts = 512;

/// Choice of `per_token` of E experts for each token, from its logits, as in Megatron Core. With softmax the scores are
/// softmax(logits), and the weights are the scores of the chosen experts. With `softmax_of_chosen` the scores are the
/// logits, and the weights their softmax over the chosen experts. With sigmoid the scores are sigmoid(logits); the
/// weights of several chosen experts are divided by their sum + 1e-20. All weights are then multiplied by `scaling`.
///
/// Scores grow with the logits, and rounding can make them equal. Experts are therefore compared by their logits, and
/// the choice is the same on every backend. Of equal logits, or equal groups, the lower is chosen.
///
/// With a bias (Wang et al. 2024, arXiv:2408.15664), only for sigmoid, experts and groups are compared by the scores
/// plus the bias, rounded to A. The bias does not enter the weights.
///
/// With groups (DeepSeek-AI 2024, arXiv:2412.19437), the experts form `groups` equal groups of neighbours. A group's
/// score is the sum of its per_token / groups_per_token largest scores; only the experts of the groups_per_token best
/// groups can be chosen.
struct RouterProblem {
  std::int64_t per_token = 1;  ///< k
  RouterScore score = RouterScore::softmax;
  bool softmax_of_chosen = true;  ///< with RouterScore::softmax
  double scaling = 1;
  std::int64_t groups = 1;            ///< 1: no groups
  std::int64_t groups_per_token = 1;  ///< divides per_token; these groups have at least per_token experts
  /// Divides n. Rows of tokens i and j share the sums of the balance loss if i % segments == j % segments.
  std::int64_t segments = 1;
};

/// A token's weight as ExpertKernels::limit_load compares it: rounded to 12 significant bits. So tokens whose weights
/// are equal but for rounding, which depends on the grid, are nearly always equal. NaN is below all numbers.
template <class A>
constexpr float compared_weight(A weight) {
  if (weight != weight) return -std::numeric_limits<float>::infinity();
  constexpr std::uint32_t half = 0x800, dropped = 0xfff;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(static_cast<float>(weight)) + half) & ~dropped);
}

/// Gradient of the losses that balance the experts. With p the scores softmax(logits), or sigmoid(logits) / (their sum
/// + 1e-20), and lse the log of the sum of exp(logits): L = factor sum_e counts[g, e] p[t, e] + z_factor lse(t)^2 for
/// token t of segment g, with constant counts.
struct BalanceGradient {
  ConstTensorView counts;  ///< [segments, E] A; empty: no balance loss
  double factor = 0;
  double z_factor = 0;
};

/// Noise of a router's input (Fedus et al. 2021, arXiv:2101.03961): element (sample, position, channel) is multiplied
/// by 1 + eps ((2 r + 1) / 65536 - 1), with r its 16 random bits as in Dropout, so that neither grid nor recomputation
/// changes it.
struct RouterJitter {
  double eps = 0;  ///< in [0, 1]; 0: no noise
  Dropout random;  ///< its key, samples and positions

  constexpr bool enabled() const { return eps > 0; }
  template <class A>
  constexpr A factor(std::uint32_t bits) const {
    return 1 + static_cast<A>(eps) * (static_cast<A>(2 * bits + 1) / 65536 - 1);
  }
};

/// Kernels of layers with experts (Shazeer et al. 2017, arXiv:1701.06538). n tokens, E experts of the model, k experts
/// a token, R rows: one for each token and expert that this rank computes. E is at most max_routed_experts, n k below
/// 2^31. T the training type, A its accumulation type. Stream-ordered, deterministic. Throws ShapeError for other
/// shapes, types or sizes.
class ExpertKernels : public KernelFamily<ExpertKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// Chooses experts [n, k] int32, in descending order of score plus bias, and their weights [n, k] A; overwrites.
  /// logits [n, E] T; bias [E] A, or empty: none. A token with logits that are NaN still chooses k different experts.
  /// For the balance loss, unless they are empty: counts[g, e] = number of tokens of segment g that have e among their
  /// k largest scores, without regard to groups and bias; sums[g, e] = sum of p[t, e] (BalanceGradient) over the tokens
  /// of segment g; token_sums = the sums over tokens of lse(t)^2 and of
  /// the entropy -sum_e p[t, e] log p[t, e]. counts, sums [segments, E] A, both or neither; token_sums [2] A;
  /// overwrites.
  virtual void route(Stream& stream, const RouterProblem& problem, ConstTensorView logits, ConstTensorView bias,
                     TensorView experts, TensorView weights, TensorView counts, TensorView sums,
                     TensorView token_sums) {
    pass_on(&ExpertKernels::route, stream,
            {.kind = KernelKind::routing,
             .bytes = bytes_of({logits, bias, experts, weights, counts, sums, token_sums}),
             .launches = counts || token_sums ? 2 : 1,
             .extents = {.balanced_tokens = counts || token_sums ? rows_of(logits.shape()) : 0}},
            problem, logits, bias, experts, weights, counts, sums, token_sums);
  }
  /// dlogits [n, E] T, overwritten, from dweights [n, k] A and route's logits and experts, plus the gradient of the
  /// balance losses. The first part is, for a token that chose the experts c, with dw_e = 0 outside c:
  ///   softmax_of_chosen, q = softmax(logits of c): scaling q_e (dw_e - sum over c of q dw) in c, 0 outside;
  ///   softmax, q = softmax(logits): scaling q_e (dw_e - sum over c of q dw), also outside c;
  ///   sigmoid, q = sigmoid(logits), S = sum over c of q + 1e-20: scaling q_e (1 - q_e) (dw_e - sum over c of q dw / S)
  ///   / S in c, 0 outside; for k = 1, scaling q_e (1 - q_e) dw_e.
  virtual void route_backward(Stream& stream, const RouterProblem& problem, ConstTensorView logits,
                              ConstTensorView experts, ConstTensorView dweights, const BalanceGradient& balance,
                              TensorView dlogits) {
    pass_on(&ExpertKernels::route_backward, stream,
            {KernelKind::routing, bytes_of({logits, experts, dweights, balance.counts, dlogits})}, problem, logits,
            experts, dweights, balance, dlogits);
  }

  /// y = x times the noise of its element (RouterJitter). x, y [s, b, h] T, may be the same memory. It is its own
  /// gradient: dx = dy times the same noise.
  virtual void jitter(Stream& stream, const RouterJitter& noise, ConstTensorView x, TensorView y) {
    pass_on(&ExpertKernels::jitter, stream, {KernelKind::routing, bytes_of({x, y})}, noise, x, y);
  }

  /// Limits each of `count` experts to `capacity` tokens: kept [n, k] int32, overwritten, is `experts`, with -1 for
  /// each token and expert beyond. An expert keeps the tokens of largest compared_weight, or the first ones with
  /// `by_position`; of equal weights the earlier token. experts [n, k] int32, in [0, count); weights [n, k] A.
  virtual void limit_load(Stream& stream, ConstTensorView experts, ConstTensorView weights, std::int64_t count,
                          std::int64_t capacity, bool by_position, TensorView kept) {
    pass_on(&ExpertKernels::limit_load, stream,
            {.kind = KernelKind::routing,
             .bytes = bytes_of({experts, weights, kept}),
             .extents = {.limited_choices = experts.numel()}},
            experts, weights, count, capacity, by_position, kept);
  }

  /// Assigns rows to the tokens of the experts [first, first + rows_of_expert.numel()): by expert, then by token, from
  /// row 0. With `room` > 0 the rows of the i-th of them begin at row i room, and it has at most `room` tokens. experts
  /// [n, k] int32, each expert at most once a token; -1: none. Overwrites:
  ///   rows_of_expert [local experts] int32: tokens of each of these experts;
  ///   row_of [n, k] int32: row of a token's expert, or -1 if it is not one of them;
  ///   slot_of int32: position in [n, k] of each row; token_of int32: its token. Both are -1 for rows without a token,
  ///   and have n k elements, or with `room` local experts x room.
  virtual void sort(Stream& stream, ConstTensorView experts, std::int64_t first, std::int64_t room,
                    TensorView rows_of_expert, TensorView row_of, TensorView slot_of, TensorView token_of) {
    pass_on(&ExpertKernels::sort, stream,
            {.kind = KernelKind::routing,
             .bytes = bytes_of({experts, experts, rows_of_expert, row_of, slot_of, token_of}),
             .launches = 2,
             .extents = {.groups = rows_of_expert.numel()}},
            experts, first, room, rows_of_expert, row_of, slot_of, token_of);
  }

  /// Adds a micro-batch to `load` [2 E + 3] A, E = `count`: to element e the choices of expert e in `chosen`, to E + e
  /// those in `kept`, both [n, k] int32, -1: none; to the last three balance_factor sum of counts x sums, unless they
  /// are empty, and token_factor times each element of token_sums. counts, sums of equal size, token_sums [2] A.
  virtual void add_load(Stream& stream, std::int64_t count, ConstTensorView chosen, ConstTensorView kept,
                        ConstTensorView counts, ConstTensorView sums, double balance_factor, ConstTensorView token_sums,
                        double token_factor, TensorView load) {
    pass_on(&ExpertKernels::add_load, stream,
            {KernelKind::routing, bytes_of({chosen, kept, counts, sums, token_sums, load, load})}, count, chosen, kept,
            counts, sums, balance_factor, token_sums, token_factor, load);
  }

  /// x[t] = sum of y[row_of[t, j]] over j, in this order, leaving out -1. y [R, h] T, row_of [n, k] int32, x [n, h] T.
  /// Overwrites. (The inverse, y[r] = x[token_of[r]], is EmbeddingKernels::lookup.)
  virtual void sum_rows(Stream& stream, ConstTensorView y, ConstTensorView row_of, TensorView x) {
    pass_on(&ExpertKernels::sum_rows, stream, {KernelKind::routing, bytes_of({y, row_of, x})}, y, row_of, x);
  }

  /// y[r] = weights[slot_of[r]] x[r], or 0 where slot_of[r] is -1. x, y [R, f] T, may be the same memory; weights [n,
  /// k] A; slot_of [at least R] int32.
  virtual void scale_rows(Stream& stream, ConstTensorView x, ConstTensorView weights, ConstTensorView slot_of,
                          TensorView y) {
    pass_on(&ExpertKernels::scale_rows, stream, {KernelKind::routing, bytes_of({x, y})}, x, weights, slot_of, y);
  }
  /// dx[r] = weights[slot_of[r]] dy[r], or 0 where slot_of[r] is -1, may be the same memory as dy; dweights[slot_of[r]]
  /// = sum over f of dy[r] x[r]. dy, x, dx [R, f] T; weights, dweights [n, k] A. Other elements of dweights are
  /// unchanged.
  virtual void scale_rows_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weights,
                                   ConstTensorView slot_of, TensorView dx, TensorView dweights) {
    pass_on(&ExpertKernels::scale_rows_backward, stream, {KernelKind::routing, bytes_of({dy, x, dx})}, dy, x, weights,
            slot_of, dx, dweights);
  }
};

}  // namespace trireme

#include "src/backend/kernels/kernel_call.hpp"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

/// Pairs of a query and a key, of one head, in which the key is at least `distance` positions before the query.
double pairs_beyond(const AttentionProblem& a, std::int64_t distance) {
  // A query at i has clamp(i + first, 0, keys) of them; `below` is their sum over all i + first up to `end`.
  const std::int64_t first = a.first_query - a.first_key - distance + 1;
  const auto below = [&](std::int64_t end) {
    const auto within = static_cast<double>(std::clamp<std::int64_t>(end, 0, a.keys));
    return within * (within + 1) / 2 + static_cast<double>(std::max<std::int64_t>(end - a.keys, 0) * a.keys);
  };
  return below(first + a.queries - 1) - below(first - 1);
}

}  // namespace

std::string_view name_of(KernelKind kind) {
  constexpr std::array<std::string_view, kernel_kind_count> names = {"products, forward",
                                                                     "products, input gradients",
                                                                     "products, weight gradients",
                                                                     "products, logits",
                                                                     "attention, forward",
                                                                     "attention, backward",
                                                                     "norms, forward",
                                                                     "norms, backward",
                                                                     "dropout, bias, residual",
                                                                     "activations",
                                                                     "cross entropy",
                                                                     "embedding",
                                                                     "routing to experts",
                                                                     "optimizer",
                                                                     "gradients, clearing and norm",
                                                                     "casts and copies",
                                                                     "copies from the host",
                                                                     "copies to the host"};
  return names[static_cast<std::size_t>(kind)];
}

double KernelCall::flops(bool causal_halved) const {
  if (product) {
    return 2.0 * static_cast<double>(product->batch * product->m) * static_cast<double>(product->n * product->k);
  }
  if (!attention) return 0;
  const AttentionProblem& a = *attention;
  const double pairs = static_cast<double>(a.batch * a.heads) * static_cast<double>(a.queries * a.keys);
  // Scores and weighted sums; backward twice that. Recomputed scores do not count.
  const double products = kind == KernelKind::attention ? 2 : 4;
  const double past = a.window < 0 ? 0 : pairs_beyond(a, 0);
  const double share = past == 0 ? 1 : 1 - pairs_beyond(a, a.window + 1) / past;
  return 2 * share * products * pairs * static_cast<double>(a.head_dim) * (causal_halved && a.causal ? 0.5 : 1);
}

int KernelCall::launch_count(bool fused) const {
  if (!product) return launches;
  const int all = launches + product->rounded;
  switch (product->end) {
    case ProductEnd::bias:
    case ProductEnd::activation:
    case ProductEnd::activation_backward:
      return all + (fused && product->can_fuse ? 0 : 1);
    case ProductEnd::bias_gradient:
      return all + (fused ? 1 : 2);  // the sum is added to the gradient, or formed in two kernels
    case ProductEnd::rounded_bias_gradient:
      return all + 1;
    default:
      return all;
  }
}

}  // namespace trireme

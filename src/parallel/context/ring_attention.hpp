#pragma once

#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::parallel {

/// Attention over sequences that are split over a context group as in SequenceShard (ring attention, Liu et al. 2023,
/// arXiv:2310.01889; chunks from both ends: Brandon et al. 2023, arXiv:2311.09431). In C steps the ranks' keys and
/// values go round the group; the next ones are in flight while attention processes the current ones. A rank holds at
/// most two ranks' keys and values, and keeps only its own for backward.
///
/// In each step two chunks of queries meet two chunks of keys. With a causal mask, pairs whose keys are all later are
/// left out. Two diagonal pairs and one full pair remain for a rank's own keys, two full pairs for another rank's.
/// Without a causal mask all four pairs remain. Either way every rank has the same work in a step, unless first_visible
/// or a window hides more tiles on some ranks. Pairs outside the window are left out too.
///
/// The results of steps are merged in the accumulation type, in an order that depends on the rank alone. In backward dk
/// and dv are sent on with their keys, in the accumulation type, and are back on their rank after the last step.
class RingAttention {
 public:
  RingAttention(Backend& backend, Communicator& context_group, Arena& workspace)
      : backend_(backend), group_(context_group), workspace_(workspace) {}

  /// Computes AttentionKernels::attention on the full sequence; queries, keys and results here are those of this rank.
  /// `problem` has as many queries as keys, from position 0; its lengths and first_visible count positions of the full
  /// sequence. log_sum_exp [2, b, heads, queries / 2] A is laid out chunk by chunk. Collective over the group.
  void forward(const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
               const Heads& out, TensorView log_sum_exp) const;
  /// Computes AttentionKernels::attention_backward on the full sequence. Collective over the group.
  void backward(const AttentionProblem& problem, const ConstHeads& dout, const ConstHeads& q, const ConstHeads& k,
                const ConstHeads& v, const ConstHeads& out, ConstTensorView log_sum_exp, TensorView row_dot,
                const Heads& dq, const Heads& dk, const Heads& dv) const;

  /// A chunk of queries and a chunk of keys, each by its number, 0 or 1, in its rank's shard. first_query and first_key
  /// of the problem are positions in the full sequence, as lengths and dropout need them.
  struct Pair {
    int query_chunk = 0;
    int key_chunk = 0;
    AttentionProblem problem;
  };
  /// Pairs that `rank` of `size` computes while it holds the keys of rank `owner`.
  static std::vector<Pair> pairs(const AttentionProblem& problem, int rank, int owner, int size);

 private:
  /// Calls visit(step, keys and values [rows, b, 2, kv_heads, d], pairs) for the keys of every rank, own ones first.
  /// The next ones are in flight meanwhile.
  template <class Visit>
  void for_each_owner(const AttentionProblem& problem, const ConstHeads& k, const ConstHeads& v, Visit&& visit) const;
  /// Sends to the next rank, receives from the previous one.
  std::vector<Work> shift(TensorView send, TensorView receive) const;

  Backend& backend_;
  Communicator& group_;
  Arena& workspace_;
};

}  // namespace trireme::parallel

#pragma once

#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::parallel {

/// Causal attention of sequences that are split over a context group as SequenceShare says (ring attention, Liu et al.
/// 2023, arXiv:2310.01889; chunks from both ends: Brandon et al. 2023, arXiv:2311.09431). In C steps the ranks' keys
/// and values go round the group; the next ones travel while attention works on those that are here. No rank ever holds
/// more than two ranks' keys and values, nor keeps others' for backward.
///
/// Of the four pairs of a chunk of queries and a chunk of keys that meet in a step, those whose keys are all later are
/// left out. What remains is the same work for every rank: with own keys two pairs on the diagonal and a whole one,
/// with any other rank's two whole ones.
///
/// The results of steps are joined in the accumulation type, in an order that depends on the rank alone; in backward dk
/// and dv travel on with their keys, in the accumulation type, and come home after the last step.
class RingAttention {
 public:
  RingAttention(Backend& backend, Communicator& context_group, Arena& workspace)
      : backend_(backend), group_(context_group), workspace_(workspace) {}

  /// As AttentionKernels::attention on the whole sequence, of which queries, keys and results here are this rank's.
  /// `problem` has as many queries as keys, from position 0; log_sum_exp [2, b, heads, queries / 2] A is laid out chunk
  /// by chunk. Collective over the group.
  void forward(const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
               const Heads& out, TensorView log_sum_exp) const;
  /// As AttentionKernels::attention_backward. Collective over the group.
  void backward(const AttentionProblem& problem, const ConstHeads& dout, const ConstHeads& q, const ConstHeads& k,
                const ConstHeads& v, const ConstHeads& out, ConstTensorView log_sum_exp, TensorView row_dot,
                const Heads& dq, const Heads& dk, const Heads& dv) const;

  /// One chunk of queries with one of keys: their numbers, 0 or 1, within the ranks' shares.
  struct Pair {
    int query_chunk = 0;
    int key_chunk = 0;
    AttentionProblem problem;
  };
  /// The pairs that `rank` of `size` works on when the keys of rank `owner` are with it.
  static std::vector<Pair> pairs(const AttentionProblem& problem, int rank, int owner, int size);

 private:
  /// Sends to the rank behind, receives from the rank before.
  std::vector<Work> shift(TensorView send, TensorView receive) const;

  Backend& backend_;
  Communicator& group_;
  Arena& workspace_;
};

}  // namespace trireme::parallel

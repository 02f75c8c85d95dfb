#pragma once

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::parallel {

/// Context shared by the layers of one rank. The objects it refers to outlive the layers.
struct TensorContext {
  Backend& backend;
  Communicator& tensor_group;
  Arena& workspace;  ///< scratch memory of the layer that runs
  /// The residual stream is split along the sequence over the tensor group, [s / t, b, h] a rank (Korthikanti et al.
  /// 2022, arXiv:2205.05198): column-parallel products gather it, row-parallel ones scatter their sum. Only with t > 1.
  bool sequence_parallel = false;
  /// Backward's collectives run behind its products; the bits are the same.
  bool overlap = true;
  Communicator* context_group = nullptr;  ///< ranks that share each sequence; null: it is complete here
  /// Ranks that share the experts of a layer, each with its own tokens; null: all experts are here.
  Communicator* expert_group = nullptr;
  bool exchange_tokens = false;  ///< tokens travel to the ranks of their experts only, instead of to all of that group
  double expert_load = 1;        ///< in rehearsals: rows of this rank's experts, over the mean of that group
  /// Neighbours in the expert group that split each expert. The tensor ranks divide the tokens that they send there. 0:
  /// the tensor group splits experts, and each of its ranks sends all tokens.
  int expert_splits = 0;
  bool overlap_shared_expert = false;  ///< the shared block of experts computes while tokens travel to the others
  bool pad_experts = false;            ///< an expert's rows are as many as its capacity, whatever the data

  bool folds_experts() const { return expert_splits > 0; }
  Stream& stream() const { return backend.compute_stream(); }
  /// The tokens that this rank sends to experts, of a tensor of all tokens of its sequences: all, or its share.
  template <class View>
  View own_tokens(View all) const {
    if (!folds_experts()) return all;
    const std::int64_t count = all.shape()[0] / tensor_group.size();
    return all.rows(count * tensor_group.rank(), count);
  }
  /// Gathers the own tokens of all tensor ranks in `all`, a tensor of all tokens.
  Work gather_tokens(TensorView all) const {
    if (!folds_experts() || tensor_group.size() == 1) return {};
    return tensor_group.all_gather(stream(), own_tokens(all), all);
  }
  /// data = sum over the tensor group; the compute stream waits for it.
  void all_reduce(TensorView data) const {
    if (tensor_group.size() > 1) tensor_group.all_reduce(stream(), data, ReduceOp::sum).wait(stream());
  }

  /// A tensor that is being gathered into `data`, which may be read after `arrival.wait`.
  struct Gathering {
    ConstTensorView data;
    Work arrival;
  };
  /// All rows of a matrix [n, columns] of the residual stream, in the work space; without sequence parallelism `rows`
  /// itself holds them.
  Gathering gather(ConstTensorView rows) const {
    if (!sequence_parallel) return {rows, {}};
    const TensorView whole = workspace.allocate(rows.dtype(), {rows.shape()[0] * tensor_group.size(), rows.shape()[1]});
    return {whole, tensor_group.all_gather(stream(), rows, whole)};
  }
  ConstTensorView gather_now(ConstTensorView rows) const {
    Gathering gathering = gather(rows);
    gathering.arrival.wait(stream());
    return gathering.data;
  }

  /// Destination of this rank's term of the sum that `sum_into` completes in `y`, [n, columns]: y itself, or with
  /// sequence parallelism a matrix of all rows in the work space.
  TensorView term_of(TensorView y) const {
    if (!sequence_parallel) return y;
    return workspace.allocate(y.dtype(), {y.shape()[0] * tensor_group.size(), y.shape()[1]});
  }
  /// y = sum of `term` over the tensor group: all of it, or with sequence parallelism this rank's rows.
  Work sum_into(TensorView y, ConstTensorView term) const {
    if (sequence_parallel) return tensor_group.reduce_scatter(stream(), term, y, ReduceOp::sum);
    return tensor_group.size() > 1 ? tensor_group.all_reduce(stream(), y, ReduceOp::sum) : Work();
  }
};

}  // namespace trireme::parallel

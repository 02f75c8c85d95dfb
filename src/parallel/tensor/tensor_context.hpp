#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/tensor/fp8_scaling.hpp"
#include "src/parallel/tensor/row_chunk.hpp"

namespace trireme::parallel {

/// Collectives in flight, one for each chunk of a tensor.
struct ChunkWorks {
  std::vector<Work> chunks;
  void wait(Stream& stream) {
    for (Work& work : chunks) work.wait(stream);
  }
  /// Waits for one of them; without any, all is there.
  void wait(std::int64_t chunk, Stream& stream) {
    if (!chunks.empty()) chunks[static_cast<std::size_t>(chunk)].wait(stream);
  }
};

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
  /// Equal chunks of this rank's rows of the residual stream. Each has its own collectives, which run beside the
  /// products of the next. With sequence parallelism rank r of t holds part r of each t-th of chunk c of all rows, so
  /// that the gathered chunks are consecutive.
  int row_chunks = 1;
  /// The gradients of a layer's weights run beside each other after its other products
  /// (GemmKernels::collect_weight_gradients).
  bool collects_weight_gradients = false;
  Fp8Scaling* fp8 = nullptr;  ///< scales of the layers' products in FP8; null: none is rounded

  bool folds_experts() const { return expert_splits > 0; }
  Stream& stream() const { return backend.compute_stream(); }
  /// Scope of work space for operands of gradients of weights: none if these run later.
  std::optional<ArenaScope> operand_scope() const {
    return collects_weight_gradients ? std::nullopt : std::optional<ArenaScope>(std::in_place, workspace);
  }
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
  void all_reduce(TensorView data, const Caller& caller = Caller::current()) const {
    if (tensor_group.size() > 1) tensor_group.all_reduce({stream(), caller}, data, ReduceOp::sum).wait(stream());
  }

  RowChunk chunk(int index) const { return {index, row_chunks}; }

  /// All rows of a matrix of the residual stream, gathered chunk by chunk: those of `whole`, or without sequence
  /// parallelism this rank's own.
  class Gathering {
   public:
    /// Overwrites a chunk of this rank's rows.
    using Fill = std::function<void(RowChunk)>;
    /// Starts nothing. `whole` is a result of `all_rows_of`. With `fill` chunks are made and start when they are asked
    /// for, otherwise by start_next.
    Gathering(const TensorContext& context, ConstTensorView own, TensorView whole, Fill fill = {})
        : context_(context), own_(own), whole_(whole), fill_(std::move(fill)) {}
    /// Starts gathering the next chunk, after which its own rows may not change.
    void start_next() {
      const RowChunk chunk = context_.chunk(started_++);
      if (fill_) fill_(chunk);
      if (!context_.sequence_parallel) return;
      arrivals_.push_back(context_.tensor_group.all_gather(context_.stream(), chunk.of(own_), chunk.of(whole_)));
    }
    /// Waits for a chunk, and returns its rows.
    ConstTensorView rows(RowChunk chunk) {
      if (chunk.count == 1) return all();
      // The next chunk's gathering runs beside the work on this one.
      start_until(static_cast<int>(chunk.index) + (context_.sequence_parallel ? 2 : 1));
      if (!context_.sequence_parallel) return chunk.of(own_);
      arrivals_[static_cast<std::size_t>(chunk.index)].wait(context_.stream());
      return ConstTensorView(chunk.of(whole_));
    }
    /// Waits for all chunks, and returns all rows.
    ConstTensorView all() {
      start_until(context_.row_chunks);
      for (Work& work : arrivals_) work.wait(context_.stream());
      return context_.sequence_parallel ? ConstTensorView(whole_) : own_;
    }
    /// This rank's rows, for which nothing waits.
    ConstTensorView own() const { return own_; }

   private:
    void start_until(int end) {
      while (fill_ && started_ < std::min(end, context_.row_chunks)) start_next();
    }

    const TensorContext& context_;
    ConstTensorView own_;
    TensorView whole_;
    Fill fill_;
    int started_ = 0;
    std::vector<Work> arrivals_;
  };
  /// Allocates a matrix of all rows in the work space, for a matrix [n, columns] of this rank's; empty without sequence
  /// parallelism.
  TensorView all_rows_of(ConstTensorView rows) const {
    if (!sequence_parallel) return {};
    return workspace.allocate(rows.dtype(), {rows.shape()[0] * tensor_group.size(), rows.shape()[1]});
  }
  /// Starts gathering all chunks of a matrix of the residual stream, in the work space.
  Gathering gather(ConstTensorView rows) const { return gather(rows, all_rows_of(rows)); }
  /// The same in `whole`, a result of `all_rows_of`.
  Gathering gather(ConstTensorView rows, TensorView whole) const {
    Gathering gathering(*this, rows, whole);
    for (int i = 0; i < row_chunks; ++i) gathering.start_next();
    return gathering;
  }
  ConstTensorView gather_now(ConstTensorView rows) const { return gather(rows).all(); }

  /// Destination of this rank's term of the sum that `sum_into` completes in `y`, [n, columns]: y itself, or with
  /// sequence parallelism a matrix of all rows in the work space.
  TensorView term_of(TensorView y) const { return sequence_parallel ? all_rows_of(y) : y; }
  /// Starts y = sum of `term` over the tensor group: all of it, or with sequence parallelism this rank's rows.
  ChunkWorks sum_into(TensorView y, ConstTensorView term, const Caller& caller = Caller::current()) const {
    ChunkWorks sums;
    const int chunks = sequence_parallel ? row_chunks : 1;
    for (int i = 0; i < chunks; ++i) {
      const RowChunk rows{i, chunks};
      sums.chunks.push_back(sum_chunk(rows.of(y), rows.of(term), caller));
    }
    return sums;
  }
  /// `sum_into` of the rows of one chunk.
  Work sum_chunk(TensorView y, ConstTensorView term, const Caller& caller = Caller::current()) const {
    if (sequence_parallel) return tensor_group.reduce_scatter({stream(), caller}, term, y, ReduceOp::sum);
    return tensor_group.size() > 1 ? tensor_group.all_reduce({stream(), caller}, y, ReduceOp::sum) : Work();
  }
};

}  // namespace trireme::parallel

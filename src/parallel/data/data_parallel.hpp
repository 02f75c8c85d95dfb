#pragma once

#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/parameter_hooks.hpp"

namespace trireme::parallel {

/// Sums gradients over a data group and, where the optimizer's state is sharded, gathers the updated shards. A step is:
/// begin_step, backwards (whose stage calls the hooks), finish_reduction, an update of every shard with start_gather
/// after each, finish_gather. Overlap changes only the times of waits, not the messages nor the order of additions. All
/// ranks of the group make the same calls; the order of units in the backward must be the same for all of them.
///
/// Work that hooks enqueue can be recorded and replayed, with two exceptions. Where the gathering of parameters
/// overlaps a forward, the first micro-batch of a step is not. Where the reduction of gradients overlaps a backward,
/// the last one is not; in ZeRO 2 no micro-batch is.
class DataParallel final : public ParameterHooks {
 public:
  /// `group` is the data group for whose size and rank the buffer was made. Both must live longer.
  DataParallel(Backend& backend, ParameterBuffer& buffer, Communicator& group);

  /// Clears the gradients. With `overlap_reduce` the reduction of a bucket starts after the last backward of all its
  /// units.
  void begin_step();
  /// Completes the reduction: shard_gradients of the buffer are the sums over group and micro-batches from now on.
  void finish_reduction();
  /// Gathers all shards of a bucket on every rank, after the update of its shard here. Buckets are gathered in the
  /// order of these calls.
  void start_gather(std::size_t bucket);
  /// Waits for the gathers that are under way, unless they overlap with the next forward: then it waits for each bucket
  /// before its use.
  void finish_gather();
  /// Gathers all shards of all parameters on every rank, after they were loaded, and waits.
  void gather_parameters();

  /// Waits for the gathers that are under way.
  void wait_for_parameters();

  /// Adds, to element b of `squares` [buckets] fp64, the sum of squares of the gradients of bucket b before each
  /// reduction that follows; empty: nothing. A rank alone in its group has no other gradients than the reduced ones, so
  /// nothing is added there.
  void observe(TensorView squares) { squares_ = group_.size() > 1 ? squares : TensorView(); }

  void before_forward(int unit) override;
  void before_backward(int unit) override;
  void pause_backward(int unit) override;
  void after_backward(int unit, bool last) override;

 private:
  bool shards_gradients() const { return buffer_.options().sharding == DataSharding::optimizer_and_gradients; }
  void start_reduction(std::size_t bucket);
  /// Moves the gradients of one unit out of the work memory: rounds them to 16 bits, or in ZeRO 2 starts to reduce them
  /// to the shards.
  void close_work(std::size_t unit);
  /// ZeRO 2: waits for the sums of one unit and adds them to the shard.
  void collect(std::size_t unit);

  Backend& backend_;
  ParameterBuffer& buffer_;
  Communicator& group_;
  TensorView squares_;
  struct UnitState {
    bool open = false;  // its work memory holds its gradients
    bool in_flight = false;
  };
  std::vector<UnitState> units_;
  struct BucketState {
    int units_left = 0;  // before the bucket's gradients are complete
    bool started = false;
    Work reduction;
    Work gather;
  };
  std::vector<BucketState> buckets_;
};

}  // namespace trireme::parallel

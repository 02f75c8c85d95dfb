#pragma once

#include <memory>
#include <vector>

#include "src/parallel/data/parameter_buffer.hpp"
#include "src/parallel/parameter_hooks.hpp"

namespace trireme::parallel {

/// Sums gradients over their group and, where the optimizer's state is sharded, gathers the updated shards. A step is:
/// begin_step, clear_gradients before the first backward, backwards (whose stage calls the hooks), finish_reduction, an
/// update of every shard with start_gather after each, finish_gather. Overlap changes only the times of waits, not the
/// messages nor the order of additions. All ranks of a group make the same calls; the order of units in the backward
/// must be the same for all of them.
///
/// Work that hooks enqueue can be recorded and replayed, with two exceptions. With `overlap_gather` the first
/// micro-batch of a step is not recorded. With `overlap_reduce` the last one is not; in ZeRO 2 none is.
class DataParallel final : public ParameterHooks {
 public:
  /// `groups` are the gradient groups for whose sizes and ranks the buffer was made. `buffer` must live longer.
  DataParallel(Backend& backend, ParameterBuffer& buffer, std::vector<GradientGroup> groups);

  /// Begins a step. The gradients of the one before stay until `clear_gradients`. With `overlap_reduce` the reduction
  /// of a bucket starts after the last backward of all its units.
  void begin_step();
  /// Clears the gradients, unless this was done since begin_step, after the update that reads them.
  void clear_gradients();
  /// Completes the reduction: afterwards shard_gradients of the buffer are the sums over group and micro-batches.
  void finish_reduction();
  /// Announces updates on `stream`, which is not the compute stream. Before the first forward: each forward, and each
  /// graph of one, waits for the latest update of a bucket before its use.
  void expect_updates(Stream& stream);
  /// Gathers all shards of a bucket on every rank, after the update of its shard here on `stream`: the compute stream,
  /// or that of `expect_updates`. Buckets are gathered in the order of these calls.
  void start_gather(std::size_t bucket, Stream& stream);
  /// Waits for the gathers in flight. With `overlap_gather` the next forward waits for each bucket before its use
  /// instead.
  void finish_gather();
  /// Gathers all shards of all parameters on every rank, after a load, and waits.
  void gather_parameters();

  /// Waits for the updates and gathers in flight.
  void wait_for_parameters();

  /// Before each later reduction of bucket b, adds the sum of squares of its gradients to element b of `squares`
  /// [buckets] fp64, on a stream of its own: beside the rest of the backward. Adds nothing if `squares` is empty or the
  /// group of b is one rank, whose gradients are the reduced ones.
  void observe(TensorView squares) { squares_ = squares; }

  void before_forward(int unit) override;
  void before_backward(int unit) override;
  void pause_backward(int unit) override;
  void after_backward(int unit, bool last) override;
  /// They share the work memory.
  bool takes_units_in_turn() const override { return buffer_.has_work(); }

 private:
  bool shards_gradients() const { return buffer_.options().sharding == DataSharding::optimizer_and_gradients; }
  const Bucket& bounds_of(std::size_t bucket) const { return buffer_.layout().buckets()[bucket]; }
  Communicator& group_of(const Bucket& bucket) const {
    return groups_[static_cast<std::size_t>(bucket.gradient_group)].gradient;
  }
  /// A unit's parameters of one gradient group.
  struct Part {
    std::size_t group;
    std::size_t unit;
  };
  const ParameterUnit& bounds_of(const Part& part) const { return buffer_.layout().units(part.group)[part.unit]; }
  TensorView gradients_of(const Part& part) const { return buffer_.unit_gradients(part.group, part.unit); }
  /// Calls function(Part) for each gradient group that has parameters of the unit.
  template <class Function>
  void for_each_part(std::size_t unit, const Function& function);
  void start_reduction(std::size_t bucket);
  /// Moves the gradients of a part out of the work memory: rounds them to 16 bits, or in ZeRO 2 starts to reduce them
  /// to the shards.
  void close_work(const Part& part);
  /// ZeRO 2: waits for the sums of a part and adds them to the shard.
  void collect(const Part& part);

  Backend& backend_;
  ParameterBuffer& buffer_;
  std::vector<GradientGroup> groups_;
  TensorView squares_;
  std::unique_ptr<Stream> observing_;  // stream of these sums, made when first used
  struct PartState {
    bool open = false;  // its work memory holds its gradients
    bool in_flight = false;
  };
  PartState& state_of(const Part& part) { return parts_[part.group][part.unit]; }
  std::vector<std::vector<PartState>> parts_;  // by gradient group and unit
  struct BucketState {
    int units_left = 0;  // before the bucket's gradients are complete
    bool started = false;
    Work reduction;
    std::unique_ptr<Event> update;  // the last one on another stream than the compute stream
    Work gather;
  };
  /// Makes the compute stream wait for the update of a bucket; `wait_for` for its gather, too.
  void wait_for_update(BucketState& state);
  void wait_for(BucketState& state);
  std::vector<BucketState> buckets_;
  bool clears_ = false;  // before the next backward
};

}  // namespace trireme::parallel

#include "src/parallel/data/data_parallel.hpp"

#include <algorithm>
#include <utility>

namespace trireme::parallel {

DataParallel::DataParallel(Backend& backend, ParameterBuffer& buffer, std::vector<GradientGroup> groups)
    : backend_(backend), buffer_(buffer), groups_(std::move(groups)), buckets_(buffer.layout().buckets().size()) {
  TRIREME_CHECK(groups_.size() == buffer.layout().gradient_groups(), ShapeError,
                "a buffer for {} gradient groups, but {} are given", buffer.layout().gradient_groups(), groups_.size());
  for (const Bucket& bucket : buffer.layout().buckets()) {
    const int ranks = group_of(bucket).size();
    TRIREME_CHECK(bucket.shards == 1 || bucket.shards == ranks, ShapeError,
                  "a buffer in {} shards for a group of {} ranks", bucket.shards, ranks);
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) parts_.emplace_back(buffer.layout().units(group).size());
}

template <class Function>
void DataParallel::for_each_part(std::size_t unit, const Function& function) {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const Part part{group, unit};
    if (bounds_of(part).size > 0) function(part);
  }
}

void DataParallel::begin_step() {
  clears_ = true;
  for (std::vector<PartState>& states : parts_) std::ranges::fill(states, PartState{});
  for (BucketState& state : buckets_) {
    state.units_left = 0;
    state.started = false;
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    for (const ParameterUnit& unit : buffer_.layout().units(group)) {
      for (std::size_t b = unit.first_bucket; b < unit.last_bucket; ++b) ++buckets_[b].units_left;
    }
  }
}

void DataParallel::clear_gradients() {
  if (!std::exchange(clears_, false)) return;
  for (BucketState& state : buckets_) wait_for_update(state);
  buffer_.clear_gradients(backend_);
}

void DataParallel::start_reduction(std::size_t bucket) {
  buffer_.complete_gradients(backend_, bucket);
  const TensorView gradients = buffer_.bucket_gradients(bucket);
  const Bucket& bounds = bounds_of(bucket);
  Communicator& group = group_of(bounds);
  Stream* stream = &backend_.compute_stream();
  if (squares_ && group.size() > 1) {
    if (!observing_) observing_ = backend_.make_stream();
    observing_->wait(*stream->record());
    stream = observing_.get();
    backend_.reduce().sum_squares(*stream, gradients, squares_.flat(static_cast<std::int64_t>(bucket), 1));
  }
  buckets_[bucket].started = true;
  buckets_[bucket].reduction =
      bounds.shards == 1
          ? group.all_reduce(*stream, gradients, ReduceOp::sum)
          : group.reduce_scatter(*stream, gradients, buffer_.own_shard(bucket, gradients), ReduceOp::sum);
}

void DataParallel::finish_reduction() {
  clear_gradients();
  Stream& stream = backend_.compute_stream();
  if (shards_gradients()) {
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      for (std::size_t unit = 0; unit < parts_[group].size(); ++unit) collect({group, unit});
    }
    return;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].started) start_reduction(b);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].reduction.wait(stream);
    if (buffer_.has_work()) {
      backend_.elementwise().convert(stream, buffer_.own_shard(b, buffer_.bucket_gradients(b)),
                                     buffer_.shard_gradients(b));
    }
  }
}

void DataParallel::start_gather(std::size_t bucket, Stream& stream) {
  BucketState& state = buckets_[bucket];
  if (&stream != &backend_.compute_stream()) stream.record_again(*state.update);
  if (bounds_of(bucket).shards == 1) return;
  state.gather =
      group_of(bounds_of(bucket)).all_gather(stream, buffer_.shard_values(bucket), buffer_.bucket_values(bucket));
}

void DataParallel::expect_updates(Stream& stream) {
  // All now: a graph that is recorded before the first update waits for the later ones, too.
  for (BucketState& state : buckets_) state.update = stream.record();
}

void DataParallel::finish_gather() {
  if (buffer_.options().overlap_gather) return;
  for (BucketState& state : buckets_) state.gather.wait(backend_.compute_stream());
}

void DataParallel::gather_parameters() {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) start_gather(bucket, backend_.compute_stream());
  wait_for_parameters();
}

void DataParallel::wait_for_update(BucketState& state) {
  // Each time: a graph that is recorded now waits for later updates, too.
  if (state.update) backend_.compute_stream().wait_at_launch(*state.update);
}

void DataParallel::wait_for(BucketState& state) {
  wait_for_update(state);
  state.gather.wait(backend_.compute_stream());
}

void DataParallel::wait_for_parameters() {
  for (BucketState& state : buckets_) wait_for(state);
}

void DataParallel::before_forward(int unit) {
  for_each_part(static_cast<std::size_t>(unit), [&](const Part& part) {
    const ParameterUnit& bounds = bounds_of(part);
    for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) wait_for(buckets_[b]);
  });
}

void DataParallel::before_backward(int unit) {
  clear_gradients();
  if (!buffer_.has_work()) return;
  for_each_part(static_cast<std::size_t>(unit), [&](const Part& part) {
    if (state_of(part).open) return;
    const TensorView work = gradients_of(part);
    if (shards_gradients()) {
      // The previous owner's transfer may still be in flight.
      for (std::size_t other = 0; other < parts_[part.group].size(); ++other) {
        if (gradients_of({part.group, other}).data() == work.data()) collect({part.group, other});
      }
      backend_.elementwise().fill(backend_.compute_stream(), 0, work);
    } else {
      const ParameterUnit& bounds = bounds_of(part);
      backend_.elementwise().convert(backend_.compute_stream(), buffer_.gradients().flat(bounds.begin, bounds.size),
                                     work);
    }
    state_of(part).open = true;
  });
}

void DataParallel::close_work(const Part& part) {
  const ParameterUnit& bounds = bounds_of(part);
  state_of(part).open = false;
  if (shards_gradients()) {
    for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) start_reduction(b);
    state_of(part).in_flight = true;
    if (!buffer_.options().overlap_reduce) collect(part);
  } else {
    backend_.elementwise().convert(backend_.compute_stream(), gradients_of(part),
                                   buffer_.gradients().flat(bounds.begin, bounds.size));
  }
}

void DataParallel::pause_backward(int unit) {
  if (!buffer_.has_work()) return;
  for_each_part(static_cast<std::size_t>(unit), [&](const Part& part) { close_work(part); });
}

void DataParallel::after_backward(int unit, bool last) {
  pause_backward(unit);
  if (shards_gradients() || !last || !buffer_.options().overlap_reduce) return;
  for_each_part(static_cast<std::size_t>(unit), [&](const Part& part) {
    const ParameterUnit& bounds = bounds_of(part);
    for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) {
      if (--buckets_[b].units_left == 0) start_reduction(b);
    }
  });
}

void DataParallel::collect(const Part& part) {
  if (!state_of(part).in_flight) return;
  const ParameterUnit& bounds = bounds_of(part);
  Stream& stream = backend_.compute_stream();
  for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) {
    buckets_[b].reduction.wait(stream);
    backend_.elementwise().add(stream, buffer_.own_shard(b, buffer_.bucket_gradients(b)), buffer_.shard_gradients(b));
  }
  state_of(part).in_flight = false;
}

}  // namespace trireme::parallel

#include "src/parallel/data/data_parallel.hpp"

namespace trireme::parallel {

DataParallel::DataParallel(Backend& backend, ParameterBuffer& buffer, Communicator& group)
    : backend_(backend),
      buffer_(buffer),
      group_(group),
      units_(buffer.layout().units().size()),
      buckets_(buffer.layout().buckets().size()) {
  const int shards = buffer.layout().shards();
  TRIREME_CHECK(shards == 1 || shards == group.size(), ShapeError, "a buffer in {} shards for a group of {} ranks",
                shards, group.size());
}

void DataParallel::begin_step() {
  buffer_.clear_gradients(backend_);
  for (UnitState& state : units_) state = {};
  for (BucketState& state : buckets_) {
    state.units_left = 0;
    state.started = false;
  }
  for (const ParameterUnit& unit : buffer_.layout().units()) {
    for (std::size_t b = unit.first_bucket; b < unit.last_bucket; ++b) ++buckets_[b].units_left;
  }
}

void DataParallel::start_reduction(std::size_t bucket) {
  const TensorView gradients = buffer_.bucket_gradients(bucket);
  Stream& stream = backend_.compute_stream();
  if (squares_) backend_.reduce().sum_squares(stream, gradients, squares_.flat(static_cast<std::int64_t>(bucket), 1));
  buckets_[bucket].started = true;
  buckets_[bucket].reduction =
      buffer_.layout().shards() == 1
          ? group_.all_reduce(stream, gradients, ReduceOp::sum)
          : group_.reduce_scatter(stream, gradients, buffer_.own_shard(gradients), ReduceOp::sum);
}

void DataParallel::finish_reduction() {
  Stream& stream = backend_.compute_stream();
  if (shards_gradients()) {
    for (std::size_t g = 0; g < units_.size(); ++g) collect(g);
    return;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].started) start_reduction(b);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].reduction.wait(stream);
    if (buffer_.has_work()) {
      backend_.elementwise().convert(stream, buffer_.own_shard(buffer_.bucket_gradients(b)),
                                     buffer_.shard_gradients(b));
    }
  }
}

void DataParallel::start_gather(std::size_t bucket) {
  if (buffer_.layout().shards() == 1) return;
  buckets_[bucket].gather =
      group_.all_gather(backend_.compute_stream(), buffer_.shard_values(bucket), buffer_.bucket_values(bucket));
}

void DataParallel::finish_gather() {
  if (!buffer_.options().overlap_gather) wait_for_parameters();
}

void DataParallel::gather_parameters() {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) start_gather(bucket);
  wait_for_parameters();
}

void DataParallel::wait_for_parameters() {
  for (BucketState& state : buckets_) state.gather.wait(backend_.compute_stream());
}

void DataParallel::before_forward(int unit) {
  const ParameterUnit& bounds = buffer_.layout().units()[static_cast<std::size_t>(unit)];
  for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) {
    buckets_[b].gather.wait(backend_.compute_stream());
  }
}

void DataParallel::before_backward(int unit) {
  const auto g = static_cast<std::size_t>(unit);
  if (!buffer_.has_work() || units_[g].open) return;
  const TensorView work = buffer_.unit_gradients(g);
  if (shards_gradients()) {
    // The previous owner's transfer may still be in flight.
    for (std::size_t other = 0; other < units_.size(); ++other) {
      if (buffer_.unit_gradients(other).data() == work.data()) collect(other);
    }
    backend_.elementwise().fill(backend_.compute_stream(), 0, work);
  } else {
    const ParameterUnit& bounds = buffer_.layout().units()[g];
    backend_.elementwise().convert(backend_.compute_stream(), buffer_.gradients().flat(bounds.begin, bounds.size),
                                   work);
  }
  units_[g].open = true;
}

void DataParallel::close_work(std::size_t unit) {
  const ParameterUnit& bounds = buffer_.layout().units()[unit];
  units_[unit].open = false;
  if (shards_gradients()) {
    for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) start_reduction(b);
    units_[unit].in_flight = true;
    if (!buffer_.options().overlap_reduce) collect(unit);
  } else {
    backend_.elementwise().convert(backend_.compute_stream(), buffer_.unit_gradients(unit),
                                   buffer_.gradients().flat(bounds.begin, bounds.size));
  }
}

void DataParallel::pause_backward(int unit) {
  if (buffer_.has_work()) close_work(static_cast<std::size_t>(unit));
}

void DataParallel::after_backward(int unit, bool last) {
  const auto g = static_cast<std::size_t>(unit);
  if (buffer_.has_work()) close_work(g);
  if (shards_gradients() || !last || !buffer_.options().overlap_reduce) return;
  const ParameterUnit& bounds = buffer_.layout().units()[g];
  for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) {
    if (--buckets_[b].units_left == 0) start_reduction(b);
  }
}

void DataParallel::collect(std::size_t unit) {
  if (!units_[unit].in_flight) return;
  const ParameterUnit& bounds = buffer_.layout().units()[unit];
  Stream& stream = backend_.compute_stream();
  for (std::size_t b = bounds.first_bucket; b < bounds.last_bucket; ++b) {
    buckets_[b].reduction.wait(stream);
    backend_.elementwise().add(stream, buffer_.own_shard(buffer_.bucket_gradients(b)), buffer_.shard_gradients(b));
  }
  units_[unit].in_flight = false;
}

}  // namespace trireme::parallel

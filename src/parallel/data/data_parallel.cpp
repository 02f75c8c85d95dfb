#include "src/parallel/data/data_parallel.hpp"

namespace trireme::parallel {

DataParallel::DataParallel(Backend& backend, ParameterBuffer& buffer, Communicator& group)
    : backend_(backend),
      buffer_(buffer),
      group_(group),
      groups_(buffer.layout().groups().size()),
      buckets_(buffer.layout().buckets().size()) {
  const int shards = buffer.layout().shards();
  TRIREME_CHECK(shards == 1 || shards == group.size(), ShapeError, "a buffer in {} shards for a group of {} ranks",
                shards, group.size());
}

void DataParallel::begin_step(int micro_batches) {
  buffer_.clear_gradients(backend_);
  for (GroupState& state : groups_) state = {micro_batches, false, false};
  for (BucketState& state : buckets_) {
    state.groups_left = 0;
    state.started = false;
  }
  for (const BufferGroup& group : buffer_.layout().groups()) {
    for (std::size_t b = group.first_bucket; b < group.last_bucket; ++b) ++buckets_[b].groups_left;
  }
}

void DataParallel::start_reduction(std::size_t bucket) {
  const TensorView gradients = buffer_.bucket_gradients(bucket);
  Stream& stream = backend_.compute_stream();
  buckets_[bucket].started = true;
  buckets_[bucket].reduction =
      buffer_.layout().shards() == 1
          ? group_.all_reduce(stream, gradients, ReduceOp::sum)
          : group_.reduce_scatter(stream, gradients, buffer_.own_part(gradients), ReduceOp::sum);
}

void DataParallel::finish_reduction() {
  Stream& stream = backend_.compute_stream();
  if (shards_gradients()) {
    for (std::size_t g = 0; g < groups_.size(); ++g) collect(g);
    return;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].started) start_reduction(b);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].reduction.wait(stream);
    if (buffer_.has_work()) {
      backend_.elementwise().convert(stream, buffer_.own_part(buffer_.bucket_gradients(b)), buffer_.shard_gradients(b));
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

void DataParallel::before_forward(int group) {
  const BufferGroup& place = buffer_.layout().groups()[static_cast<std::size_t>(group)];
  for (std::size_t b = place.first_bucket; b < place.last_bucket; ++b) {
    buckets_[b].gather.wait(backend_.compute_stream());
  }
}

void DataParallel::before_backward(int group) {
  const auto g = static_cast<std::size_t>(group);
  if (!buffer_.has_work() || groups_[g].open) return;
  const TensorView work = buffer_.group_gradients(g);
  if (shards_gradients()) {
    // The previous owner's transfer may still be in flight.
    for (std::size_t other = 0; other < groups_.size(); ++other) {
      if (buffer_.group_gradients(other).data() == work.data()) collect(other);
    }
    backend_.elementwise().fill(backend_.compute_stream(), 0, work);
  } else {
    const BufferGroup& place = buffer_.layout().groups()[g];
    backend_.elementwise().convert(backend_.compute_stream(), buffer_.gradients().flat(place.begin, place.size), work);
  }
  groups_[g].open = true;
}

void DataParallel::put_away(std::size_t group) {
  const BufferGroup& place = buffer_.layout().groups()[group];
  groups_[group].open = false;
  if (shards_gradients()) {
    for (std::size_t b = place.first_bucket; b < place.last_bucket; ++b) start_reduction(b);
    groups_[group].travelling = true;
    if (!buffer_.options().overlap_reduce) collect(group);
  } else {
    backend_.elementwise().convert(backend_.compute_stream(), buffer_.group_gradients(group),
                                   buffer_.gradients().flat(place.begin, place.size));
  }
}

void DataParallel::pause_backward(int group) {
  if (buffer_.has_work()) put_away(static_cast<std::size_t>(group));
}

void DataParallel::after_backward(int group) {
  const auto g = static_cast<std::size_t>(group);
  if (buffer_.has_work()) put_away(g);
  if (shards_gradients() || --groups_[g].backwards_left != 0 || !buffer_.options().overlap_reduce) return;
  const BufferGroup& place = buffer_.layout().groups()[g];
  for (std::size_t b = place.first_bucket; b < place.last_bucket; ++b) {
    if (--buckets_[b].groups_left == 0) start_reduction(b);
  }
}

void DataParallel::after_replayed_backward(int group) { --groups_[static_cast<std::size_t>(group)].backwards_left; }

void DataParallel::collect(std::size_t group) {
  if (!groups_[group].travelling) return;
  const BufferGroup& place = buffer_.layout().groups()[group];
  Stream& stream = backend_.compute_stream();
  for (std::size_t b = place.first_bucket; b < place.last_bucket; ++b) {
    buckets_[b].reduction.wait(stream);
    backend_.elementwise().add(stream, buffer_.own_part(buffer_.bucket_gradients(b)), buffer_.shard_gradients(b));
  }
  groups_[group].travelling = false;
}

}  // namespace trireme::parallel

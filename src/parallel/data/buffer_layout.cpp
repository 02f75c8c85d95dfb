#include "src/parallel/data/buffer_layout.hpp"

#include <algorithm>

namespace trireme::parallel {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

BufferLayout::BufferLayout(DType dtype, const std::vector<Parameter>& parameters, const BufferCut& cut)
    : shards_(cut.shards), offsets_(parameters.size()), bucket_of_(parameters.size()) {
  const std::int64_t alignment = 64 / static_cast<std::int64_t>(size_of(dtype));
  Bucket bucket{0, 0, parameters.size(), parameters.size()};
  const auto close = [&] {
    if (bucket.first == bucket.last) return;
    bucket.size = round_up(bucket.size, alignment * shards_);
    for (std::size_t i = bucket.first; i < bucket.last; ++i) bucket_of_[i] = buckets_.size();
    buckets_.push_back(bucket);
    bucket = {bucket.begin + bucket.size, 0, bucket.first, bucket.first};
  };
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const Parameter& parameter = parameters[i];
    const bool begins_anew =
        i + 1 < parameters.size() &&
        (parameter.tied || parameters[i + 1].tied || (cut.group_buckets && parameter.group != parameters[i + 1].group));
    if (begins_anew || (cut.bucket_elements > 0 && bucket.size >= cut.bucket_elements)) close();
    offsets_[i] = bucket.begin + bucket.size;
    bucket.size += round_up(parameter.stored_numel(), alignment);
    bucket.first = i;
  }
  close();
  elements_ = bucket.begin;

  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto number = static_cast<std::size_t>(parameters[i].group);
    TRIREME_CHECK(number == groups_.size() || number + 1 == groups_.size(), ShapeError,
                  "{} is of group {} after group {}", parameters[i].name, number, groups_.size());
    const Bucket& home = buckets_[bucket_of_[i]];
    // A group reaches up to the padding of its own buckets where they hold nothing else.
    if (number == groups_.size()) {
      const std::int64_t end =
          home.first == i ? home.begin + home.size : offsets_[i] + round_up(parameters[i].stored_numel(), alignment);
      groups_.push_back({offsets_[i], end, bucket_of_[i], bucket_of_[i] + 1, false});
    }
    BufferGroup& group = groups_.back();
    group.begin = std::min(group.begin, offsets_[i]);
    group.first_bucket = std::min(group.first_bucket, bucket_of_[i]);
    group.last_bucket = std::max(group.last_bucket, bucket_of_[i] + 1);
    group.has_embedding = group.has_embedding || parameters[i].role == Role::embedding;
  }
  for (BufferGroup& group : groups_) group.size -= group.begin;
}

ShardPart BufferLayout::part_of(std::size_t i, std::int64_t numel, int shard) const {
  const Bucket& bucket = buckets_[bucket_of_[i]];
  const std::int64_t shard_size = bucket.size / shards_;
  const std::int64_t shard_begin = bucket.begin + shard_size * shard;
  const std::int64_t begin = std::max(offsets_[i], shard_begin);
  const std::int64_t end = std::min(offsets_[i] + numel, shard_begin + shard_size);
  if (begin >= end) return {};
  return {begin - offsets_[i], end - begin, begin - shard_begin};
}

}  // namespace trireme::parallel

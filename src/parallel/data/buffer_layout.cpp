#include "src/parallel/data/buffer_layout.hpp"

#include <algorithm>

namespace trireme::parallel {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

BufferLayout::BufferLayout(DType dtype, const std::vector<Parameter>& parameters, const BufferSplit& split)
    : shards_(split.shards), offsets_(parameters.size()), bucket_of_(parameters.size()) {
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
        (parameter.tied || parameters[i + 1].tied || (split.unit_buckets && parameter.unit != parameters[i + 1].unit));
    if (begins_anew || (split.bucket_elements > 0 && bucket.size >= split.bucket_elements)) close();
    offsets_[i] = bucket.begin + bucket.size;
    bucket.size += round_up(parameter.stored_numel(), alignment);
    bucket.first = i;
  }
  close();
  elements_ = bucket.begin;

  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto number = static_cast<std::size_t>(parameters[i].unit);
    TRIREME_CHECK(number == units_.size() || number + 1 == units_.size(), ShapeError, "{} is of unit {} after unit {}",
                  parameters[i].name, number, units_.size());
    const Bucket& home = buckets_[bucket_of_[i]];
    // A unit includes the padding of its own buckets where they hold nothing else.
    if (number == units_.size()) {
      const std::int64_t end =
          home.first == i ? home.begin + home.size : offsets_[i] + round_up(parameters[i].stored_numel(), alignment);
      units_.push_back({offsets_[i], end, bucket_of_[i], bucket_of_[i] + 1, false});
    }
    ParameterUnit& unit = units_.back();
    unit.begin = std::min(unit.begin, offsets_[i]);
    unit.first_bucket = std::min(unit.first_bucket, bucket_of_[i]);
    unit.last_bucket = std::max(unit.last_bucket, bucket_of_[i] + 1);
    unit.has_embedding = unit.has_embedding || parameters[i].role == ParameterRole::embedding;
  }
  for (ParameterUnit& unit : units_) unit.size -= unit.begin;
}

ShardRange BufferLayout::shard_range(std::size_t i, std::int64_t numel, int shard) const {
  const Bucket& bucket = buckets_[bucket_of_[i]];
  const std::int64_t shard_size = bucket.size / shards_;
  const std::int64_t shard_begin = bucket.begin + shard_size * shard;
  const std::int64_t begin = std::max(offsets_[i], shard_begin);
  const std::int64_t end = std::min(offsets_[i] + numel, shard_begin + shard_size);
  if (begin >= end) return {};
  return {begin - offsets_[i], end - begin, begin - shard_begin};
}

}  // namespace trireme::parallel

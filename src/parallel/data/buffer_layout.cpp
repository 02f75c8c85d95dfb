#include "src/parallel/data/buffer_layout.hpp"

#include <algorithm>
#include <utility>

namespace trireme::parallel {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

BufferLayout::BufferLayout(DType dtype, const std::vector<Parameter>& parameters, const BufferSplit& split)
    : offsets_(parameters.size()), bucket_of_(parameters.size()), units_(split.shards.size()) {
  const std::int64_t alignment = 64 / static_cast<std::int64_t>(size_of(dtype));
  Bucket bucket;
  const auto close = [&] {
    if (bucket.parameters.empty()) return;
    bucket.size = round_up(bucket.size, alignment * bucket.shards);
    for (const std::size_t i : bucket.parameters) bucket_of_[i] = buckets_.size();
    elements_ += bucket.size;
    shard_elements_ += bucket.shard_size();
    buckets_.push_back(std::exchange(bucket, {}));
  };
  for (int group = 0; group < static_cast<int>(split.shards.size()); ++group) {
    const Parameter* previous = nullptr;
    for (std::size_t i = parameters.size(); i-- > 0;) {
      const Parameter& parameter = parameters[i];
      if (parameter.gradient_group != group || parameter.frozen) continue;
      const bool begins_anew = previous != nullptr && (parameter.tied || previous->tied ||
                                                       (split.unit_buckets && parameter.unit != previous->unit));
      if (begins_anew || (split.bucket_elements > 0 && bucket.size >= split.bucket_elements)) close();
      if (bucket.parameters.empty()) {
        bucket = {elements_, 0, group, split.shards[static_cast<std::size_t>(group)], shard_elements_, {}};
      }
      offsets_[i] = bucket.begin + bucket.size;
      bucket.size += round_up(parameter.stored_numel(), alignment);
      bucket.parameters.push_back(i);
      previous = &parameter;
    }
    close();
  }
  frozen_.begin = elements_;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].frozen) continue;
    bucket_of_[i] = buckets_.size();
    offsets_[i] = frozen_.begin + frozen_.size;
    frozen_.size += round_up(parameters[i].stored_numel(), alignment);
  }

  std::size_t count = 0;
  for (const Parameter& parameter : parameters) {
    const auto number = static_cast<std::size_t>(parameter.unit);
    TRIREME_CHECK(number == count || number + 1 == count, ShapeError, "{} is of unit {} after unit {}", parameter.name,
                  number, count);
    count = number + 1;
  }
  for (std::vector<ParameterUnit>& units : units_) units.resize(count);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].frozen) continue;
    ParameterUnit& unit =
        units_[static_cast<std::size_t>(parameters[i].gradient_group)][static_cast<std::size_t>(parameters[i].unit)];
    const Bucket& home = home_of(i);
    // A unit includes the padding of its own buckets where they hold nothing else.
    if (unit.last_bucket == 0) {
      const std::int64_t end = home.parameters.back() == i
                                   ? home.begin + home.size
                                   : offsets_[i] + round_up(parameters[i].stored_numel(), alignment);
      unit = {offsets_[i], end - offsets_[i], bucket_of_[i], bucket_of_[i] + 1, false};
    }
    // Later parameters of a unit lie before its earlier ones.
    unit.size += unit.begin - offsets_[i];
    unit.begin = offsets_[i];
    unit.first_bucket = std::min(unit.first_bucket, bucket_of_[i]);
    unit.last_bucket = std::max(unit.last_bucket, bucket_of_[i] + 1);
    unit.has_embedding = unit.has_embedding || parameters[i].role == ParameterRole::embedding;
  }
}

ShardRange BufferLayout::shard_range(std::size_t i, std::int64_t numel, int shard) const {
  const Bucket& bucket = home_of(i);
  const std::int64_t shard_begin = bucket.begin + (bucket.shards == 1 ? 0 : bucket.shard_size() * shard);
  const std::int64_t begin = std::max(offsets_[i], shard_begin);
  const std::int64_t end = std::min(offsets_[i] + numel, shard_begin + bucket.shard_size());
  if (begin >= end) return {};
  return {begin - offsets_[i], end - begin, begin - shard_begin};
}

}  // namespace trireme::parallel

#pragma once

#include <cstdint>
#include <vector>

#include "src/parallel/parameter.hpp"

namespace trireme::parallel {

/// Division of a buffer of parameters into buckets and shards.
struct BufferSplit {
  std::vector<int> shards = {1};     ///< by gradient group: equal shards of its buckets, one for each of its ranks
  std::int64_t bucket_elements = 0;  ///< a bucket with at least as many is closed; 0: no limit
  bool unit_buckets = false;         ///< a bucket ends with its unit of parameters
};

/// Range of a buffer that is reduced and gathered in one message.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t size = 0;                ///< padding included: divides by the shards
  int gradient_group = 0;               ///< group of all its parameters
  int shards = 1;                       ///< shards of its gradient group
  std::int64_t shard_begin = 0;         ///< first element of its shard in an array of the shards of all buckets
  std::vector<std::size_t> parameters;  ///< positions in the list in descending order: the first one lies at `begin`

  std::int64_t shard_size() const { return size / shards; }
};

/// The parameters of a unit (Parameter::unit) that belong to one gradient group.
struct ParameterUnit {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::size_t first_bucket = 0;  ///< the buckets that hold its parameters are [first_bucket, last_bucket)
  std::size_t last_bucket = 0;
  bool has_embedding = false;
};

/// Elements [begin, begin + count) of a parameter that lie in one shard of its bucket. `at` is the position of the
/// first one in that shard.
struct ShardRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t at = 0;
};

/// Positions of the parameters of one rank in its buffers: one gradient group after another, each in reverse order of
/// the list because backward finishes the last gradients first. Every parameter begins at a multiple of 64 bytes of its
/// values. Buckets hold complete parameters of one group. Their padding makes each divide into equal shards that begin
/// at such multiples too. Shards ignore the bounds of parameters (Rajbhandari et al. 2019, arXiv:1910.02054). A
/// parameter tied to another stage's has a separate bucket, so that both stages divide it alike. Frozen parameters
/// follow all buckets. Pure arithmetic.
class BufferLayout {
 public:
  BufferLayout(DType dtype, const std::vector<Parameter>& parameters, const BufferSplit& split);

  /// Elements of all buckets, with the frozen parameters behind them, and of one shard of all buckets.
  std::int64_t elements() const { return elements_; }
  std::int64_t all_elements() const { return elements_ + frozen_.size; }
  std::int64_t shard_elements() const { return shard_elements_; }

  /// First element of parameter i.
  std::int64_t offset(std::size_t i) const { return offsets_[i]; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Bucket of parameter i; of a frozen one, the number of buckets.
  std::size_t bucket_of(std::size_t i) const { return bucket_of_[i]; }
  /// The same with its bounds; of a frozen parameter those of all frozen ones, which are in one shard.
  const Bucket& home_of(std::size_t i) const {
    return bucket_of_[i] < buckets_.size() ? buckets_[bucket_of_[i]] : frozen_;
  }
  std::size_t gradient_groups() const { return units_.size(); }
  /// Units of a gradient group by number; those of which it has no parameter have size 0.
  const std::vector<ParameterUnit>& units(std::size_t gradient_group) const { return units_[gradient_group]; }
  /// Range of parameter i, which has `numel` elements, in shard `shard` of its bucket; count 0 if there is none.
  ShardRange shard_range(std::size_t i, std::int64_t numel, int shard) const;

 private:
  std::int64_t elements_ = 0;
  std::int64_t shard_elements_ = 0;
  std::vector<std::int64_t> offsets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  Bucket frozen_;
  std::vector<std::vector<ParameterUnit>> units_;  // by gradient group
};

}  // namespace trireme::parallel

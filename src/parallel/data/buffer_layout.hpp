#pragma once

#include <cstdint>
#include <vector>

#include "src/parallel/parameter.hpp"

namespace trireme::parallel {

/// Division of a buffer of parameters into buckets and shards.
struct BufferSplit {
  int shards = 1;                    ///< equal shards of every bucket, one for each rank of a data group
  std::int64_t bucket_elements = 0;  ///< a bucket with at least as many is closed; 0: no limit
  bool unit_buckets = false;         ///< a bucket ends with its unit of parameters
};

/// A stretch of a buffer that is reduced and gathered at once.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t size = 0;  ///< padding included: divides by the shards
  std::size_t first = 0;  ///< its parameters are [first, last) of the list, the last one at `begin`
  std::size_t last = 0;
};

/// A unit of parameters (Parameter::unit) in a buffer.
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

/// Positions of the parameters of one rank in its buffers. They are in reverse order, the last parameter at 0, because
/// backward finishes the last gradients first. Every parameter begins at a multiple of 64 bytes of its values. Buckets
/// hold whole parameters. Their padding makes each divide into equal shards that begin at such multiples too. Shards
/// ignore the bounds of parameters (Rajbhandari et al. 2019, arXiv:1910.02054). A parameter tied to another stage's has
/// a bucket of its own, so that both stages divide it alike. Pure arithmetic.
class BufferLayout {
 public:
  BufferLayout(DType dtype, const std::vector<Parameter>& parameters, const BufferSplit& split);

  /// Elements of the full buffer, and of one shard of all buckets.
  std::int64_t elements() const { return elements_; }
  std::int64_t shard_elements() const { return elements_ / shards_; }
  int shards() const { return shards_; }

  /// First element of parameter i.
  std::int64_t offset(std::size_t i) const { return offsets_[i]; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t bucket_of(std::size_t i) const { return bucket_of_[i]; }
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Range of parameter i, which has `numel` elements, in shard `shard` of its bucket; count 0 if there is none.
  ShardRange shard_range(std::size_t i, std::int64_t numel, int shard) const;

 private:
  int shards_;
  std::int64_t elements_ = 0;
  std::vector<std::int64_t> offsets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  std::vector<ParameterUnit> units_;
};

}  // namespace trireme::parallel

#pragma once

#include <functional>

#include "src/backend/backend.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

/// AdamW over a rank's shard of its parameters (all of them where the buffer is in one shard): both moments, and for
/// 16-bit training types fp32 master weights, in arrays of the shard. In fp32 and fp64 the parameters are their own
/// masters. Matrices and embeddings decay, biases and norms do not; padding has no gradient and stays 0.
class AdamW {
 public:
  /// Throws ConfigError for options out of range. `parameters` must live longer.
  AdamW(Backend& backend, parallel::ParameterBuffer& parameters, const AdamWOptions& options);

  /// Updates the shard from its reduced gradients times `gradient_scale`, bucket by bucket in the order in which a
  /// forward uses them; calls `updated` after each.
  void step(double learning_rate, double gradient_scale, const std::function<void(std::size_t)>& updated = {});
  /// Updates done.
  std::int64_t updates() const { return updates_; }

  /// Of masters and moments.
  std::size_t bytes() const {
    return masters_.view().size_bytes() + first_moments_.view().size_bytes() + second_moments_.view().size_bytes();
  }
  /// The part of parameter i that is in this shard (ParameterBuffer::part), flat, in the accumulation type: for
  /// checkpoints.
  TensorView master(std::size_t i) const { return part(masters(parameters_.layout().bucket_of(i)), i); }
  TensorView first_moment(std::size_t i) const {
    return part(of_bucket(first_moments_, parameters_.layout().bucket_of(i)), i);
  }
  TensorView second_moment(std::size_t i) const {
    return part(of_bucket(second_moments_, parameters_.layout().bucket_of(i)), i);
  }
  /// Takes over masters and moments written through these views: rounds the masters to this shard of the parameters.
  void restore(std::int64_t updates);
  /// Takes new parameters over as masters, after they were initialised.
  void reset_masters();

 private:
  bool rounds() const { return static_cast<bool>(masters_.view()); }
  TensorView of_bucket(const Tensor& array, std::size_t bucket) const {
    return array.view().flat(parameters_.shard_offset(bucket), parameters_.shard_values(bucket).numel());
  }
  TensorView masters(std::size_t bucket) const {
    return rounds() ? of_bucket(masters_, bucket) : parameters_.shard_values(bucket);
  }
  TensorView part(TensorView shard, std::size_t i) const {
    const parallel::ShardPart own = parameters_.part(i);
    return shard.flat(own.at, own.count);
  }
  void step_bucket(std::size_t bucket, AdamWStep& step);

  Backend& backend_;
  parallel::ParameterBuffer& parameters_;
  AdamWOptions options_;
  Tensor masters_;  // empty where the parameters are their own
  Tensor first_moments_;
  Tensor second_moments_;
  std::int64_t updates_ = 0;
};

}  // namespace trireme::optim

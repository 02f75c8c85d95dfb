#pragma once

#include "src/backend/backend.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

/// AdamW over all parameters of a rank: both moments, and for 16-bit training types fp32 master weights, in arrays laid
/// out like the parameters. In fp32 and fp64 the parameters are their own masters. Matrices and embeddings decay,
/// biases and norms do not; padding has no gradient and stays 0.
class AdamW {
 public:
  /// Throws ConfigError for options out of range. `parameters` must live longer.
  AdamW(Backend& backend, parallel::ParameterBuffer& parameters, const AdamWOptions& options);

  /// Updates all parameters from their gradients times `gradient_scale`.
  void step(double learning_rate, double gradient_scale);
  /// Updates done.
  std::int64_t updates() const { return updates_; }

  /// The arrays of parameter i, in its storage's layout and the accumulation type: for checkpoints.
  TensorView master(std::size_t i) const { return part(masters(), i); }
  TensorView first_moment(std::size_t i) const { return part(first_moments_, i); }
  TensorView second_moment(std::size_t i) const { return part(second_moments_, i); }
  /// Takes over masters and moments written through these views: rounds the masters to the parameters.
  void restore(std::int64_t updates);
  /// Takes new parameters over as masters, after they were initialised.
  void reset_masters();

 private:
  bool rounds() const { return static_cast<bool>(masters_.view()); }
  TensorView masters() const { return rounds() ? masters_.view() : parameters_.values(); }
  TensorView part(TensorView all, std::size_t i) const {
    const parallel::Parameter& parameter = parameters_.parameters()[i];
    return all.flat(parameters_.offset(i), parameter.stored_numel()).reshape(parameter.storage);
  }

  Backend& backend_;
  parallel::ParameterBuffer& parameters_;
  AdamWOptions options_;
  Tensor masters_;  // empty where the parameters are their own
  Tensor first_moments_;
  Tensor second_moments_;
  std::int64_t updates_ = 0;
};

}  // namespace trireme::optim

#pragma once

#include <cstdint>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/optim/optimizer.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

/// A rank's groups for measurements of the full model. They are the same on every rank of `model` (one replica's
/// tensor and pipeline ranks) and of `gradient`, for which the buffer was made. Each logical element counts once: on
/// the rank that represents it and, in shards, on the one that holds it.
struct NormGroups {
  int tensor_rank;
  Communicator& model;
  Communicator& gradient;
};

/// Power of the norm of the largest element.
inline constexpr int infinity_norm = 0;

/// Norm (sum of |g|^power)^(1/power) of the full model's reduced gradients, in fp64; with `infinity_norm` the largest
/// |g|. Infinite or NaN where an element is. `sum`, [1] fp64, is work space. Waits for the device.
double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const NormGroups& groups,
                     TensorView sum, int power = 2);

/// L2 norm of the full model's parameters, of which `optimizer` keeps the masters. Otherwise as gradient_norm.
double parameter_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const Optimizer& optimizer,
                      const NormGroups& groups, TensorView sum);

/// Number of the full model's reduced gradients that are zero. Padding does not count. Otherwise as gradient_norm.
std::int64_t count_zero_gradients(Backend& backend, const parallel::ParameterBuffer& parameters,
                                  const NormGroups& groups, TensorView sum);

/// Factor of the gradients that limits their norm to `limit`: min(1, limit / (norm + 1e-6)); 1 if `limit` is 0.
double clip_coefficient(double norm, double limit);

}  // namespace trireme::optim

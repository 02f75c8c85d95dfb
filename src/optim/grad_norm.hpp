#pragma once

#include <cstdint>
#include <span>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/optim/optimizer.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

/// This rank's gradient groups, for which the buffer was made. Measurements are collective over all of them. Each
/// logical element counts once: on the rank that represents it and, in shards, on the one that holds it.
using NormGroups = std::span<const parallel::GradientGroup>;

/// Power of the norm of the largest element.
inline constexpr int infinity_norm = 0;

/// Norm (sum of |g|^power)^(1/power) of the full model's reduced gradients, in fp64; with `infinity_norm` the largest
/// |g|. Infinite or NaN if an element is. `sum`, [1] fp64, is work space. Waits for the device.
double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups, TensorView sum,
                     int power = 2);

/// L2 norm of the full model's parameters, of which `optimizer` keeps the masters. Otherwise as gradient_norm.
double parameter_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const Optimizer& optimizer,
                      NormGroups groups, TensorView sum);

/// Number of the full model's reduced gradients that are zero. Padding does not count. Otherwise as gradient_norm.
std::int64_t count_zero_gradients(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups,
                                  TensorView sum);

/// Factor of the gradients that limits their norm to `limit`: min(1, limit / (norm + 1e-6)); 1 if `limit` is 0.
double clip_coefficient(double norm, double limit);

}  // namespace trireme::optim

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

/// sums [groups] fp64 = sum of |g|^power over the full model's reduced gradients of each group; with `infinity_norm`
/// the largest |g|. Infinite or NaN if an element is. Overwrites. Stream-ordered.
void sum_gradients(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups, TensorView sums,
                   int power = 2);

/// L2 norm of the full model's parameters, of which `optimizer` keeps the masters. `sums`, [groups] fp64, is work
/// space. Waits for the device.
double parameter_norm(Backend& backend, const parallel::ParameterBuffer& parameters, const Optimizer& optimizer,
                      NormGroups groups, TensorView sums);

/// Number of the full model's reduced gradients that are zero. Padding does not count. Otherwise as parameter_norm.
std::int64_t count_zero_gradients(Backend& backend, const parallel::ParameterBuffer& parameters, NormGroups groups,
                                  TensorView sums);

}  // namespace trireme::optim

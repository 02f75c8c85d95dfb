#pragma once

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

/// L2 norm of the whole model's reduced gradients, in fp64. It is the same on every rank of `model_group` (one
/// replica's tensor and pipeline ranks) and of `gradient_group`, for which the buffer was made. Each logical element
/// counts once: on the rank that represents it and, in shards, on the one that holds it. Infinite or NaN where an
/// element is. `sum`, [1] fp64, is work space. Waits for the device.
double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, int tensor_rank,
                     Communicator& model_group, Communicator& gradient_group, TensorView sum);

/// Factor of the gradients that limits their norm to `limit`: min(1, limit / (norm + 1e-6)); 1 where `limit` is 0.
double clip_coefficient(double norm, double limit);

}  // namespace trireme::optim

#pragma once

#include "src/backend/host_numbers.hpp"
#include "src/optim/grad_norm.hpp"

namespace trireme::test {

/// Norm of the full model's reduced gradients, as a step computes it.
inline double gradient_norm(Backend& backend, const parallel::ParameterBuffer& parameters, optim::NormGroups groups,
                            int power = 2) {
  const Tensor sums(backend, DType::fp64, {std::ssize(groups)}), decision(backend, DType::fp64, {3});
  Stream& stream = backend.compute_stream();
  optim::sum_gradients(backend, parameters, groups, sums, power);
  backend.elementwise().fill(stream, 0, decision);
  backend.optimizer().decide(stream, {.norm_power = power}, decision.view().flat(2, 1), sums,
                             decision.view().flat(0, 1), decision.view().flat(1, 1));
  return read_numbers(backend, stream, decision)[0];
}

}  // namespace trireme::test

#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "src/parallel/data/parameter_buffer.hpp"
#include "tests/support/random_tensor.hpp"

// Parameters for tests of optimizers.

namespace trireme::optim::test {

using namespace trireme::test;
using parallel::Parameter;
using parallel::ParameterBuffer;
using parallel::ParameterRole;

inline Parameter parameter(const std::string& name, ParameterRole role, const Shape& shape) {
  Parameter p;
  p.name = name;
  p.role = role;
  p.shape = shape;
  p.box = Box::whole(shape);
  p.storage = shape;
  return p;
}

/// Decaying and not in turn, sizes that leave gaps between them, and a vocabulary with two rows of padding.
inline std::vector<Parameter> parameters() {
  std::vector<Parameter> list = {parameter("wte", ParameterRole::embedding, {5, 3}),
                                 parameter("ln.weight", ParameterRole::norm_weight, {7}),
                                 parameter("ln.bias", ParameterRole::norm_bias, {7}),
                                 parameter("fc.weight", ParameterRole::matrix, {9, 7}),
                                 parameter("proj.weight", ParameterRole::residual_matrix, {7, 9}),
                                 parameter("proj.bias", ParameterRole::bias, {7})};
  list[0].storage = {7, 3};
  return list;
}

/// Random numbers in the box, zero beyond it.
inline void fill(Backend& backend, const Parameter& p, TensorView to, std::uint64_t seed) {
  std::vector<double> values = random_values(p.stored_numel(), seed);
  std::fill(values.begin() + p.box.numel(), values.end(), 0);
  const Tensor source = make_tensor(backend, to.dtype(), p.storage, values);
  backend.elementwise().convert(backend.compute_stream(), source, to);
}

inline void fill_values(Backend& backend, ParameterBuffer& buffer) {
  std::uint64_t seed = 1;
  for (const Parameter& p : buffer.parameters()) fill(backend, p, p.value, seed++);
}

inline void fill_gradients(Backend& backend, ParameterBuffer& buffer, std::uint64_t step) {
  std::uint64_t seed = 1000 * step;
  for (const Parameter& p : buffer.parameters()) fill(backend, p, p.gradient, seed++);
}

}  // namespace trireme::optim::test

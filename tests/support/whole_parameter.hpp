#pragma once

#include <string>

#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::test {

/// A parameter that is not split.
inline parallel::Parameter whole_parameter(const std::string& name, parallel::ParameterRole role, const Shape& shape) {
  parallel::Parameter p;
  p.name = name;
  p.role = role;
  p.shape = shape;
  p.box = Box::whole(shape);
  p.storage = shape;
  return p;
}

}  // namespace trireme::test

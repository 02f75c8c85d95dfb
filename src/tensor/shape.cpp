#include "src/tensor/shape.hpp"

#include <fmt/ranges.h>

namespace trireme {

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.extents(), ", ")); }

Box Box::whole(const Shape& shape) {
  Box box{shape, shape};
  for (int i = 0; i < shape.rank(); ++i) box.offset[i] = 0;
  return box;
}

}  // namespace trireme

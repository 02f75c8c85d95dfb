#include "src/tensor/dtype.hpp"

namespace trireme {

DType dtype_from_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::uint8); ++i) {
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  throw ConfigError("there is no data type '{}'; training types are fp64, fp32, bf16 and fp16", name);
}

}  // namespace trireme

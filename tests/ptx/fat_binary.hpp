#pragma once

#include <string>

namespace trireme::ptx {

/// Returns the PTX in a fat binary, which nvcc puts into objects. Throws PtxError where it has none.
std::string ptx_of_fat_binary(const void* fat_binary);

}  // namespace trireme::ptx

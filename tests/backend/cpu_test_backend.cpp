#include "src/backend/cpu/cpu_backend.hpp"
#include "tests/support/test_backend.hpp"

namespace trireme::test {

bool has_fp64_kernels() { return true; }

std::unique_ptr<Backend> make_backend(int variant) { return cpu::make_backend(variant); }

}  // namespace trireme::test

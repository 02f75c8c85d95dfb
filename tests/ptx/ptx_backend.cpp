#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/test_backend.hpp"

namespace trireme::test {

bool has_fp64_kernels() { return false; }

std::unique_ptr<Backend> make_backend(int) { return make_gpu_backend({.check_launches = true}); }

}  // namespace trireme::test

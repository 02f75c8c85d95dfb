// main of tests on a GPU whose inputs are new in every run (tests/support/random_tensor.hpp). The program is skipped
// (exit code 77) without a GPU.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/test_backend.hpp"

namespace trireme::test {

bool has_fp64_kernels() { return false; }

std::unique_ptr<Backend> make_backend(int) { return make_gpu_backend({.check_launches = true}); }

}  // namespace trireme::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string problem = trireme::test::gpu_problem();
  if (problem.empty()) {
    setenv("TRIREME_TEST_SEED", std::to_string(std::random_device{}()).c_str(), 0);  // one that is set stays
    std::printf("inputs are those of TRIREME_TEST_SEED=%s\n", std::getenv("TRIREME_TEST_SEED"));
    return RUN_ALL_TESTS();
  }
  const char* required = std::getenv("TRIREME_REQUIRE_GPU");
  const bool fails = required != nullptr && std::string(required) == "1";
  std::printf("%s: %s\n", fails ? "FAILED" : "skipped", problem.c_str());
  return fails ? 1 : 77;
}

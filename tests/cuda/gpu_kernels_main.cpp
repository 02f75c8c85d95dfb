// main of the kernel families' tests on a GPU. The whole program is skipped (exit code 77) where there is none.
#include <cstdio>

#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/test_backend.hpp"

namespace trireme::test {

std::unique_ptr<Backend> make_backend(int) { return make_gpu_backend({.check_launches = true}); }

}  // namespace trireme::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string problem = trireme::test::gpu_problem();
  if (problem.empty()) return RUN_ALL_TESTS();
  const char* required = std::getenv("TRIREME_REQUIRE_GPU");
  const bool fails = required != nullptr && std::string(required) == "1";
  std::printf("%s: %s\n", fails ? "FAILED" : "skipped", problem.c_str());
  return fails ? 1 : 77;
}

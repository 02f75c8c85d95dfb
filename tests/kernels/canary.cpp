// Kernels with one mistake each, to prove that the sanitizers find it on the host layer.
// usage: kernels_canary MISTAKE      "none" runs the kernel without one
#include <gpu/mma.cuh>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/gpu/fibers.hpp"

namespace trireme::gpu {
namespace {

enum class Mistake { none, barrier, warp, addition, beyond_shared, beyond_global, copy };

/// y[0] = sum of 64 elements of x, by two warps; with asynchronous copies to shared memory.
void sum(Mistake mistake, const float* x, float* y) {
  const unsigned thread = threadIdx.x;
  auto* memory = dynamic_shared<float>();
  if (thread < 16) copy_async(memory + 4 * thread, x + 4 * thread, true);
  commit_copies();
  wait_for_copies<0>();
  if (mistake != Mistake::copy) __syncthreads();
  float value = memory[63 - thread];
  __syncthreads();
  for (unsigned offset = 16; offset > 0; offset /= 2) {
    memory[thread] = value;
    if (mistake != Mistake::warp) __syncwarp();
    const float other = memory[thread ^ offset];
    __syncwarp();
    value += other;
  }
  __syncthreads();
  if (thread % 32 == 0) memory[thread / 32] = value;
  if (mistake != Mistake::barrier) __syncthreads();
  if (thread == 0) *y = memory[0] + memory[1];
  __syncthreads();
  if (mistake == Mistake::addition) *y += 0;
  if (mistake == Mistake::beyond_shared && thread == 5) memory[64] = 1;
  if (mistake == Mistake::beyond_global && thread == 5) y[1] = 1;
}

int run(const std::string& name) {
  const std::map<std::string, Mistake> mistakes = {
      {"none", Mistake::none},         {"barrier", Mistake::barrier},      {"warp", Mistake::warp},
      {"addition", Mistake::addition}, {"shared", Mistake::beyond_shared}, {"global", Mistake::beyond_global},
      {"copy", Mistake::copy}};
  std::vector<float> x(64, 1), y(1);
  ImmediateStream stream;
  launch(stream, {"sum", 1, 64, 64 * sizeof(float)}, sum, mistakes.at(name), x.data(), y.data());
  std::cout << "sum " << y[0] << std::endl;
  return 0;
}

}  // namespace
}  // namespace trireme::gpu

int main(int argc, char** argv) { return trireme::gpu::run(argc > 1 ? argv[1] : "none"); }

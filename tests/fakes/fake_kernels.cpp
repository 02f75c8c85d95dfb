#include <cstdint>
#include <string>
#include <utility>

#include "cuda/runtime/stream.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/gpu/fibers.hpp"

namespace fake_cuda {
namespace {

std::string spoiled;
std::uint32_t* latest_tensor = nullptr;  // that a launch names; its last one when it starts

/// Remembers the memory and returns whether a kernel may be given it.
bool see_tensor(const void* pointer) {
  latest_tensor = static_cast<std::uint32_t*>(const_cast<void*>(pointer));
  return gpu_may_touch(pointer);
}

/// Returns a kernel that changes an exponent in its result, of 32 bits or of 16.
std::function<void()> with_wrong_element(std::function<void()> run) {
  return [run = std::move(run), tensor = latest_tensor] {
    run();
    *tensor ^= 0x40004000;
  };
}

}  // namespace

void spoil_kernel(const std::string& name) { spoiled = name; }

void start_kernels_on_streams() {
  using namespace trireme;
  unload_kernels();
  gpu::host::set_memory(see_tensor);
  gpu::host::set_starter([](Stream& stream, const gpu::Launch& launch, std::function<void()> run) {
    cuda::CudaStream& on = cuda::cuda_stream(stream);
    load_kernel(launch.kernel);
    if (launch.kernel == spoiled) run = with_wrong_element(std::move(run));
    enqueue(on.handle(), launch.kernel, std::move(run), {static_cast<int>(launch.blocks), costs.kernel_block_us});
    on.device().launched(on.handle(), launch.kernel);
  });
}

}  // namespace fake_cuda

#include <set>

#include "cuda/runtime/stream.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/gpu/fibers.hpp"

namespace fake_cuda {

void start_kernels_on_streams() {
  using namespace trireme;
  static std::set<std::string> loaded;
  loaded.clear();
  gpu::host::set_memory(gpu_may_touch);
  gpu::host::set_starter([](Stream& stream, const gpu::Launch& launch, std::function<void()> run) {
    cuda::CudaStream& on = cuda::cuda_stream(stream);
    // CUDA loads a kernel at its first launch, for which it may wait until the GPU has nothing to do.
    if (loaded.insert(launch.kernel).second) run_all();
    enqueue(on.handle(), launch.kernel, std::move(run));
    on.device().launched(on.handle(), launch.kernel);
  });
}

}  // namespace fake_cuda

#include "cuda/backend/cuda_backend.hpp"
#include "cuda/runtime/stream.hpp"
#include "tests/cuda/fake_cublaslt.hpp"
#include "tests/cuda/fake_cuda.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/gpu/fibers.hpp"

namespace trireme::test {
namespace {

void start_kernel(Stream& stream, const gpu::Launch& launch, std::function<void()> run) {
  cuda::CudaStream& on = cuda::cuda_stream(stream);
  fake_cuda::enqueue(on.handle(), launch.kernel, std::move(run));
  on.device().launched(on.handle(), launch.kernel);
}

}  // namespace

std::string gpu_problem() { return ""; }
bool is_real_gpu() { return false; }
bool have_gpus(int count) {
  fake_cuda::set_devices(count);
  return true;
}
std::unique_ptr<Backend> make_gpu_backend(const CudaOptions& options) {
  fake_cuda::guard_device_memory();
  fake_cublaslt::behaviour().algorithms = 1;
  gpu::host::set_starter(start_kernel);
  return cuda::make_backend(options, "90a-real");
}

}  // namespace trireme::test

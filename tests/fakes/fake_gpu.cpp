#include "cuda/backend/cuda_backend.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/cublaslt/fake_cublaslt.hpp"
#include "tests/fakes/fake_cuda.hpp"

namespace trireme::test {
std::string gpu_problem() { return ""; }
bool is_real_gpu() { return false; }
bool ranks_share_gpus() { return false; }
bool have_gpus(int count) {
  fake_cuda::set_devices(count);
  return true;
}
void slow_new_streams(bool slow) { fake_cuda::make_slow_streams(slow); }
std::unique_ptr<Backend> make_gpu_backend(const BackendOptions& options) {
  fake_cuda::guard_device_memory();
  fake_cublaslt::behaviour().algorithms = 1;
  fake_cuda::start_kernels_on_streams();
  return cuda::make_backend(options, "90");
}

}  // namespace trireme::test

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cuda/runtime/memory.hpp"
#include "cuda/runtime/stream.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "tests/support/random_tensor.hpp"

namespace trireme::test {

/// A test that needs a GPU. Without one it is skipped with the reason, or fails if TRIREME_REQUIRE_GPU=1.
/// The device is synchronised at the end of a test, so that an error of a kernel belongs to its test.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
      const char* required = std::getenv("TRIREME_REQUIRE_GPU");
      ASSERT_FALSE(required != nullptr && std::string(required) == "1") << "no GPU: " << cuda::reason_of(status);
      GTEST_SKIP() << "no GPU: " << cuda::reason_of(status);
    }
    device_ = std::make_shared<cuda::Device>(location(count), cuda::LaunchChecks::immediate);
    memory_ = std::make_shared<cuda::DeviceMemory>(device_);
    stream_ = std::make_unique<cuda::CudaStream>(device_);
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  /// DeviceLocation of this rank on a machine with this many GPUs.
  virtual cuda::DeviceLocation location(int /*gpus*/) const { return {0, "this machine", 0, ""}; }

  /// A copy on the GPU of a tensor in host memory.
  Tensor upload(ConstTensorView host) {
    Tensor tensor(*memory_, host.dtype(), host.shape());
    cuda::copy(*stream_, host, tensor);
    stream_->synchronize();
    return tensor;
  }
  Tensor random(DType dtype, const Shape& shape, std::uint64_t seed) {
    // One of many results may vanish, a single one must not.
    return upload(random_tensor(*cpu_, dtype, shape, seed, shape.numel() == 1 ? 0.1 : -0.5, 0.5));
  }
  Tensor poisoned(DType dtype, const Shape& shape) { return upload(poisoned_tensor(*cpu_, dtype, shape)); }
  /// A copy in host memory of a tensor on the GPU.
  Tensor download(ConstTensorView device) {
    Tensor tensor(*cpu_, device.dtype(), device.shape());
    cuda::copy(*stream_, device, tensor);
    stream_->synchronize();
    return tensor;
  }
  std::vector<double> values(ConstTensorView device) { return values_of(*cpu_, download(device)); }
  /// Its elements in fp64, on the CPU.
  Tensor exact(ConstTensorView device) { return converted(*cpu_, download(device), DType::fp64); }

  std::unique_ptr<Backend> cpu_ = cpu::make_backend(1);
  std::shared_ptr<cuda::Device> device_;
  std::shared_ptr<cuda::DeviceMemory> memory_;
  std::unique_ptr<cuda::CudaStream> stream_;
};

}  // namespace trireme::test

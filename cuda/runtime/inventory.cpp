#include "cuda/runtime/inventory.hpp"

#include <cublasLt.h>
#include <fmt/format.h>
#include <nccl.h>

#include "cuda/runtime/device.hpp"

namespace trireme::cuda {
namespace {

std::string describe(int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status != cudaSuccess) return fmt::format("GPU {}: {}", device, reason_of(status));
  return fmt::format("GPU {}: {}", device, to_text(properties));
}

/// "2.28.9", with the header version if it differs.
std::string with_headers(const std::string& found, const std::string& headers) {
  return found == headers ? found : fmt::format("{} (built with {})", found, headers);
}

std::string versions() {
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&nccl);
  const std::size_t cublas = cublasLtGetVersion();
  const auto three = [](std::size_t number) {
    return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  };
  return fmt::format("driver for CUDA {}, runtime {}, cuBLASLt {}, NCCL {}",
                     driver == 0 ? "none" : cuda_version(driver),
                     with_headers(cuda_version(runtime), cuda_version(CUDART_VERSION)),
                     with_headers(three(cublas), three(CUBLAS_VERSION)),
                     with_headers(three(static_cast<std::size_t>(nccl)), three(NCCL_VERSION_CODE)));
}

/// Returns a device attribute; 0 if unavailable.
double attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, name, device) == cudaSuccess ? value : 0;
}

/// Dense bf16 operations per multiprocessor and clock, from NVIDIA's peak rates; 0: unknown. "A100 Tensor Core GPU
/// Architecture", table of specifications: 312 TFLOPS of 108 multiprocessors at 1.41 GHz. "H100 Tensor Core GPU
/// Architecture": 989.4 TFLOPS of 132 multiprocessors at 1.83 GHz.
double operations_per_clock(int compute_capability) {
  switch (compute_capability) {
    case 80:
      return 2048;
    case 90:
      return 4096;
    default:
      return 0;
  }
}

/// Bandwidth: memory clock x width x 2, as in "CUDA C++ Best Practices Guide", Theoretical Bandwidth Calculation.
Ceilings ceilings_of(int device, const cudaDeviceProp& properties) {
  constexpr double hz = 1000, bits = 8;  // clocks are in kHz
  return {.bytes_per_s = 2 * hz * attribute(cudaDevAttrMemoryClockRate, device) *
                         attribute(cudaDevAttrGlobalMemoryBusWidth, device) / bits,
          .operations_per_s = hz * attribute(cudaDevAttrClockRate, device) *
                              attribute(cudaDevAttrMultiProcessorCount, device) *
                              operations_per_clock(10 * properties.major + properties.minor)};
}

}  // namespace

std::string cuda_version(int number) { return fmt::format("{}.{}", number / 1000, number / 10 % 100); }

GpuReport take_inventory(int local_rank) {
  GpuReport report;
  report.versions = versions();
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    report.problem = status == cudaSuccess ? "no GPU is visible" : reason_of(status);
    return report;
  }
  for (int device = 0; device < count; ++device) report.devices.push_back(describe(device));
  report.device = choose_device(local_rank, count);
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, report.device) == cudaSuccess) {
    report.pci_address = pci_address(properties);
    report.ceilings = ceilings_of(report.device, properties);
  }
  return report;
}

}  // namespace trireme::cuda

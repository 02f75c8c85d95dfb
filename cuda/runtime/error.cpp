#include "cuda/runtime/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "src/base/machine.hpp"

namespace trireme::cuda {

std::string to_string(const DeviceLocation& gpu) {
  return fmt::format("rank {} on {}, GPU {} ({})", gpu.world_rank, gpu.host, gpu.device, gpu.device_name);
}

std::string error_text(const char* call, const std::string& reason, const DeviceLocation& gpu,
                       const std::source_location& location) {
  const std::string_view path = location.file_name();
  const std::size_t folder = path.rfind("cuda/");
  return fmt::format("{} failed: {}; {}; {}:{}", call, reason, to_string(gpu),
                     folder == std::string_view::npos ? path : path.substr(folder), location.line());
}

std::string reason_of(cudaError_t status) {
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

bool is_of_machine(cudaError_t status, const std::string& pci_configuration) {
  constexpr auto contained = static_cast<cudaError_t>(226);  // cudaErrorContained, which CUDA 12 may lack
  for (const cudaError_t fault : {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, contained,
                                  cudaErrorDevicesUnavailable, cudaErrorSystemNotReady}) {
    if (status == fault) return true;
  }
  std::ifstream file(pci_configuration, std::ios::binary);
  std::array<char, 4> vendor_and_device{};
  file.read(vendor_and_device.data(), vendor_and_device.size());
  return file.good() && std::ranges::count(vendor_and_device, '\xff') == 4;
}

void throw_machine_error(const std::string& text, const std::string& host) {
  report_faulty_nodes({host});
  throw MachineError(
      "{}. Test the host with 'trireme selftest', exclude it, and run the same command again with <load>", text);
}

}  // namespace trireme::cuda

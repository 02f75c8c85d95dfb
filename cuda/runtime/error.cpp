#include "cuda/runtime/error.hpp"

#include <fmt/format.h>

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

}  // namespace trireme::cuda

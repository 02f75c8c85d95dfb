#include "src/backend/cuda_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

namespace trireme {
namespace {

/// The folder of the library this code is in, where the CUDA backend's library is installed too.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace

const CudaExports* open_cuda_library(const std::filesystem::path& folder, const std::string& driver,
                                     std::string& reason) {
  const std::filesystem::path library = folder / "libtrireme_cuda.so";
  if (!std::filesystem::exists(library)) {
    reason = fmt::format("this build has no CUDA backend ({} does not exist)", library.string());
    return nullptr;
  }
  if (dlopen(driver.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    reason = fmt::format("this machine has no NVIDIA driver ({})", dlerror());
    return nullptr;
  }
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    reason = fmt::format("the CUDA backend does not load: {}", dlerror());
    return nullptr;
  }
  const auto* exports = static_cast<const CudaExports*>(dlsym(handle, "trireme_cuda"));
  if (exports == nullptr || exports->version != std::string_view(TRIREME_VERSION)) {
    reason = fmt::format("{} is of another version of the program{}", library.string(),
                         exports == nullptr ? "" : fmt::format(", {}", exports->version));
    return nullptr;
  }
  return exports;
}

const CudaExports* open_cuda_library(std::string& reason) {
  return open_cuda_library(own_folder(), "libcuda.so.1", reason);
}

}  // namespace trireme

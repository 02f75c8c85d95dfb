#include <dlfcn.h>

#include <filesystem>

#include "src/backend/backend.hpp"
#include "src/backend/cpu/cpu_backend.hpp"

namespace trireme {
namespace {

/// What the CUDA backend's library exports: a new backend, or nullptr and the reason in `reason`.
using MakeCudaBackend = Backend* (*)(std::string* reason);

/// The folder of the library this code is in, where the CUDA backend's library is installed too.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

std::unique_ptr<Backend> try_cuda(std::string& reason) {
  const std::filesystem::path library = own_folder() / "libtrireme_cuda.so";
  if (!std::filesystem::exists(library)) {
    reason = fmt::format("this build has no CUDA backend ({} does not exist)", library.string());
    return nullptr;
  }
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    reason = fmt::format("the CUDA backend does not load: {}", dlerror());
    return nullptr;
  }
  const auto make = reinterpret_cast<MakeCudaBackend>(dlsym(handle, "trireme_make_cuda_backend"));
  if (make == nullptr) {
    reason = fmt::format("{} is of another version of the program", library.string());
    return nullptr;
  }
  return std::unique_ptr<Backend>(make(&reason));
}

}  // namespace

std::unique_ptr<Backend> make_backend(BackendChoice choice, int threads, std::string* reason) {
  std::string why = "it was asked for";
  if (choice != BackendChoice::cpu) {
    if (std::unique_ptr<Backend> cuda = try_cuda(why)) return cuda;
    TRIREME_CHECK(choice == BackendChoice::automatic, BackendUnavailable,
                  "--backend cuda: {}; use --backend cpu, or a build with CUDA on a machine with a GPU", why);
  }
  if (reason != nullptr) *reason = why;
  return cpu::make_backend(threads);
}

}  // namespace trireme

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend_options.hpp"

namespace trireme {

class Backend;

/// GPUs and libraries of this machine, for `trireme info`.
struct GpuReport {
  std::string versions;              ///< of driver, runtime, cuBLASLt and NCCL
  std::vector<std::string> devices;  ///< one line each
  int device = -1;                   ///< that of this rank; -1: none
  std::string problem;               ///< why there is none
};

/// Functions that the library exports under the name `trireme_cuda`.
struct CudaExports {
  const char* version;  ///< of the program it was built with
  /// A new backend, or null and the reason.
  Backend* (*make_backend)(const BackendOptions& options, std::string* reason);
  GpuReport (*take_inventory)(int local_rank);
  const char* architectures;  ///< what its kernels are compiled for: "80-real,90a-real"
};

/// The CUDA backend's library, which is opened when it is wanted: the program starts where there is no driver and no
/// CUDA library. `folder` holds libtrireme_cuda.so; `driver` is the file name of the driver's library, without which
/// none of the large libraries is loaded. Null and the reason where there is none that can be used. What was opened
/// stays open.
const CudaExports* open_cuda_library(const std::filesystem::path& folder, const std::string& driver,
                                     std::string& reason);

/// The library beside this program's own. Null and the reason where there is none that can be used.
const CudaExports* open_cuda_library(std::string& reason);

}  // namespace trireme

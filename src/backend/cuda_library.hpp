#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace trireme {

/// Largest rates of a device by its own attributes; 0: not known.
struct Ceilings {
  double bytes_per_s = 0;       ///< bandwidth of its memory, reads and writes together
  double operations_per_s = 0;  ///< rate of dense products in bf16 or fp16, summed in fp32
};

/// GPUs and libraries of this machine, for `trireme info`.
struct GpuReport {
  std::string versions;              ///< versions of driver, runtime, cuBLASLt and NCCL
  std::vector<std::string> devices;  ///< one line each
  int device = -1;                   ///< device of this rank; -1: none
  std::string pci_address;           ///< PCI address of that device, "0000:17:00.0"
  Ceilings ceilings;                 ///< rates of that device
  std::string problem;               ///< reason why there is none
};

/// Functions that the library exports under the name `trireme_cuda`.
struct CudaExports {
  const char* version;  ///< version of the program it was built with
  /// A new backend, or null and the reason.
  Backend* (*make_backend)(const BackendOptions& options, std::string* reason);
  GpuReport (*take_inventory)(int local_rank);
  const char* architectures;  ///< architectures of its kernels: "80-real,90"
};

/// Opens the CUDA backend's library, only on demand: the program starts without a driver and CUDA libraries.
/// `folder` holds libtrireme_cuda.so; `driver` is the file name of the driver's library, without which none of the
/// large libraries is loaded. Returns null and the reason if the library cannot be used. Opened libraries stay open.
const CudaExports* open_cuda_library(const std::filesystem::path& folder, const std::string& driver,
                                     std::string& reason);

/// Opens the library next to this program's own. Returns null and the reason if it cannot be used.
const CudaExports* open_cuda_library(std::string& reason);

}  // namespace trireme

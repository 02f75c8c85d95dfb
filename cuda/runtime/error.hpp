#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

#include "src/base/error.hpp"

namespace trireme::cuda {

/// The CUDA runtime reported an error.
class CudaError : public detail::ErrorOf<ExitCode::environment> {
  using ErrorOf::ErrorOf;
};
/// cuBLASLt reported an error.
class CublasError : public detail::ErrorOf<ExitCode::environment> {
  using ErrorOf::ErrorOf;
};
/// NCCL could not start, or refused a call.
class NcclError : public detail::ErrorOf<ExitCode::environment> {
  using ErrorOf::ErrorOf;
};
/// A communication of NCCL failed, or its communicator was aborted: another rank has died, or the network to it failed.
class NcclPeerError : public detail::ErrorOf<ExitCode::rank_died> {
  using ErrorOf::ErrorOf;
};

/// Rank and GPU of an error; part of every message.
struct DeviceLocation {
  int world_rank = 0;
  std::string host;
  int device = 0;
  std::string device_name;
};

/// "rank 3 on node7, GPU 1 (NVIDIA H200)"
std::string to_string(const DeviceLocation& gpu);

/// "cudaMalloc failed: out of memory (cudaErrorMemoryAllocation); rank 3 on node7, GPU 1 (NVIDIA H200); file.cpp:41"
std::string error_text(const char* call, const std::string& reason, const DeviceLocation& gpu,
                       const std::source_location& location);

/// "out of memory (cudaErrorMemoryAllocation)"
std::string reason_of(cudaError_t status);

/// Returns whether an error comes from the machine, not from the program: of the GPU's memory, NVLink or start, or any
/// error of a GPU that has left its bus (Xid 79). Then each byte of its PCI configuration, the file `pci_configuration`
/// of Linux, is 0xff.
bool is_of_machine(cudaError_t status, const std::string& pci_configuration = {});
/// Throws MachineError with a remedy, of which the job's script is informed (report_faulty_nodes).
[[noreturn]] void throw_machine_error(const std::string& text, const std::string& host);

}  // namespace trireme::cuda

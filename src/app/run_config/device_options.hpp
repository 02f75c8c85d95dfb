#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mpi/run_main.hpp"
#include "src/app/options/options.hpp"
#include "src/backend/backend.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/parallel/tensor/fp8_scaling.hpp"

namespace trireme::app {

/// Options of the device and of communication between devices, for every command that runs a model. Options for GPUs
/// only are refused on the CPU.
struct DeviceOptions {
  BackendChoice backend = BackendChoice::automatic;
  std::optional<DeviceTransport> communicator;
  bool check_launches = false;
  bool allow_tf32 = false;
  bool deterministic = false;
  std::string gemm_cache;
  double timeout_minutes = 10;
  double startup_timeout_minutes = mpi::default_startup_timeout_minutes;

  void declare(Options& options);
  BackendOptions backend_options(int world_rank, int local_rank) const;
  /// Throws ConfigError that lists the options which `backend` does not use. `reason` says why this backend was
  /// chosen.
  void check(const Options& options, const Backend& backend, const std::string& reason) const;
};

void declare_startup_timeout(Options& options, double* minutes);
/// Declares the option of every command that tests kernels before it uses them.
void declare_no_selftest(Options& options, bool* no_selftest);
/// Returns the value of this option, `--startup-timeout-minutes`, which is needed before MPI starts and the command
/// reads its options.
double startup_timeout_minutes(const std::vector<std::string>& arguments);

/// Throws ConfigError if `backend` cannot train in `dtype` or with these products in FP8.
void check_training_type(const Backend& backend, DType dtype, const parallel::Fp8Options& fp8 = {});

}  // namespace trireme::app

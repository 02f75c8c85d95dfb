#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mpi/run_main.hpp"
#include "src/app/options/options.hpp"
#include "src/backend/backend.hpp"
#include "src/comm/device_communicators.hpp"

namespace trireme::app {

/// Options of the device and what lies between devices, for every command that runs a model. What only a GPU can do is
/// refused where the backend is the CPU.
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
  /// Options of the backend of one rank.
  BackendOptions backend_options(int world_rank, int local_rank) const;
  /// ConfigError, listing them, where there are options that this backend has no use for. `reason` is why it is this
  /// one.
  void check(const Options& options, const Backend& backend, const std::string& reason) const;
};

/// Returns `--startup-timeout-minutes`, which counts before MPI and the command's own options are there.
double startup_timeout_minutes(const std::vector<std::string>& arguments);

/// ConfigError where `backend` cannot train in `dtype`.
void check_training_type(const Backend& backend, DType dtype);

}  // namespace trireme::app

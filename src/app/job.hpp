#pragma once

#include <memory>
#include <string>

#include "mpi/environment.hpp"
#include "mpi/node.hpp"
#include "src/app/run_config/device_options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/backend/backend.hpp"
#include "src/data/dataset/token_store.hpp"
#include "src/parallel/grid/grid_communicators.hpp"

namespace trireme::app {

/// The ranks, grid and device of one command that runs a model. Members die in the order that collective destruction
/// needs.
struct Job {
  /// Collective. Throws ConfigError where the ranks do not make the grid or were not given the same `options` and
  /// program, or options that the backend has no use for; BackendUnavailable; EnvironmentError where only some ranks
  /// can use a GPU, or share one without being asked to.
  Job(const mpi::MpiEnvironment& environment, const Options& options, const GridOptions& grid_options,
      const DeviceOptions& device);

  std::unique_ptr<mpi::MpiCommunicator> world;
  mpi::NodeLocation node;
  parallel::ProcessGrid grid;
  std::unique_ptr<Backend> backend;
  std::string backend_reason;                  ///< why it is this backend
  int ranks_on_device = 1;                     ///< that share this rank's GPU or, on the CPU, its machine
  std::unique_ptr<Communicator> device_world;  ///< of all ranks, for the memory of GPUs; null on the CPU
  parallel::GridCommunicators communicators;

  bool speaks() const { return world->rank() == 0; }
  /// "4 ranks (tensor 2 x ...), 4 on this machine; backend cpu, ...", for the head of a log.
  std::string description() const;

 private:
  void make_backend(const DeviceOptions& device);
  DeviceTransport transport_ = DeviceTransport::nccl;
};

/// The program's version and the commit it was built from.
std::string version();

/// Throws ConfigError unless every rank has the same program and was given the same options. Collective.
void check_same_options(Communicator& world, const Options& options);

/// How much of a corpus is held against its digests before it is used: nothing, some blocks, or all of it. The ranks
/// share the work; some blocks are 32 of a million tokens in all, wherever the seed says.
enum class CorpusCheck { none, sample, full };

/// Opens a corpus, on every rank of `world` or on none.
std::shared_ptr<data::TokenStore> open_corpus(Communicator& world, const std::string& path,
                                              CorpusCheck check = CorpusCheck::none, std::uint64_t seed = 0);

/// "12.3 MiB"
std::string bytes_text(double bytes);

}  // namespace trireme::app

#pragma once

#include <concepts>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi/environment.hpp"
#include "mpi/node.hpp"
#include "src/app/run_config/data_options.hpp"
#include "src/app/run_config/device_options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/backend/backend.hpp"
#include "src/data/dataset/bert/bert_sample.hpp"
#include "src/data/dataset/token_store.hpp"
#include "src/parallel/grid/grid_communicators.hpp"

namespace trireme::app {

/// Ranks, grid and device of a command that runs a model. Members are destroyed collectively, in reverse order.
struct Job {
  /// Collective. Throws ConfigError if the ranks do not form the grid, differ in `options` or program, or have options
  /// that the backend does not use. Throws BackendUnavailable, or EnvironmentError if only some ranks can use a GPU or
  /// several share one unasked.
  Job(const mpi::MpiEnvironment& environment, const Options& options, const GridOptions& grid_options,
      const DeviceOptions& device);

  std::int64_t began = std::time(nullptr);  ///< start of this rank, or of a later seed's run, seconds since 1970
  std::unique_ptr<mpi::MpiCommunicator> world;
  mpi::NodeLocation node;
  std::unique_ptr<Communicator> node_ranks;  ///< ranks on this machine
  parallel::ProcessGrid grid;
  std::unique_ptr<Backend> backend;
  std::string backend_reason;                  ///< why this backend was chosen
  int ranks_on_device = 1;                     ///< ranks that share this rank's GPU or, on the CPU, its machine
  std::unique_ptr<Communicator> device_world;  ///< all ranks, for the memory of GPUs; null on the CPU
  parallel::GridCommunicators communicators;
  std::optional<DType> tested_kernels;  ///< type of the last test_kernels

  bool is_root() const { return world->rank() == 0; }
  /// Memory of this rank for a checkpoint's files at a start, before there are activations: all ranks of a machine
  /// share an eighth of its memory.
  std::int64_t bytes_for_files() const;
  /// Returns "4 ranks (tensor 2 x ...), 4 on this machine; backend cpu, ...", for the head of a log.
  std::string description() const;

 private:
  void make_backend(const DeviceOptions& device);
  void warn_of_single_cores() const;
  void warn_of_unused_gpus() const;
  DeviceTransport transport_ = DeviceTransport::nccl;
};

/// Returns the program's version and the commit it was built from.
std::string version();

/// Throws ConfigError unless every rank has the same program and was given the same options. Collective.
void check_same_options(Communicator& world, const Options& options);

/// Opens a corpus, on every rank of `world` or on none.
std::shared_ptr<data::TokenStore> open_corpus(Communicator& world, const std::string& path,
                                              CorpusCheck check = CorpusCheck::none, std::uint64_t seed = 0);

/// Returns the files that hold a corpus' tokens: its own, or those that a view refers to.
std::vector<std::string> token_files(const data::TokenStore& corpus);

/// Returns the properties of a corpus' vocabulary that BERT's samples depend on. Throws DataError if its tokenizer is
/// not WordPiece, or lacks one of BERT's special tokens.
data::BertVocabulary bert_vocabulary(const data::TokenStore& corpus);

/// Returns "12.3 MiB".
std::string bytes_text(double bytes);
std::string bytes_text(std::integral auto bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace trireme::app

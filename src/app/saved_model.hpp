#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/app/job.hpp"
#include "src/checkpoint/load.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::app {

/// A checkpoint opened for reading, with its store.
struct OpenCheckpoint {
  std::unique_ptr<checkpoint::Store> store;
  std::unique_ptr<checkpoint::StepReader> reader;
  checkpoint::RunDescription description;
};

struct OpenOptions {
  std::optional<std::int64_t> step;  ///< iteration; the newest, unless given
  bool optional = false;             ///< a folder without checkpoints gives an empty result, no error
  bool warns = false;                ///< and then a warning
};

/// Opens a step of a folder, or one step's folder. CheckpointError where it is not there. Collective.
OpenCheckpoint open_checkpoint(Communicator& world, const std::string& path, const OpenOptions& options = {});

/// Options of a command that uses a trained model.
struct SavedModelOptions {
  GridOptions grid;
  DeviceOptions device;
  std::string load;
  std::optional<std::int64_t> step;
  std::optional<DType> dtype;
  void declare(Options& options);
};

/// A trained model, ready to run on a job's grid.
struct SavedModel {
  checkpoint::RunDescription description;
  std::unique_ptr<train::ParallelModel> model;
};

/// Loads the weights of `options.load` on any grid. The sequence length is that of the training, and so is the type,
/// unless `--dtype` says another; `settle` may change them. CheckpointError where the model does not predict the next
/// token. Collective.
std::unique_ptr<SavedModel> load_model(
    Job& job, const SavedModelOptions& options,
    const std::function<void(const model::ModelConfig&, train::ExecutionConfig&)>& settle);

/// Returns the tokenizer that a checkpoint carries.
std::unique_ptr<data::Tokenizer> tokenizer_of(const checkpoint::RunDescription& description);

}  // namespace trireme::app

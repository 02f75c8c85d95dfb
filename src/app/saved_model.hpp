#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/app/job.hpp"
#include "src/checkpoint/load.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/train/parallel_gpt.hpp"

namespace trireme::app {

/// A checkpoint opened for reading, with its store.
struct OpenCheckpoint {
  std::unique_ptr<checkpoint::Store> store;
  std::unique_ptr<checkpoint::StepReader> reader;
  checkpoint::RunDescription description;
};

/// Opens what `--load PATH` means: the newest step of a folder, or one step's folder. Collective. With `optional`, a
/// folder without any checkpoint gives an empty result; otherwise CheckpointError.
OpenCheckpoint open_checkpoint(Communicator& world, const std::string& path, bool optional = false);

/// Options of the commands that use a trained model.
struct SavedModelOptions {
  GridOptions grid;
  DeviceOptions device;
  std::string load;
  std::optional<DType> dtype;
  void declare(Options& options);
};

/// A trained model, ready to run on a job's grid.
struct SavedModel {
  checkpoint::RunDescription description;
  std::unique_ptr<train::ParallelGpt> gpt;
};

/// Loads the weights of `options.load` on any grid. `settle` completes the layout, whose type, unless `--dtype` says
/// another, and sequence length are those trained with. Collective.
std::unique_ptr<SavedModel> load_model(
    Job& job, const SavedModelOptions& options,
    const std::function<void(const model::GptConfig&, train::ExecutionConfig&)>& settle);

/// The tokenizer that a checkpoint carries.
std::unique_ptr<data::Tokenizer> tokenizer_of(const checkpoint::RunDescription& description);

}  // namespace trireme::app

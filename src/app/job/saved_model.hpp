#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/app/job/job.hpp"
#include "src/app/options/named_tokenizer.hpp"
#include "src/app/run_config/checkpoint_options.hpp"
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

/// Opens a step of a folder, or one step's folder. Throws CheckpointError if it does not exist. Collective.
OpenCheckpoint open_checkpoint(Communicator& world, const std::string& path, const OpenOptions& options = {});

/// Checks the options that name a tokenizer against that of `holder`; see NamedTokenizer::compare. Rank 0 reads the
/// files and logs what could not be checked. Collective.
void check_tokenizer(Communicator& world, const NamedTokenizer& named, const std::string& holder,
                     const std::string& name, const std::string& payload);

/// Options of a command that uses a trained model.
struct SavedModelOptions {
  GridOptions grid;
  DeviceOptions device;
  std::string load;
  std::optional<std::int64_t> step;
  std::optional<DType> dtype;
  bool bf16 = false, fp16 = false;  ///< the same as a dtype
  NamedTokenizer tokenizer;
  bool no_selftest = false;
  bool without_bos = false;  ///< texts lack what the tokenizer puts before them
  void declare(Options& options);
  /// Settles the type. Throws ConfigError if several are given.
  void settle();
};

/// A trained model, ready to run on a job's grid.
struct SavedModel {
  checkpoint::RunDescription description;
  std::unique_ptr<train::ParallelModel> model;
};

/// Changes how a model runs, by its configuration.
using ModelSettler = std::function<void(const model::ModelConfig&, train::ExecutionConfig&)>;
/// Throws CheckpointError for a model that a command cannot use.
using ModelCheck = std::function<void(const checkpoint::RunDescription&, const model::ModelConfig&)>;

/// Loads the weights of `options.load` on any grid. The sequence length and, without `--dtype`, the type are those of
/// training; `settle` may change them. Throws CheckpointError by `check`; without one, if the model does not predict
/// the next token. Tests the kernels of a GPU first. Collective.
std::unique_ptr<SavedModel> load_model(Job& job, const SavedModelOptions& options, const ModelSettler& settle,
                                       const ModelCheck& check = {});

/// Throws NumericalError, which names the model of `load`, unless its losses are finite.
void check_finite(bool is_finite, const std::string& load, const SavedModel& saved);

/// Returns the definition of the tokenizer stored in a checkpoint.
const std::string& tokenizer_payload(const checkpoint::RunDescription& description);

std::unique_ptr<data::Tokenizer> tokenizer_of(const checkpoint::RunDescription& description);

/// Likewise for a command that reads prompts: with `--no-bos` its `encode_prompt` puts nothing before a text. Logs a
/// line about what it puts there, if the model's tokenizer has anything to put.
std::unique_ptr<data::Tokenizer> prompt_tokenizer_of(const checkpoint::RunDescription& description,
                                                     const SavedModelOptions& options);

}  // namespace trireme::app

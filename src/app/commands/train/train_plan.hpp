#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_store.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/local_checkpoints.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/app/run_config/run_config.hpp"

namespace trireme::app {

/// Corpora of a split, or of a validation set, that are not a share of the training corpora.
struct OtherCorpora {
  data::Split split = data::Split::valid;
  std::string set;  ///< name of a validation set; empty: the split itself
  std::vector<data::WeightedStore> stores;
};

/// Data, model and starting point of a run, checked against a checkpoint before anything is built.
struct TrainPlan {
  std::vector<data::WeightedStore> stores;  ///< corpora of training and, by --split, of the other splits
  std::vector<OtherCorpora> other_stores;
  bool weighted_by_tokens = false;  ///< training corpora have epochs instead of weights
  bool own_splits = false;          ///< validation and test, if any, are in `other_stores`
  bool has_conversations = false;   ///< one of the corpora has learned ranges
  bool split_sets = false;          ///< validation sets are the validation split of their corpora
  model::ModelConfig model;
  SampleOptions samples;
  std::unique_ptr<io::CheckpointStore> store;  ///< folder of --save, or null
  std::unique_ptr<LocalCheckpoints> local;     ///< null without local checkpoints; before what it opens
  OpenCheckpoint start;                        ///< empty for a run from initial weights
  double load_ms = 0;                          ///< time to open, check and read it
  /// Weights to start from, except for missing heads; null: initial weights.
  std::shared_ptr<const OpenCheckpoint> pretrained;
  train::Progress done;
  train::TrainOptions options;               ///< those of the configuration, or of the checkpoint
  std::int64_t iterations = 0;               ///< total, earlier attempts included
  Attributes attributes;                     ///< saved with every checkpoint
  std::map<std::string, std::string> blobs;  ///< likewise: the tokenizer's definition, and scores of a task
};

/// Opens the folder of --save, if any, and locks it if it exists: a job that is ending then saves its last step before
/// this one looks for the newest. A dry run locks nothing. Collective.
std::unique_ptr<io::CheckpointStore> open_store(Communicator& world, const RunConfig& config);

/// Makes the plan's local checkpoints, if the run has any, and opens its start if it `resumes`: the newest step, or
/// none yet. Collective.
void open_start(const Job& job, const RunConfig& config, bool resumes, TrainPlan& plan);

/// Checks the options of `plan` against its starting point, the checkpoint `stored`, and logs the changes.
void settle_start(const Attributes& stored, const CheckpointOptions& options, TrainPlan& plan);

/// Plans the run of `config`. Collective.
TrainPlan make_plan(const Job& job, const RunConfig& config);

/// Samples that the training of `plan` reads, those of earlier attempts included: their batches may have been others.
std::int64_t training_samples(const RunConfig& config, const TrainPlan& plan, int data_ranks);

/// Makes the samples of `plan`. Rank 0 computes their order or reads it from the folder `cache_path`, where the other
/// ranks then find it. Collective.
data::SampleSplits make_data(Communicator& world, const TrainPlan& plan, const std::string& cache_path);

/// Logs what the run will read of each corpus of a blend: samples and, of running text, tokens and epochs, in each
/// stage. Lists all corpora for a dry run and with --log-options, else the first 7 of a blend from a file.
void log_blend(const Job& job, const RunConfig& config, const TrainPlan& plan, const data::SampleSplits& data);

/// Logs the configuration of the run in at most 25 lines: the given options, grid, model, corpora, batches, schedule
/// and memory. With --log-options it lists all options and corpora; a dry run adds the ranks of the grid and the memory
/// of every stage. Throws EnvironmentError if the memory does not suffice. Collective.
void log_configuration(const Options& options, const Job& job, const RunConfig& config, const TrainPlan& plan);

}  // namespace trireme::app

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/app/run_config/data_options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/base/attributes.hpp"
#include "src/model/fields.hpp"
#include "src/train/progress.hpp"
#include "src/train/train_options.hpp"

namespace trireme::app {

/// Returns the attributes of a run's checkpoints, except for its sample budgets and its state. Each type has its codec
/// next to it.
Attributes run_attributes(const model::ModelConfig& config, const std::vector<data::WeightedStore>& stores,
                          const SampleOptions& samples, const train::TrainOptions& options, DType dtype);

/// Records the type that a run trains in.
void put_dtype(Attributes& attributes, DType dtype);

/// Returns the type that a checkpoint's run trained in. Throws CheckpointError if it is missing or not a training type.
DType trained_dtype(const Attributes& attributes);

/// Throws CheckpointError with file, attribute and value if an attribute of a checkpoint of step `step` is invalid: the
/// model's shape, the run's state, budgets, optimizer and type. Ignores absent attributes.
void check_attributes(const Attributes& attributes, std::int64_t step);

/// Throws CheckpointError with a table of differences if the model of a checkpoint differs from that of `run`.
void require_same_model(const Attributes& stored, const Attributes& run);

/// Throws CheckpointError with a table of differences if a run with the attributes `run` cannot resume from a
/// checkpoint: another model or, unless `allow_new_data`, another order of samples. Resuming with the optimizer's state
/// requires a checkpoint of the same optimizer.
void require_same_run(const Attributes& stored, const Attributes& run, bool allow_new_data,
                      train::OptimizerState optimizer = train::OptimizerState::kept);

/// Source of the settings of learning rate and weight decay of a run that continues from a checkpoint.
enum class ScheduleSource { must_agree, command_line, checkpoint };

/// Settles these settings as Megatron-LM does, if the checkpoint's run has made updates. `must_agree` throws
/// CheckpointError with a table of those that differ. `checkpoint` takes those of the checkpoint, in `options` and the
/// attributes `run`. Returns a line for each setting taken: "--lr 0.1 is the checkpoint's, instead of 0.2".
std::vector<std::string> settle_schedule(const Attributes& stored, ScheduleSource source, train::TrainOptions& options,
                                         Attributes& run);

/// Returns a line for each option of training, and for the type, that differs between a checkpoint and `run`: "--lr was
/// 0.1 in the checkpoint, now 0.2". Compares only the type of checkpoints from before the options were stored.
std::vector<std::string> changed_options(const Attributes& stored, const Attributes& run);

}  // namespace trireme::app

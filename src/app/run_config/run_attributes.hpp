#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/data/dataset/gpt_data.hpp"
#include "src/model/gpt_config.hpp"
#include "src/train/train_options.hpp"

namespace trireme::app {

using Attributes = std::map<std::string, std::string>;

/// A model's shape as attributes of a checkpoint ("model.layers" ...), and back. CheckpointError where one is missing
/// or makes no sense.
Attributes attributes_of(const model::GptConfig& config);
model::GptConfig config_from(const Attributes& attributes);

/// Attributes that determine the order of the samples, beside their budgets ("data.seed", "data.corpora" ...).
Attributes attributes_of(const std::vector<data::WeightedStore>& stores, const data::GptDataOptions& options);

/// Tokens of a sample in training. CheckpointError where it is missing or no length.
std::int64_t trained_sequence_length(const Attributes& attributes);
/// Attributes that updates depend on, beside data and grid: "optimizer", and options by their names ("training.lr"
/// ...).
Attributes attributes_of(const train::TrainOptions& options);
/// Throws CheckpointError where a checkpoint holds another optimizer's state than that of `now`. Those from before the
/// optimizer was stored hold adam's.
void require_same_optimizer(const Attributes& stored, const Attributes& now);
/// One line for each of these options and the type that `now` has otherwise than a checkpoint: "--lr was 0.1 in the
/// checkpoint, now 0.2". Checkpoints from before they were stored are compared by type alone.
std::vector<std::string> changed_options(const Attributes& stored, const Attributes& now);

/// The sample budgets a run was given, oldest first, as the attribute "data_budgets"; and back.
std::string budgets_text(const std::vector<data::SampleBudget>& budgets);
std::vector<data::SampleBudget> budgets_from(const Attributes& attributes);

/// Throws CheckpointError with a table of the attributes of `expected` that `stored` has otherwise, if there are any;
/// `what` says what differs and `remedy` what to do.
void require_equal(const Attributes& stored, const Attributes& expected, const std::string& what,
                   const std::string& remedy);

/// Throws CheckpointError, with `file`, attribute and value, where those of a checkpoint of step `step` make no sense:
/// the model's shape, the run's state, the budgets. What is not there at all is not missed.
void check_attributes(const Attributes& attributes, std::int64_t step, const std::string& file);

/// The attribute `name`; CheckpointError where it is missing.
const std::string& attribute(const Attributes& attributes, const std::string& name);

}  // namespace trireme::app

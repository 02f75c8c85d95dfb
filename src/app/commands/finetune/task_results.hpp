#pragma once

#include <string>

#include "src/app/commands/finetune/task_options.hpp"
#include "src/train/finetune/task_scoring.hpp"

namespace trireme::app {

/// Returns a text as JSON.
std::string quoted(const std::string& text);

/// Returns the figures as members of a JSON object, without braces.
std::string json_of(const train::TaskResult& result);

/// Writes the prediction files named by the options, with `suffix` after their names. Throws IoError.
void write_predictions(const TaskOptions& options, const train::TaskSplit& split, const train::TaskResult& result,
                       const std::string& suffix = "");

}  // namespace trireme::app

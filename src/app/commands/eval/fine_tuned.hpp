#pragma once

#include "src/app/commands/eval/eval_options.hpp"
#include "src/app/job/saved_model.hpp"

namespace trireme::app {

/// Measures a fine-tuned model on each of the files of --data-path, which keep their own
/// figures, and prints a line of JSON for each. With further models of --ensemble, the figures are those of their
/// averaged probabilities. Writes the predictions. Collective. Throws CheckpointError for a model of another task, and
/// NumericalError for outputs that are not finite.
void evaluate_fine_tuned(const EvalOptions& o, Job& job, const ModelSettler& settle);

}  // namespace trireme::app

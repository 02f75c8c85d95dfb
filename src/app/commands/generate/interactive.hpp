#pragma once

#include "src/app/commands/generate/generate_options.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/saved_model.hpp"

namespace trireme::app {

/// Continues what a user types at rank 0 until the end of standard input: prompts, each alone, or the messages of a
/// conversation. SIGINT ends a continuation. Collective.
void run_interactive(Job& job, SavedModel& saved, const GenerateOptions& options);

}  // namespace trireme::app

#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace trireme::log {

// The log goes to stderr: stdout is for the results of a command (a perplexity, a generated text). Ranks other than the
// first log only warnings and errors, prefixed by the rank.
using spdlog::error;
using spdlog::info;
using spdlog::warn;

/// Sets a filter for every message; null: none. Call it before the first line.
void set_message_filter(std::string (*filter)(std::string_view));

/// Returns whether stderr shows lines that renew themselves: it is a terminal, or TRIREME_PROGRESS is "always", as for
/// mpirun, whose ranks write to a terminal through a pipe. "never" turns them off; "auto" is the default. Throws
/// ConfigError for other values.
bool renews_lines();

/// Sets up the process' log. `rank` 0 logs everything, others only warnings. Call it before the first line; a later
/// call replaces an earlier one.
void initialise(int rank, int world_size);

}  // namespace trireme::log

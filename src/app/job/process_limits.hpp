#pragma once

#include <cstdint>
#include <string>

namespace trireme::app {

/// Checks the limits of this process (ulimit -n, -s and, for MPI, -v and -f) against the needs of a command.
/// Where they are too low, prints so on stderr, once per machine. Call it before MPI starts, which fails without a
/// clear message.
bool limits_suffice(const std::string& command, bool with_mpi);

/// Throws EnvironmentError if a file of `bytes` is larger than `ulimit -f` allows. `what` needs it: "a checkpoint's
/// shard".
void check_file_limit(std::int64_t bytes, const std::string& what);

}  // namespace trireme::app

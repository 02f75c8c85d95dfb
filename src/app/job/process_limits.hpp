#pragma once

#include <cstdint>
#include <string>

namespace trireme::app {

/// Returns whether the limits of this process (ulimit -n, -s and, for MPI, -v and -f) suffice for a command. If not,
/// prints the reason on stderr, once per machine. Call it before MPI starts, which fails without a clear message.
bool limits_suffice(const std::string& command, bool with_mpi);

/// Throws EnvironmentError if `ulimit -f` is below `bytes`. `what` names the file: "a checkpoint's shard".
void check_file_limit(std::int64_t bytes, const std::string& what);

}  // namespace trireme::app

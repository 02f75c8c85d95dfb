#pragma once

#include <cstdint>
#include <string>

namespace trireme::app {

/// Whether the limits of this process (ulimit -n, -s and, for MPI's shared memory, -f) leave a command what each needs.
/// Where not, says so on stderr, once a machine. To be called before MPI starts, which ends in its own ways.
bool limits_suffice(const std::string& command, bool with_mpi);

/// EnvironmentError where a file of `bytes` is larger than `ulimit -f` allows. `what` needs it: "a checkpoint's shard".
void check_file_limit(std::int64_t bytes, const std::string& what);

}  // namespace trireme::app

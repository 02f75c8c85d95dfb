#include "src/app/job/process_limits.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "io/posix/system_call.hpp"
#include "src/app/job/job.hpp"
#include "src/base/check.hpp"
#include "src/base/machine.hpp"

namespace trireme::app {
namespace {

using io::limit_of;

// Measured with Open MPI 4.1: a rank needs 28 files, 256 KiB of stack and 4 MiB of a file in shared memory.
constexpr rlim_t files_of_a_process = 64;
constexpr rlim_t stack_bytes = rlim_t{1} << 20;  // every thread's too
constexpr rlim_t shared_memory_bytes = rlim_t{8} << 20;
// Measured: at 300 MiB MPI fails without a clear message.
constexpr rlim_t address_bytes = rlim_t{512} << 20;

/// Returns the first limit that is too low, with the remedy; empty if there is none.
std::string problem(bool with_mpi) {
  const auto cores = static_cast<rlim_t>(sysconf(_SC_NPROCESSORS_ONLN));
  const rlim_t files = files_of_a_process + cores;  // each thread may read a file
  if (limit_of(RLIMIT_NOFILE) < files) {
    return fmt::format("ulimit -n lets a process open {} files, at least {} are needed: ulimit -n {}",
                       limit_of(RLIMIT_NOFILE), files, files);
  }
  if (limit_of(RLIMIT_STACK) < stack_bytes) {
    return fmt::format("ulimit -s gives each thread a stack of {}, at least {} are needed: ulimit -s {}",
                       bytes_text(limit_of(RLIMIT_STACK)), bytes_text(stack_bytes), stack_bytes / 1024);
  }
  if (with_mpi && limit_of(RLIMIT_AS) < address_bytes) {
    return fmt::format("ulimit -v leaves a process {} of addresses, at least {} are needed: ulimit -v {}",
                       bytes_text(limit_of(RLIMIT_AS)), bytes_text(address_bytes), address_bytes / 1024);
  }
  if (with_mpi && limit_of(RLIMIT_FSIZE) < shared_memory_bytes) {
    return fmt::format("ulimit -f lets files grow to {}, MPI's shared memory needs at least {}: ulimit -f {}",
                       bytes_text(limit_of(RLIMIT_FSIZE)), bytes_text(shared_memory_bytes), shared_memory_bytes / 512);
  }
  return "";
}

/// Returns whether this is the first rank that a launcher started on this machine.
bool is_first_here() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return std::atoi(rank) == 0;
  }
  return true;
}

}  // namespace

bool limits_suffice(const std::string& command, bool with_mpi) {
  const std::string found = problem(with_mpi);
  if (found.empty()) return true;
  if (!is_first_here()) {
    sleep(1);  // on the end of this rank a launcher may kill the first one before it prints
    return false;
  }
  fmt::print(stderr, "trireme {}: {} or more, in the shell or the batch file that starts the program on {}\n", command,
             found, node_name());
  return false;
}

void check_file_limit(std::int64_t bytes, const std::string& what) {
  const rlim_t limit = limit_of(RLIMIT_FSIZE);
  TRIREME_CHECK(static_cast<rlim_t>(bytes) <= limit, EnvironmentError,
                "ulimit -f lets files grow to {}, {} needs {}: raise the limit in the shell or the batch file that "
                "starts the program, or distribute the model over more ranks",
                bytes_text(limit), what, bytes_text(bytes));
}

}  // namespace trireme::app

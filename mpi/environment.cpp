#include "mpi/environment.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "mpi/error.hpp"
#include "src/base/check.hpp"
#include "src/base/signals.hpp"

#if defined(__SANITIZE_ADDRESS__)
// MPI unloads plug-ins that never free their memory. After that LeakSanitizer could not distinguish their leaks from
// those of this program.
extern "C" int dlclose(void*) { return 0; }
#endif

namespace trireme::mpi {
namespace {

int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

/// Makes ranks that wait inside MPI (start, split, end) yield if this machine has more ranks than cores. mpirun does so
/// only if told the number of cores.
void yield_when_crowded() {
  if (number_in_environment("OMPI_COMM_WORLD_LOCAL_SIZE") > sysconf(_SC_NPROCESSORS_ONLN)) {
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  }
}

/// In an interactive shell of SLURM (srun --pty) Open MPI takes the program for a task of srun, and aborts without
/// PMIx: there it starts alone.
void leave_interactive_step() {
  for (const char* name : {"PMIX_NAMESPACE", "PMI_RANK", "PMI_FD", "OMPI_COMM_WORLD_SIZE"}) {
    if (std::getenv(name) != nullptr) return;
  }
  unsetenv("SLURM_STEP_ID");
}

/// Checks that the launcher works with this MPI: otherwise every task is alone in its own world.
void check_launcher(int world_size) {
  if (world_size > 1) return;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "PMI_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE"}) {
    const int tasks = number_in_environment(name);
    if (tasks <= 1) continue;
    const std::string full = library_version();
    throw EnvironmentError(
        "the program was started as {} tasks ({}={}), but MPI sees a world of one rank: the launcher does not support "
        "the MPI library of this program ({}). Start it with that library's own mpirun, or under SLURM with "
        "srun --mpi=pmix",
        tasks, name, tasks, full.substr(0, full.find(',')));
  }
}

}  // namespace

MpiEnvironment::MpiEnvironment(int& argc, char**& argv) {
  yield_when_crowded();
  leave_interactive_step();
  // Alone without a launcher, Open MPI 4 would start a daemon for ranks to be spawned: half of a start's time.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  // CUDA reads this on initialisation, which MPI may trigger. By default streams share eight queues to the GPU, and
  // with Megatron-LM's scripts one. A message that waits for another rank stalls later work of other streams in its
  // queue, even the message for which that rank waits. 32 is the maximum.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  int provided = 0;
  const int code = MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  TRIREME_CHECK(code == MPI_SUCCESS, EnvironmentError,
                "MPI did not start (code {}); start the program with mpirun or srun, or alone for one rank", code);
  // Set before any call can fail: the default handler ends the job before a return code can be checked.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  try {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    TRIREME_CHECK(provided >= MPI_THREAD_MULTIPLE, EnvironmentError,
                  "this MPI library cannot be called from several threads (it offers level {}, MPI_THREAD_MULTIPLE is "
                  "{}); use one built with thread support",
                  provided, static_cast<int>(MPI_THREAD_MULTIPLE));
    check_launcher(size_);
    move_handlers_to_alternate_stacks();  // those of MPI
    engine_ = std::make_shared<ProgressEngine>();
  } catch (...) {
    MPI_Finalize();
    throw;
  }
}

MpiEnvironment::~MpiEnvironment() {
  const bool abandoned = engine_->abandoned();
  engine_.reset();
  if (!abandoned) MPI_Finalize();
}

std::unique_ptr<MpiCommunicator> MpiEnvironment::make_world() const {
  return std::make_unique<MpiCommunicator>(engine_, MPI_COMM_WORLD, "world");
}

void MpiEnvironment::abort(ExitCode exit_code) const {
  engine_->abandon();
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(exit_code));
  std::_Exit(static_cast<int>(exit_code));
}

int launched_rank() {
  int rank = 0;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    rank = std::max(rank, number_in_environment(name));
  }
  return rank;
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  return {text, static_cast<std::size_t>(length)};
}

}  // namespace trireme::mpi

#pragma once

#include <memory>
#include <string>

#include "mpi/mpi_communicator.hpp"
#include "mpi/progress.hpp"
#include "src/base/error.hpp"

namespace trireme::mpi {

/// MPI for the lifetime of the program: the first object of `main`. Without mpirun, the world has one rank. Throws
/// EnvironmentError if MPI cannot start, or if the program was started as several tasks that are not ranks of one
/// world.
///
/// The destructor finalises MPI, which waits for all ranks, unless communication was abandoned
/// (ProgressEngine::abandon); then only `abort` is left.
class MpiEnvironment {
 public:
  MpiEnvironment(int& argc, char**& argv);
  ~MpiEnvironment();
  MpiEnvironment& operator=(MpiEnvironment&&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Makes a communicator of all ranks. Collective; destroy it before the environment.
  std::unique_ptr<MpiCommunicator> make_world() const;

  /// Terminates all ranks of the job immediately with this exit code.
  [[noreturn]] void abort(ExitCode exit_code) const;

  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }

 private:
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<ProgressEngine> engine_;
};

/// Number of this task in the job, from the launcher's environment variables, before MPI starts; 0 without a launcher.
int launched_rank();

/// "Open MPI v4.1.4, ..."
std::string library_version();

}  // namespace trireme::mpi

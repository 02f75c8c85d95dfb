#pragma once

#include <string>
#include <vector>

#include "src/base/error.hpp"

namespace trireme::mpi {

/// An MPI call failed. The message contains the call, MPI's own text, and the failing rank and host.
class MpiError : public Error {
 public:
  explicit MpiError(const std::string& message) : Error(ExitCode::environment, message) {}
};

/// Throws MpiError unless `code` is MPI_SUCCESS. `call` is the name of the MPI function, with its purpose.
void check(int code, const char* call);

/// "rank 3 on host n17"
std::string this_rank_and_host();

/// "rank 3", "ranks 0, 1, 4"; long lists are abbreviated to the first few and a count.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace trireme::mpi

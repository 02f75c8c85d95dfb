#pragma once

#include "mpi/mpi_communicator.hpp"

namespace trireme::mpi {

/// This rank among those on the same machine.
struct NodeLocation {
  int local_rank = 0;
  int local_size = 1;
  int first_rank = 0;  ///< world rank of the first of them: identifies the machine
  /// Ranks of this machine, this one included, that may run on a core this one may run on. mpirun binds few ranks to
  /// separate cores and many to none; this number determines the threads per rank (default_thread_count).
  int ranks_sharing_cores = 1;
};

/// Collective over `world`.
NodeLocation find_node_location(const MpiCommunicator& world);

}  // namespace trireme::mpi

#include "mpi/node.hpp"

#include <sched.h>

#include <algorithm>
#include <vector>

#include "mpi/error.hpp"

namespace trireme::mpi {

NodeLocation find_node_location(const MpiCommunicator& world) {
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(world.handle(), MPI_COMM_TYPE_SHARED, world.rank(), MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  NodeLocation location;
  check(MPI_Comm_rank(node, &location.local_rank), "MPI_Comm_rank");
  check(MPI_Comm_size(node, &location.local_size), "MPI_Comm_size");
  location.first_rank = world.rank();
  check(MPI_Bcast(&location.first_rank, 1, MPI_INT, 0, node), "MPI_Bcast");

  // If a mask is too wide for the type (more than 1024 cores) the call fails and all ranks count as sharing.
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) {
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &mine);
  }
  std::vector<cpu_set_t> masks(static_cast<std::size_t>(location.local_size));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, masks.data(), sizeof mine, MPI_BYTE, node), "MPI_Allgather");
  location.ranks_sharing_cores = static_cast<int>(std::ranges::count_if(masks, [&](const cpu_set_t& other) {
    cpu_set_t both;
    CPU_AND(&both, &mine, &other);
    return CPU_COUNT(&both) > 0;
  }));
  check(MPI_Comm_free(&node), "MPI_Comm_free");
  return location;
}

}  // namespace trireme::mpi

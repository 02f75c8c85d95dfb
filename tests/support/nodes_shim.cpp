// Library for LD_PRELOAD. Presents the ranks of one machine as several nodes: those with the same number in the
// environment variable TRIREME_NODE share one. It replaces the call of MPI that finds the ranks of a node.
#include <mpi.h>

#include <cstdlib>

extern "C" int MPI_Comm_split_type(MPI_Comm communicator, int type, int key, MPI_Info info, MPI_Comm* node) {
  const char* number = std::getenv("TRIREME_NODE");
  if (number == nullptr) return PMPI_Comm_split_type(communicator, type, key, info, node);
  return PMPI_Comm_split(communicator, std::atoi(number), key, node);
}

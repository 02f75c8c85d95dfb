#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace trireme::mpi {

/// Returns the node of every rank. Collective over `comm`.
std::vector<std::string> all_hosts(MPI_Comm comm);

/// Reports a hang, on a rank whose wait for others timed out and that is about to end the job. Such ranks exchange
/// descriptions of their waits (`mine`: "waiting for ..."). One of them logs the report, with the ranks that do not
/// answer: these are stopped or stuck. If most ranks answer, the nodes of the others are reported
/// (report_faulty_nodes). Takes up to `patience_s`, for ranks that began to wait later, and a few seconds more if
/// another rank has to log it, or if most are silent. Nothing else may use `comm`, whose ranks are the world's.
void report_hang(MPI_Comm comm, const std::vector<std::string>& hosts, const std::string& mine, double patience_s);

}  // namespace trireme::mpi

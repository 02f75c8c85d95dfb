#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace trireme::mpi {

/// The host of every rank. Collective over `comm`.
std::vector<std::string> all_hosts(MPI_Comm comm);

/// For a rank that has waited for others in vain and is about to end the job. Those in this place tell each other what
/// they wait for (`mine`: "waiting for ..."), and the lowest of them logs it once, with the ranks
/// that say nothing: these are the ones that are stopped or stuck. Takes up to `patience_s`, for those that began to
/// wait later, and a few seconds more where another rank has to log it. Nothing else may use `comm`, whose ranks are
/// the world's.
void report_hang(MPI_Comm comm, const std::vector<std::string>& hosts, const std::string& mine, double patience_s);

}  // namespace trireme::mpi

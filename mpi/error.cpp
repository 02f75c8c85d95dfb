#include "mpi/error.hpp"

#include <mpi.h>

#include <array>

#include "src/base/machine.hpp"

namespace trireme::mpi {

std::string this_rank_and_host() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return fmt::format("rank {} on host {}", rank, node_name());
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t max_listed = 8;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size() && i < max_listed; ++i)
    text += fmt::format("{} {}", i == 0 ? "" : ",", ranks[i]);
  return ranks.size() > max_listed ? text + fmt::format(" and {} more", ranks.size() - max_listed) : text;
}

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw MpiError(fmt::format("{} failed on {}: {}", call, this_rank_and_host(), text.data()));
}

}  // namespace trireme::mpi

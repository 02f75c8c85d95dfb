#include "cuda/backend/architectures.hpp"

#include <fmt/format.h>

#include <sstream>

namespace trireme::cuda {
namespace {

bool runs_on(const std::string& entry, int capability) {
  std::size_t digits = 0;
  int built = 0;
  for (; digits < entry.size() && entry[digits] >= '0' && entry[digits] <= '9'; ++digits) {
    built = 10 * built + entry[digits] - '0';
  }
  if (digits == 0) return true;  // "native" or "all": the CUDA runtime decides
  const std::string rest = entry.substr(digits);
  const bool this_one_alone = rest.starts_with('a');
  const bool has_ptx = !rest.ends_with("-real");
  const bool has_binary = !rest.ends_with("-virtual");
  if (this_one_alone) return built == capability;
  if (has_ptx && capability >= built) return true;
  return has_binary && built / 10 == capability / 10 && built <= capability;
}

}  // namespace

std::string architecture_problem(const std::string& built_for, int capability) {
  std::istringstream list(built_for);
  std::string entries;
  for (std::string entry; std::getline(list, entry, ',');) {
    if (runs_on(entry, capability)) return "";
    entries += (entries.empty() ? "" : ", ") + entry;
  }
  return fmt::format(
      "this build has kernels for the architectures {}, and the GPU has compute capability {}.{}: build with "
      "-D TRIREME_CUDA_ARCHITECTURES={}-real",
      entries, capability / 10, capability % 10, capability);
}

}  // namespace trireme::cuda

#include "cuda/backend/architectures.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/split.hpp"

namespace trireme::cuda {
namespace {

bool runs_on(std::string_view entry, int capability) {
  std::size_t digits = 0;
  int built = 0;
  for (; digits < entry.size() && entry[digits] >= '0' && entry[digits] <= '9'; ++digits) {
    built = 10 * built + entry[digits] - '0';
  }
  if (digits == 0) return true;  // "native" or "all": the CUDA runtime decides
  const std::string_view rest = entry.substr(digits);
  const bool this_one_alone = rest.starts_with('a');
  const bool has_ptx = !rest.ends_with("-real");
  const bool has_binary = !rest.ends_with("-virtual");
  if (this_one_alone) return built == capability;
  if (has_ptx && capability >= built) return true;
  return has_binary && built / 10 == capability / 10 && built <= capability;
}

}  // namespace

std::string architecture_problem(const std::string& built_for, int capability) {
  const std::vector<std::string_view> entries = split(built_for, ',');
  if (std::ranges::any_of(entries, [&](std::string_view entry) { return runs_on(entry, capability); })) return "";
  return fmt::format(
      "this build has kernels for the architectures {}, and the GPU has compute capability {}.{}: build with "
      "-D TRIREME_CUDA_ARCHITECTURES={}-real",
      fmt::join(entries, ", "), capability / 10, capability % 10, capability);
}

}  // namespace trireme::cuda

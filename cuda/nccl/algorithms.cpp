#include "cuda/nccl/algorithms.hpp"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/base/check.hpp"

namespace trireme::cuda {
namespace {

constexpr std::array unordered = {"NVLS", "NVLSTree", "CollNetDirect", "CollNetChain"};

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

bool allows_unordered_sums(std::string_view nccl_algo) {
  if (nccl_algo.find(':') != std::string_view::npos) return true;
  const bool excludes = nccl_algo.starts_with('^');
  const std::vector<std::string> names = parts_of(nccl_algo.substr(excludes ? 1 : 0), ',');
  const auto is_listed = [&](const char* algorithm) {
    return std::ranges::any_of(names,
                               [&](const std::string& name) { return strcasecmp(name.c_str(), algorithm) == 0; });
  };
  return excludes ? !std::ranges::all_of(unordered, is_listed) : std::ranges::any_of(unordered, is_listed);
}

void forbid_unordered_sums() {
  const char* given = std::getenv("NCCL_ALGO");
  TRIREME_CHECK(given == nullptr || !allows_unordered_sums(given), ConfigError,
                "NCCL_ALGO={} allows sums in NVLink switches or in the network, whose order may differ from call to "
                "call. <deterministic_mode> needs a fixed order: unset NCCL_ALGO, or set it to Ring,Tree",
                given);
  setenv("NCCL_ALGO", "^NVLS,NVLSTree,CollNetDirect,CollNetChain", 0);
}

}  // namespace trireme::cuda

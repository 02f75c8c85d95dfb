#include "cuda/nccl/algorithms.hpp"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ranges>

#include "src/base/check.hpp"

namespace trireme::cuda {
namespace {

constexpr std::array<std::string_view, 4> unordered = {"NVLS", "NVLSTree", "CollNetDirect", "CollNetChain"};

}  // namespace

bool allows_unordered_sums(std::string_view nccl_algo) {
  if (nccl_algo.find(':') != std::string_view::npos) return true;
  const bool excludes = nccl_algo.starts_with('^');
  const std::string_view names = nccl_algo.substr(excludes ? 1 : 0);
  const auto is_listed = [&](std::string_view algorithm) {
    return std::ranges::any_of(std::views::split(names, ','), [&](const auto& part) {
      return part.size() == algorithm.size() && strncasecmp(&*part.begin(), algorithm.data(), algorithm.size()) == 0;
    });
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

#include "cuda/nccl/gpu_table.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::cuda {

std::string machine_name(const DeviceLocation& location) {
  const char* named = std::getenv("NCCL_HOSTID");
  return named != nullptr ? named : location.host;
}

std::vector<RankGpu> gather_gpu_table(Communicator& host, const Device& device) {
  const DeviceLocation& location = device.location();
  const std::string mine =
      fmt::format("{}\n{}\nGPU {} ({})", machine_name(location), device.uuid(), location.device, location.device_name);
  std::vector<RankGpu> table;
  for (const std::string& text : all_gather_text(host, mine)) {
    const std::size_t first = text.find('\n'), second = text.find('\n', first + 1);
    table.push_back({text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)});
  }
  return table;
}

void check_one_rank_a_gpu(const std::vector<RankGpu>& table) {
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> users;
  for (std::size_t rank = 0; rank < table.size(); ++rank) users[{table[rank].host, table[rank].uuid}].push_back(rank);
  std::string shared;
  for (const auto& [gpu, ranks] : users) {
    if (ranks.size() == 1) continue;
    shared += (shared.empty() ? "ranks " : "; ranks ");
    for (std::size_t i = 0; i < ranks.size(); ++i) shared += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    shared += fmt::format(" have {} of {}", table[ranks.front()].name, gpu.first);
  }
  TRIREME_CHECK(
      shared.empty(), EnvironmentError,
      "more ranks than GPUs: {}. NCCL needs a GPU for each rank: start as many ranks a machine as it has GPUs "
      "(is each rank shown its own by CUDA_VISIBLE_DEVICES or SLURM?), or use <communicator> staged, which "
      "passes everything through the host and is slow",
      shared);
}

void check_one_rank_a_gpu(Communicator& host, const Device& device) {
  const std::string own = machine_name(device.location()) + "\n" + device.uuid();
  std::vector<std::int64_t> gpus =
      all_gather_number(host, static_cast<std::int64_t>(hash64(own.data(), own.size(), 0)));
  std::ranges::sort(gpus);
  if (std::ranges::adjacent_find(gpus) != gpus.end()) check_one_rank_a_gpu(gather_gpu_table(host, device));
}

}  // namespace trireme::cuda

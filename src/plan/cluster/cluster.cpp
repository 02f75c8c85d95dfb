#include "src/plan/cluster/cluster.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <ranges>
#include <set>
#include <sstream>
#include <variant>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::plan {
namespace {

/// V100-SXM3 of 32 GB in a DGX-2H, which draws 450 W. Rates of products and copies are assumed: 90 % of 125 TFLOP/s and
/// of 0.9 TB/s.
const Device v100 = {.name = "V100",
                     .memory_gb = 32,
                     .peak_tflops = 125,
                     .product_tflops = 112,
                     .copy_gbs = 810,
                     .multiprocessors = 80,
                     .clock_ghz = 1.53,
                     .mma_clocks = 16,
                     .fuses_gelu = false,
                     .has_bf16 = false};

Device a100_40gb() {
  Device device = *find_gpu("A100");
  device.memory_gb = 40;
  device.copy_gbs = 1400;
  return device;
}

/// Numbers of a cluster by their fields in a file.
std::map<std::string, std::variant<int*, double*>> numbers_of(Cluster& cluster) {
  Device& device = cluster.device;
  Link &node = cluster.node, &network = cluster.network;
  return {{"cluster.ranks-per-node", &cluster.ranks_per_node},
          {"device.multiprocessors", &device.multiprocessors},
          {"device.memory-gb", &device.memory_gb},
          {"device.peak-tflops", &device.peak_tflops},
          {"device.product-tflops", &device.product_tflops},
          {"device.fp8-tflops", &device.fp8_tflops},
          {"device.copy-gbs", &device.copy_gbs},
          {"device.clock-ghz", &device.clock_ghz},
          {"device.mma-clocks", &device.mma_clocks},
          {"node.gbs", &node.gbs},
          {"node.share", &node.share},
          {"node.latency-us", &node.latency_us},
          {"network.gbs", &network.gbs},
          {"network.share", &network.share},
          {"network.latency-us", &network.latency_us},
          {"host.memory-gb", &cluster.host.memory_gb},
          {"host.memory-gbs", &cluster.host.memory_gbs},
          {"host.memory-share", &cluster.host.memory_share},
          {"host.link-gbs", &cluster.host.link_gbs}};
}

std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t\r";
  const auto begin = text.find_first_not_of(blanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

void set_field(const std::string& name, int line, const std::string& key, const std::string& value, Cluster& cluster) {
  if (key == "cluster.name" || key == "device.name") {
    (key == "cluster.name" ? cluster.name : cluster.device.name) = value;
    return;
  }
  const auto numbers = numbers_of(cluster);
  const auto found = numbers.find(key);
  TRIREME_CHECK(found != numbers.end(), ConfigError,
                "{}:{}: there is no field {}; fields are cluster.base, cluster.name, device.name, {}", name, line, key,
                fmt::join(numbers | std::views::keys, ", "));
  if (int* const* count = std::get_if<int*>(&found->second)) {
    constexpr int most = 100'000;
    const auto number = parse_number<int>(value);
    TRIREME_CHECK(number && *number >= 1 && *number <= most, ConfigError,
                  "{}:{}: {} = {}: a whole number from 1 to {} is expected", name, line, key, value, most);
    **count = *number;
  } else {
    const double most = key.ends_with("share") ? 2 : 1e12;
    const bool may_be_zero = key.ends_with("latency-us");
    const auto number = parse_number<double>(value);
    TRIREME_CHECK(number && (may_be_zero ? *number >= 0 : *number > 0) && *number <= most, ConfigError,
                  "{}:{}: {} = {}: a number {} 0 and at most {:g} is expected", name, line, key, value,
                  may_be_zero ? "from" : "above", most);
    *std::get<double*>(found->second) = *number;
  }
}

}  // namespace

std::span<const Device> gpus() {
  static const std::vector<Device> all = [] {
    const Device h200{.name = "H200",
                      .memory_gb = 141,
                      .peak_tflops = 989,
                      .product_tflops = 790,
                      .copy_gbs = 4300,
                      .multiprocessors = 132,
                      .clock_ghz = 1.83,
                      .mma_clocks = 6.6,
                      .half_tile_share = 0.85,
                      .attention_backward_share = 0.79,
                      .warp_groups = true,
                      .fuses_gelu = true,
                      .fp8_tflops = 1500};
    Device h100 = h200;
    h100.name = "H100";
    h100.memory_gb = 80;
    h100.copy_gbs = 3000;
    const Device a100{.name = "A100",
                      .memory_gb = 80,
                      .peak_tflops = 312,
                      .product_tflops = 265,
                      .copy_gbs = 1800,
                      .multiprocessors = 108,
                      .clock_ghz = 1.41,
                      .mma_clocks = 8,
                      .fuses_gelu = false};
    return std::vector{h200, h100, a100};
  }();
  return all;
}

const Device* find_gpu(const std::string& device) {
  const auto found =
      std::ranges::find_if(gpus(), [&](const Device& gpu) { return device.find(gpu.name) != std::string::npos; });
  return found == gpus().end() ? nullptr : &*found;
}

std::string collective_name(Collective collective, int ranks) {
  constexpr std::array names = {"all-reduce", "reduce-scatter",   "all-gather",
                                "broadcast",  "send and receive", "all-to-all"};
  return fmt::format("{} of {}", names[static_cast<std::size_t>(collective)], ranks);
}

/// Bandwidths are NVIDIA's data sheets': NVLink 2, 3 and 4; per node 8 network ports of 100, 200 and 400 Gbit/s.
/// Shares are fitted to published runs (bench/results/planner-2026-11-23.md). Latencies: Isaev et al. 2023, Calculon's
/// descriptions of A100 systems. Host memory: data sheets of the systems and their processors; links: PCI Express 3, 4
/// and 5 of 16 lanes.
const std::vector<Cluster>& cluster_presets() {
  constexpr double node_us = 10, network_us = 20, host_share = 0.8;
  static const std::vector<Cluster> all = {
      {"dgx-2h", v100, 16, {150, 0.645, node_us}, {6.25, 0.7, network_us}, 0, {1500, 256, host_share, 12}},
      {"dgx-a100-40gb", a100_40gb(), 8, {300, 0.686, node_us}, {25, 0.619, network_us}, 0, {1000, 410, host_share, 25}},
      {"dgx-a100",
       *find_gpu("A100"),
       8,
       {300, 0.686, node_us},
       {25, 0.619, network_us},
       0,
       {2000, 410, host_share, 25}},
      {"dgx-h100",
       *find_gpu("H100"),
       8,
       {450, 0.788, node_us},
       {50, 0.672, network_us},
       0,
       {2000, 614, host_share, 55}},
      {"dgx-h200",
       *find_gpu("H200"),
       8,
       {450, 0.788, node_us},
       {50, 0.672, network_us},
       0,
       {2000, 614, host_share, 55}},
      cpu_cluster()};
  return all;
}

double host_copy_ms(const Cluster& cluster, double to_host, double from_host) {
  const Host& host = cluster.host;
  const double shared = host.memory_share * host.memory_gbs / cluster.ranks_per_node;
  return std::max(std::max(to_host, from_host) / host.link_gbs, (to_host + from_host) / shared) / 1e6;
}

std::string cluster_preset_names() {
  return fmt::format("{}", fmt::join(cluster_presets() | std::views::transform(&Cluster::name), ", "));
}

Cluster cluster_preset(const std::string& name) {
  const auto found = std::ranges::find(cluster_presets(), name, &Cluster::name);
  TRIREME_CHECK(found != cluster_presets().end(), ConfigError,
                "there is no cluster {}: give one of {}, or an INI file that describes it", name,
                cluster_preset_names());
  return *found;
}

Cluster parse_cluster(const std::string& name, const std::string& text) {
  struct Value {
    int line;
    std::string key, value;
  };
  std::vector<Value> values;
  std::set<std::string> keys;
  std::istringstream lines(text);
  std::string section;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = trimmed(line.substr(0, line.find_first_of("#;")));
    if (line.empty()) continue;
    if (line.front() == '[' && line.back() == ']') {
      section = trimmed(line.substr(1, line.size() - 2)) + ".";
      continue;
    }
    const auto equals = line.find('=');
    TRIREME_CHECK(equals != std::string::npos, ConfigError, "{}:{}: `{}` is neither a [section] nor key = value", name,
                  number, line);
    const std::string key = (section.empty() ? "cluster." : section) + trimmed(line.substr(0, equals));
    TRIREME_CHECK(keys.insert(key).second, ConfigError, "{}:{}: {} is given twice", name, number, key);
    values.push_back({number, key, trimmed(line.substr(equals + 1))});
  }
  Cluster cluster;
  const auto base = std::ranges::find(values, "cluster.base", &Value::key);
  const bool has_base = base != values.end();
  if (has_base) {
    try {
      cluster = cluster_preset(base->value);
    } catch (const ConfigError& error) {
      throw ConfigError("{}:{}: cluster.base: {}", name, base->line, error.what());
    }
  }
  cluster.name = name;
  for (const Value& value : values) {
    if (value.key != "cluster.base") set_field(name, value.line, value.key, value.value, cluster);
  }
  for (const auto& [key, number] : numbers_of(cluster)) {
    TRIREME_CHECK(has_base || keys.contains(key) || key.ends_with("share") || key.starts_with("host."), ConfigError,
                  "{}: {} is missing: give it, or name in [cluster] a base that has it ({})", name, key,
                  cluster_preset_names());
  }
  return cluster;
}

}  // namespace trireme::plan

#include "src/plan/cluster/cluster.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/plan/cluster/cpu_cluster.hpp"

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

/// A value of a file, and its setter.
struct Field {
  std::function<double&(Cluster&)> value;
  double least = 0;  ///< excluded, except for latencies and zero shares
  double most = 1e12;
  bool whole = false;
};

Field number(double Device::*member) {
  return {[member](Cluster& cluster) -> double& { return cluster.device.*member; }};
}
Field number(Link Cluster::*link, double Link::*member, double most = 1e12) {
  return {[link, member](Cluster& cluster) -> double& { return cluster.*link.*member; }, 0, most};
}

const std::map<std::string, Field>& number_fields() {
  static const std::map<std::string, Field> fields = {
      {"device.memory-gb", number(&Device::memory_gb)},
      {"device.peak-tflops", number(&Device::peak_tflops)},
      {"device.product-tflops", number(&Device::product_tflops)},
      {"device.copy-gbs", number(&Device::copy_gbs)},
      {"device.clock-ghz", number(&Device::clock_ghz)},
      {"device.mma-clocks", number(&Device::mma_clocks)},
      {"node.gbs", number(&Cluster::node, &Link::gbs)},
      {"node.share", number(&Cluster::node, &Link::share, 2)},
      {"node.latency-us", number(&Cluster::node, &Link::latency_us)},
      {"network.gbs", number(&Cluster::network, &Link::gbs)},
      {"network.share", number(&Cluster::network, &Link::share, 2)},
      {"network.latency-us", number(&Cluster::network, &Link::latency_us)}};
  return fields;
}

const std::map<std::string, std::function<int&(Cluster&)>>& count_fields() {
  static const std::map<std::string, std::function<int&(Cluster&)>> fields = {
      {"cluster.ranks-per-node", [](Cluster& cluster) -> int& { return cluster.ranks_per_node; }},
      {"device.multiprocessors", [](Cluster& cluster) -> int& { return cluster.device.multiprocessors; }}};
  return fields;
}

std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t\r";
  const auto begin = text.find_first_not_of(blanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

template <class T>
bool read_number(const std::string& text, T& value) {
  const auto number = parse_number<T>(text);
  value = number.value_or(value);
  return number.has_value();
}

std::string known_fields() {
  std::string text = "cluster.base, cluster.name, device.name";
  for (const auto& [key, field] : count_fields()) text += ", " + key;
  for (const auto& [key, field] : number_fields()) text += ", " + key;
  return text;
}

/// Sets the field `key`, of line `line` of the file `name`.
void set_field(const std::string& name, int line, const std::string& key, const std::string& value, Cluster& cluster) {
  if (key == "cluster.name") {
    cluster.name = value;
  } else if (key == "device.name") {
    cluster.device.name = value;
  } else if (const auto count = count_fields().find(key); count != count_fields().end()) {
    constexpr int most = 100'000;
    int number = 0;
    TRIREME_CHECK(read_number(value, number) && number >= 1 && number <= most, ConfigError,
                  "{}:{}: {} = {}: a whole number from 1 to {} is expected", name, line, key, value, most);
    count->second(cluster) = number;
  } else if (const auto field = number_fields().find(key); field != number_fields().end()) {
    double number = 0;
    const bool may_be_zero = key.ends_with("latency-us");
    TRIREME_CHECK(
        read_number(value, number) && (may_be_zero ? number >= 0 : number > 0) && number <= field->second.most,
        ConfigError, "{}:{}: {} = {}: a number {} 0 and at most {:g} is expected", name, line, key, value,
        may_be_zero ? "from" : "above", field->second.most);
    field->second.value(cluster) = number;
  } else {
    throw ConfigError("{}:{}: there is no field {}; fields are {}", name, line, key, known_fields());
  }
}

}  // namespace

std::string collective_name(Collective collective, int ranks) {
  constexpr std::array names = {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "send and receive"};
  return fmt::format("{} of {}", names[static_cast<std::size_t>(collective)], ranks);
}

/// Bandwidths are NVIDIA's data sheets': NVLink 2, 3 and 4; per node 8 network ports of 100, 200 and 400 Gbit/s.
/// Shares are fitted to published runs (bench/results/planner-2026-11-23.md). Latencies: Isaev et al. 2023, Calculon's
/// descriptions of A100 systems.
const std::vector<Cluster>& cluster_presets() {
  constexpr double node_us = 10, network_us = 20;
  static const std::vector<Cluster> all = {
      {"dgx-2h", v100, 16, {150, 0.645, node_us}, {6.25, 0.7, network_us}},
      {"dgx-a100-40gb", a100_40gb(), 8, {300, 0.686, node_us}, {25, 0.619, network_us}},
      {"dgx-a100", *find_gpu("A100"), 8, {300, 0.686, node_us}, {25, 0.619, network_us}},
      {"dgx-h100", *find_gpu("H100"), 8, {450, 0.788, node_us}, {50, 0.672, network_us}},
      {"dgx-h200", *find_gpu("H200"), 8, {450, 0.788, node_us}, {50, 0.672, network_us}},
      cpu_cluster()};
  return all;
}

std::string cluster_preset_names() {
  std::string text;
  for (const Cluster& cluster : cluster_presets()) text += (text.empty() ? "" : ", ") + cluster.name;
  return text;
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
  cluster.name = name;
  bool has_base = false;
  for (const Value& value : values) {
    if (value.key != "cluster.base") continue;
    has_base = true;
    try {
      cluster = cluster_preset(value.value);
    } catch (const ConfigError& error) {
      throw ConfigError("{}:{}: cluster.base: {}", name, value.line, error.what());
    }
    cluster.name = name;
  }
  for (const Value& value : values) {
    if (value.key != "cluster.base") set_field(name, value.line, value.key, value.value, cluster);
  }
  if (!has_base) {
    const auto require = [&](const std::string& key) {
      TRIREME_CHECK(keys.contains(key), ConfigError,
                    "{}: {} is missing: give it, or name in [cluster] a base that has it ({})", name, key,
                    cluster_preset_names());
    };
    for (const auto& [key, field] : count_fields()) require(key);
    for (const auto& [key, field] : number_fields()) {
      if (!key.ends_with("share")) require(key);
    }
  }
  return cluster;
}

}  // namespace trireme::plan

#include "src/plan/constants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "src/plan/cases/published_costs.hpp"
#include "src/plan/cost/costs.hpp"

namespace trireme::plan {

ConstantTable device_constants(std::span<const Device> devices) {
  ConstantTable table;
  for (const Device& device : devices) table.columns.push_back(device.name);
  const auto add = [&](const char* name, auto value_of, const char* source) {
    ConstantRow row{name, {}, source};
    for (const Device& device : devices) row.values.push_back(value_of(device));
    table.rows.push_back(std::move(row));
  };
  const auto number = [](double Device::*member) {
    return [member](const Device& device) { return fmt::format("{:g}", device.*member); };
  };
  const auto same = [](const std::string& value) { return [value](const Device&) { return value; }; };
  const auto multiprocessors = [](const Device& device) { return fmt::format("{}", device.multiprocessors); };
  const auto fuses_gelu = [](const Device& device) { return std::string(device.fuses_gelu ? "yes" : "no"); };
  add("dense peak of 16-bit products, TFLOP/s", number(&Device::peak_tflops), "NVIDIA's data sheets");
  add("multiprocessors", multiprocessors, "NVIDIA's data sheets");
  add("memory, GB", number(&Device::memory_gb), "NVIDIA's data sheets");
  add("clock, GHz", number(&Device::clock_ghz), "at which the peak holds: peak / (multiprocessors x FLOP a clock)");
  add("product of 8192^3, TFLOP/s", number(&Device::product_tflops),
      "assumed, just below the best shapes of H100 (794.5) and A100 (271.2) in stas00/ml-engineering, MAMF; V100: "
      "90 % of the peak");
  add("tiles of products", same("7"),
      "assumed: 256x128, 128x128, 256x64, 128x64 and their mirrors, k split up to 8 times, all at full rate");
  add("k lost to a tile's pipeline", same("256"), "assumed");
  add("GELU inside products", fuses_gelu,
      "llm.c: fused on Hopper (pull request 591), slower than a separate kernel before it (338)");
  add("sums of bias gradients inside products", same("no"),
      "assumed, autotuning decides: NVIDIA/CUDALibrarySamples issue 90 has the epilogue slower on an A100");
  add("clocks of an mma.sync on a quarter", number(&Device::mma_clocks),
      "Hopper: fitted, with the next line, to FlashAttention-2's forward on an H100 (eight rates, within 5 %); A100, "
      "V100: peak");
  add("steps to start and end a block of attention", same(fmt::format("{}", block_overhead_steps)),
      "d 64: 306, 318, causal 229, 262 TFLOP/s; d 128: 350, 362, 260, 298; s 1024, 2048 (flash-attention's "
      "repository)");
  add("copy, GB/s read + written", number(&Device::copy_gbs), "assumed: 90 % of 4.8, 3.35, 2.04, 1.56 and 0.9 TB/s");
  add("memory-bound kernels, share of the copy", number(&Device::memory_share),
      "assumed, the project's goal; llm.c's kernels have 97 to 100 % on an RTX 5090 (llm-kittens)");
  add("backward of norms, share of the copy", number(&Device::norm_backward_share),
      "llm.c's on an RTX 5090 (llm-kittens)");
  add("gap after a launch, us", number(&Device::launch_gap_us), "assumed");
  add("gap in a graph, us", number(&Device::graph_gap_us), "assumed");
  add("wait for a result that the host reads, us", number(&Device::host_wait_us), "assumed");
  return table;
}

ConstantTable cluster_constants() {
  std::vector<Cluster> clusters;
  std::ranges::copy_if(cluster_presets(), std::back_inserter(clusters),
                       [](const Cluster& cluster) { return cluster.cores_per_node == 0; });
  std::vector<Device> devices;
  for (const Cluster& cluster : clusters) devices.push_back(cluster.device);
  ConstantTable table = device_constants(devices);
  std::ranges::transform(clusters, table.columns.begin(), &Cluster::name);
  const auto add = [&](const char* name, auto value_of, const char* source) {
    ConstantRow row{name, {}, source};
    for (const Cluster& cluster : clusters)
      row.values.push_back(fmt::format("{:g}", static_cast<double>(value_of(cluster))));
    table.rows.push_back(std::move(row));
  };
  const auto link = [](Link Cluster::*link, double Link::*member) {
    return [link, member](const Cluster& cluster) { return cluster.*link.*member; };
  };
  const char* fitted = "fitted to published runs by bench/planner";
  const char* latency = "Isaev et al. 2023: Calculon's description of A100 clusters";
  add(
      "ranks a node", [](const Cluster& cluster) { return cluster.ranks_per_node; }, "NVIDIA's data sheets");
  add("link in a node, GB/s", link(&Cluster::node, &Link::gbs), "NVIDIA's data sheets: NVLink 2, 3, 4, one direction");
  add("  share that collectives reach", link(&Cluster::node, &Link::share), fitted);
  add("  latency, us", link(&Cluster::node, &Link::latency_us), latency);
  add("network of a rank, GB/s", link(&Cluster::network, &Link::gbs),
      "NVIDIA's data sheets: 8 ports a node of 100, 200, 400 Gbit/s");
  add("  share that collectives reach", link(&Cluster::network, &Link::share),
      "fitted to published runs by bench/planner; V100: assumed");
  add("  latency, us", link(&Cluster::network, &Link::latency_us), latency);
  const auto share = [](double FittedShares::*member) {
    return [member](const Cluster& cluster) { return published_cluster(cluster.name).shares.*member; };
  };
  add("published runs: products, share of 8192^3", share(&FittedShares::product), fitted);
  add("published runs: memory-bound kernels, share of the copy", share(&FittedShares::memory), fitted);
  add("published runs: kernels without fusion, share of those", share(&FittedShares::unfused),
      "fitted to published runs by bench/planner for V100; assumed for the others, whose runs fuse");
  add(
      "latency of a ring's further steps, share", [](const Cluster&) { return ring_step_share; }, "assumed");
  return table;
}

std::string text_of(const ConstantTable& table) {
  std::size_t name_width = 0, width = 0;
  for (const std::string& column : table.columns) width = std::max(width, column.size());
  for (const ConstantRow& row : table.rows) name_width = std::max(name_width, row.name.size());
  std::string text;
  const auto add_line = [&](const ConstantRow& row) {
    text += fmt::format("{:<{}}", row.name, name_width);
    for (const std::string& value : row.values) text += fmt::format("  {:>{}}", value, width);
    text += "  " + row.source + "\n";
  };
  add_line({"constant", table.columns, "source"});
  std::ranges::for_each(table.rows, add_line);
  return text;
}

}  // namespace trireme::plan

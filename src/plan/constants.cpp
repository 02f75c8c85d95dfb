#include "src/plan/constants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "src/plan/cases/published_costs.hpp"
#include "src/plan/cost/costs.hpp"

namespace trireme::plan {
namespace {

/// Row of the table: a value for each cluster.
struct Constant {
  std::string name;
  std::vector<std::string> values;
  std::string source;
};

std::vector<Constant> constants_of(const std::vector<Cluster>& clusters) {
  std::vector<Constant> rows;
  const auto add = [&](const char* name, auto value_of, const char* source) {
    Constant& row = rows.emplace_back(Constant{name, {}, source});
    for (const Cluster& cluster : clusters) row.values.push_back(value_of(cluster));
  };
  const auto same = [](const std::string& value) { return [value](const Cluster&) { return value; }; };
  const auto device = [](double Device::*member) {
    return [member](const Cluster& cluster) { return fmt::format("{:g}", cluster.device.*member); };
  };
  const auto link = [](Link Cluster::*link, double Link::*member) {
    return [link, member](const Cluster& cluster) { return fmt::format("{:g}", cluster.*link.*member); };
  };
  const auto host = [](double Host::*member) {
    return [member](const Cluster& cluster) { return fmt::format("{:g}", cluster.host.*member); };
  };
  const auto fitted_share = [](double FittedShares::*member) {
    return [member](const Cluster& cluster) {
      return fmt::format("{:g}", published_cluster(cluster.name).shares.*member);
    };
  };
  const char* data_sheets = "NVIDIA's data sheets";
  const char* fitted = "fitted to published runs by bench/planner";
  const char* latency = "Isaev et al. 2023: Calculon's description of A100 clusters";
  add("dense peak of 16-bit products, TFLOP/s", device(&Device::peak_tflops), data_sheets);
  add(
      "multiprocessors", [](const Cluster& cluster) { return fmt::format("{}", cluster.device.multiprocessors); },
      data_sheets);
  add("memory, GB", device(&Device::memory_gb), data_sheets);
  add("clock, GHz", device(&Device::clock_ghz), "at which the peak holds: peak / (multiprocessors x FLOP a clock)");
  add("product of 8192^3, TFLOP/s", device(&Device::product_tflops),
      "assumed, just below the best shapes of H100 (794.5) and A100 (271.2) in stas00/ml-engineering, MAMF; V100: "
      "90 % of the peak");
  add("product of 8192^3 in FP8, TFLOP/s", device(&Device::fp8_tflops),
      "assumed, below 1,610 of cuBLASLt and 1,550 of DeepGEMM, which their users published for Hopper");
  add("tiles of products", same("7"),
      "assumed: 256x128, 128x128, 256x64, 128x64 and their mirrors, k split up to 8 times");
  add("rate of tiles of half the size, share", device(&Device::half_tile_share),
      "Hopper: fitted to 13 products of k >= 1024 on an H100 (OpenXLA's matmul_interpolator_data.h), mean error 4 % "
      "instead of 5; others: assumed");
  add("k lost to a tile's pipeline", same("256"),
      "TileLang's products 8192 x 8192 x k on an H800: 386, 520, 628, 705, 736, 758, 766 TFLOP/s at k 256, 512 ... "
      "16384; within 2 %");
  add("last wave of products beside others", same("free"),
      "assumed: blocks of the next one, on its own stream, take the multiprocessors; that of a layer's first gradient "
      "of a weight is counted");
  add(
      "GELU inside products", [](const Cluster& cluster) { return cluster.device.fuses_gelu ? "yes" : "no"; },
      "llm.c: fused on Hopper (pull request 591), slower than a separate kernel before it (338)");
  add("sums of bias gradients inside products", same("no"),
      "assumed, autotuning decides: NVIDIA/CUDALibrarySamples issue 90 has the epilogue slower on an A100");
  add(
      "attention by products of warp groups", [](const Cluster& c) { return c.device.warp_groups ? "yes" : "no"; },
      "instructions counted in the machine code; products at the rate of 8192^3; 64, 96 and 128 channels");
  add("clocks of an mma.sync on a quarter", device(&Device::mma_clocks),
      "Hopper: fitted, with the next line, to FlashAttention-2's forward on an H100 (eight rates, within 5 %); A100, "
      "V100: peak");
  add("attention's backward, share of forward's rate", device(&Device::attention_backward_share),
      "Hopper: FlashAttention-2's on an H100, mean of d 64: 238, 264 of 306, 318; d 128: 260, 291 of 350, 362 TFLOP/s; "
      "others: assumed");
  add("steps to start and end a block of attention", same(fmt::format("{}", block_overhead_steps)),
      "d 64: 306, 318, causal 229, 262 TFLOP/s; d 128: 350, 362, 260, 298; s 1024, 2048 (flash-attention's "
      "repository)");
  add("copy, GB/s read + written", device(&Device::copy_gbs), "assumed: 90 % of 4.8, 3.35, 2.04, 1.56 and 0.9 TB/s");
  add("memory-bound kernels, share of the copy", device(&Device::memory_share),
      "assumed, the project's goal; llm.c's kernels have 97 to 100 % on an RTX 5090 (llm-kittens)");
  add("backward of norms, share of the copy", device(&Device::norm_backward_share),
      "llm.c's on an RTX 5090 (llm-kittens)");
  add("gap after a launch, us", device(&Device::launch_gap_us), "assumed");
  add("gap in a graph, us", device(&Device::graph_gap_us), "assumed");
  add("wait for a result that the host reads, us", device(&Device::host_wait_us), "assumed");
  add(
      "ranks a node", [](const Cluster& cluster) { return fmt::format("{}", cluster.ranks_per_node); }, data_sheets);
  add("link in a node, GB/s", link(&Cluster::node, &Link::gbs), "NVIDIA's data sheets: NVLink 2, 3, 4, one direction");
  add("  share that collectives reach", link(&Cluster::node, &Link::share), fitted);
  add("  latency, us", link(&Cluster::node, &Link::latency_us), latency);
  add("network of a rank, GB/s", link(&Cluster::network, &Link::gbs),
      "NVIDIA's data sheets: 8 ports a node of 100, 200, 400 Gbit/s");
  add("  share that collectives reach", link(&Cluster::network, &Link::share),
      "fitted to published runs by bench/planner; V100: assumed");
  add("  latency, us", link(&Cluster::network, &Link::latency_us), latency);
  add("link of a device to host memory, GB/s", host(&Host::link_gbs),
      "PCI Express 3, 4 and 5 x 16: 16, 32 and 64 GB/s in each direction, assumed 75 to 86 % of it");
  add("host memory of a node, GB", host(&Host::memory_gb), data_sheets);
  add("  peak rate, GB/s", host(&Host::memory_gbs),
      "channels of both processors: 12 of DDR4-2666 (Xeon 8174), 16 of DDR4-3200 (EPYC 7742), 16 of DDR5-4800 "
      "(Xeon 8480C)");
  add("  share that copies reach", host(&Host::memory_share), "assumed");
  add("published runs: products, share of 8192^3", fitted_share(&FittedShares::product), fitted);
  add("published runs: memory-bound kernels, share of the copy", fitted_share(&FittedShares::memory), fitted);
  add("published runs: kernels without fusion, share of those", fitted_share(&FittedShares::unfused),
      "fitted to published runs by bench/planner for V100; assumed for the others, whose runs fuse");
  add("latency of a ring's further steps, share", same(fmt::format("{:g}", ring_step_share)), "assumed");
  return rows;
}

}  // namespace

std::string constants_text() {
  std::vector<Cluster> clusters;
  std::ranges::copy_if(cluster_presets(), std::back_inserter(clusters),
                       [](const Cluster& cluster) { return cluster.cores_per_node == 0; });
  std::vector<Constant> rows = constants_of(clusters);
  rows.insert(rows.begin(), Constant{"constant", {}, "source"});
  for (const Cluster& cluster : clusters) rows.front().values.push_back(cluster.name);
  std::size_t name_width = 0, width = 0;
  for (const std::string& column : rows.front().values) width = std::max(width, column.size());
  for (const Constant& row : rows) name_width = std::max(name_width, row.name.size());
  std::string text;
  for (const Constant& row : rows) {
    text += fmt::format("{:<{}}", row.name, name_width);
    for (const std::string& value : row.values) text += fmt::format("  {:>{}}", value, width);
    text += "  " + row.source + "\n";
  }
  return text;
}

}  // namespace trireme::plan

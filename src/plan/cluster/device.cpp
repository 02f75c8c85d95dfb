#include "src/plan/cluster/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trireme::plan {

std::span<const Device> gpus() {
  static const std::array<Device, 3> all = {{{.name = "H200",
                                              .memory_gb = 141,
                                              .peak_tflops = 989,
                                              .product_tflops = 790,
                                              .copy_gbs = 4300,
                                              .multiprocessors = 132,
                                              .clock_ghz = 1.83,
                                              .mma_clocks = 6.6,
                                              .fuses_gelu = true},
                                             {.name = "H100",
                                              .memory_gb = 80,
                                              .peak_tflops = 989,
                                              .product_tflops = 790,
                                              .copy_gbs = 3000,
                                              .multiprocessors = 132,
                                              .clock_ghz = 1.83,
                                              .mma_clocks = 6.6,
                                              .fuses_gelu = true},
                                             {.name = "A100",
                                              .memory_gb = 80,
                                              .peak_tflops = 312,
                                              .product_tflops = 265,
                                              .copy_gbs = 1800,
                                              .multiprocessors = 108,
                                              .clock_ghz = 1.41,
                                              .mma_clocks = 8,
                                              .fuses_gelu = false}}};
  return all;
}

const Device* find_gpu(const std::string& device) {
  const auto found =
      std::ranges::find_if(gpus(), [&](const Device& gpu) { return device.find(gpu.name) != std::string::npos; });
  return found == gpus().end() ? nullptr : &*found;
}

std::vector<ConstantRow> constants() {
  std::vector<ConstantRow> rows;
  const auto add = [&](const char* name, auto value_of, const char* source) {
    ConstantRow row{name, {}, source};
    for (const Device& gpu : gpus()) row.values.push_back(value_of(gpu));
    rows.push_back(std::move(row));
  };
  const auto number = [](double Device::*member) {
    return [member](const Device& gpu) { return fmt::format("{:g}", gpu.*member); };
  };
  const auto same = [](const std::string& value) { return [value](const Device&) { return value; }; };
  const auto multiprocessors = [](const Device& gpu) { return fmt::format("{}", gpu.multiprocessors); };
  const auto fuses_gelu = [](const Device& gpu) { return std::string(gpu.fuses_gelu ? "yes" : "no"); };
  add("dense bf16 peak, TFLOP/s", number(&Device::peak_tflops), "NVIDIA's data sheets");
  add("multiprocessors", multiprocessors, "NVIDIA's data sheets");
  add("clock, GHz", number(&Device::clock_ghz), "at which the peak holds: peak / (multiprocessors x FLOP a clock)");
  add("product of 8192^3, TFLOP/s", number(&Device::product_tflops),
      "assumed, just below the best shapes of H100 (794.5) and A100 (271.2) in stas00/ml-engineering, MAMF");
  add("tiles of products", same("7"),
      "assumed: 256x128, 128x128, 256x64, 128x64 and their mirrors, k split up to 8 times, all at full rate");
  add("k lost to a tile's pipeline", same("256"), "assumed");
  add("GELU inside products", fuses_gelu,
      "llm.c: fused on Hopper (pull request 591), slower than a kernel of its own before it (338)");
  add("sums of bias gradients inside products", same("no"),
      "assumed, autotuning decides: NVIDIA/CUDALibrarySamples issue 90 has the epilogue slower on an A100");
  add("clocks of an mma.sync on a quarter", number(&Device::mma_clocks),
      "Hopper: fit, with the next line, to FlashAttention-2's forward on an H100 (eight rates, within 5 %); A100: "
      "peak");
  add("steps to start and end a block of attention", same(fmt::format("{}", block_overhead_steps)),
      "d 64: 306, 318, causal 229, 262 TFLOP/s; d 128: 350, 362, 260, 298; s 1024, 2048 (flash-attention's "
      "repository)");
  add("copy, GB/s read + written", number(&Device::copy_gbs), "assumed: 90 % of 4.8, 3.35 and 2.04 TB/s");
  add("memory-bound kernels, share of the copy", number(&Device::memory_share),
      "assumed, the project's goal; llm.c's kernels have 97 to 100 % on an RTX 5090 (llm-kittens)");
  add("backward of norms, share of the copy", number(&Device::norm_backward_share),
      "llm.c's on an RTX 5090 (llm-kittens)");
  add("gap after a launch, us", number(&Device::launch_gap_us), "assumed");
  add("gap in a graph, us", number(&Device::graph_gap_us), "assumed");
  add("wait for a result that the host reads, us", number(&Device::host_wait_us), "assumed");
  return rows;
}

}  // namespace trireme::plan

#include "src/plan/cluster/device.hpp"

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

}  // namespace trireme::plan

#include "src/base/machine.hpp"
#include "src/base/thread_pool.hpp"
#include "src/plan/cluster/cluster.hpp"

namespace trireme::plan {
namespace {

/// Lines of `mpirun -np 2 kernels_calibration`: kernel, shape, FLOP or bytes, microseconds
/// (bench/results/planner-cpu-2026-11-23.md).
MeasuredKernels measured_kernels() {
  return MeasuredKernels({
      {"attention, backward", {128, 128, 64}, 16777216, 94.6},
      {"attention, backward", {128, 128, 64}, 67108864, 422},
      {"attention, backward", {128, 128, 64}, 268435456, 1581},
      {"attention, backward", {256, 256, 64}, 536870912, 2590},
      {"attention, forward", {128, 128, 64}, 8388608, 43.4},
      {"attention, forward", {128, 128, 64}, 33554432, 175},
      {"attention, forward", {128, 128, 64}, 134217728, 721},
      {"attention, forward", {256, 256, 64}, 268435456, 1147},
      {"cross entropy", {262144}, 262144, 14.0},
      {"cross entropy", {1048576}, 1048576, 50.4},
      {"cross entropy", {4194304}, 4194304, 180},
      {"cross entropy", {16777216}, 16777216, 267},
      {"dropout, bias, residual", {131072}, 131072, 4.9},
      {"dropout, bias, residual", {393216}, 393216, 11.7},
      {"dropout, bias, residual", {1048576}, 1048576, 39.9},
      {"dropout, bias, residual", {3145728}, 3145728, 98.3},
      {"embedding", {131072}, 131072, 6.8},
      {"embedding", {524800}, 524800, 19.7},
      {"embedding", {1310720}, 1310720, 38.7},
      {"embedding", {3149824}, 3149824, 108},
      {"gradients, clearing and norm", {1387008}, 1387008, 18.3},
      {"gradients, clearing and norm", {4346880}, 4346880, 87.5},
      {"gradients, clearing and norm", {8548352}, 8548352, 205},
      {"gradients, clearing and norm", {29679616}, 29679616, 816},
      {"norms, backward", {196608}, 196608, 4.8},
      {"norms, backward", {524288}, 524288, 8.7},
      {"norms, backward", {1572864}, 1572864, 36.9},
      {"norms, backward", {4194304}, 4194304, 83.5},
      {"norms, forward", {131072}, 131072, 5.4},
      {"norms, forward", {524288}, 524288, 22.0},
      {"norms, forward", {1048576}, 1048576, 47.8},
      {"norms, forward", {4194304}, 4194304, 199},
      {"optimizer", {229376}, 229376, 2.6},
      {"optimizer", {3670016}, 3670016, 45.7},
      {"optimizer", {9175040}, 9175040, 139},
      {"optimizer", {31195136}, 31195136, 515},
      {"products, forward", {512, 128, 128}, 16777216, 84.0},
      {"products, forward", {512, 128, 512}, 67108864, 335},
      {"products, forward", {512, 384, 128}, 50331648, 250},
      {"products, forward", {512, 512, 128}, 67108864, 375},
      {"products, forward", {512, 512, 512}, 268435456, 1324},
      {"products, forward", {512, 512, 2048}, 1073741824, 5155},
      {"products, forward", {512, 1536, 512}, 805306368, 4047},
      {"products, input gradients", {512, 128, 128}, 16777216, 69.5},
      {"products, input gradients", {512, 128, 384}, 50331648, 207},
      {"products, input gradients", {512, 128, 512}, 67108864, 277},
      {"products, input gradients", {512, 512, 128}, 67108864, 347},
      {"products, input gradients", {512, 512, 512}, 268435456, 1144},
      {"products, input gradients", {512, 512, 1536}, 805306368, 3433},
      {"products, input gradients", {512, 2048, 512}, 1073741824, 5463},
      {"products, logits", {512, 128, 2048}, 268435456, 1123},
      {"products, logits", {512, 512, 2048}, 1073741824, 4588},
      {"products, logits", {512, 2048, 128}, 268435456, 1412},
      {"products, logits", {512, 2048, 512}, 1073741824, 5351},
      {"products, logits", {2048, 128, 512}, 268435456, 1304},
      {"products, logits", {2048, 512, 512}, 1073741824, 5384},
      {"products, weight gradients", {128, 128, 512}, 16777216, 74.2},
      {"products, weight gradients", {128, 512, 512}, 67108864, 303},
      {"products, weight gradients", {384, 128, 512}, 50331648, 232},
      {"products, weight gradients", {512, 128, 512}, 67108864, 309},
      {"products, weight gradients", {512, 512, 512}, 268435456, 1253},
      {"products, weight gradients", {512, 2048, 512}, 1073741824, 4939},
      {"products, weight gradients", {1536, 512, 512}, 805306368, 3831},
  });
}

}  // namespace

Cluster cpu_cluster() {
  const int cores = cores_of_rank(1);
  const double memory_gb = static_cast<double>(machine_memory_bytes()) / 1e9 / cores;
  // GPU constants apply only to kernels missing from the list above.
  const Device core = {.name = "CPU",
                       .memory_gb = memory_gb,
                       .peak_tflops = 0.24,
                       .product_tflops = 0.2,
                       .copy_gbs = 30,
                       .multiprocessors = 1,
                       .clock_ghz = 1,
                       .mma_clocks = 1,
                       .fuses_gelu = true,
                       .launch_gap_us = 2.9,
                       .graph_gap_us = 2.9,
                       .host_wait_us = 0,
                       .measured = measured_kernels()};
  // A core reads and writes each byte that it copies.
  const Host host = {.memory_gb = memory_gb * cores, .memory_gbs = 15.0 * cores, .memory_share = 1, .link_gbs = 15};
  return {"cpu", core, cores, {.gbs = 19, .latency_us = 0.7}, {.gbs = 1.25, .latency_us = 30}, cores, host};
}

}  // namespace trireme::plan

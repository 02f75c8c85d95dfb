// Training steps on a GPU, in bf16 with dropout: those that step_predict predicts, and GPT-2 124M without and
// with CUDA graphs, at a micro-batch that fills the GPU and at one whose kernels are shorter than their launches. 8.3B
// runs as the first of eight tensor ranks: its communication takes no time and moves no data, so only the rank's own
// work counts. Each case is a line of JSON:
// * Median, minimum and maximum of the time of a step by the host's clock. The first steps, in which algorithms are
//   chosen and graphs recorded, are left out.
// * Launches of kernels, products and graphs in a step.
// * Model FLOPs per second and rank, with attention in full.
// * Without graphs, calls and time of each kind of kernel, each call between two events: the median of further steps.
// usage: step_gpu_bench [--sweep] [--gemm-cache FILE] [--dry-run]
//   --sweep             GPT-2 124M instead: every combination of graphs, type of moments, micro-batch (64 samples in a
//                       step) and dropout, without the times of kinds of kernel
//   --gemm-cache FILE   file with the fastest algorithm of each product, read and extended
//   --dry-run           a tiny model on the CPU backend, to test this program
// A case that fails is named on stderr, with "FAILED: ", and the next one runs. A failure of the GPU ends the program,
// with the error's exit code. Otherwise the exit code is 1 where a case failed, or the start test found wrong kernels.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "bench/step/line_timer.hpp"
#include "bench/step/step_rig.hpp"
#include "cuda/backend/cuda_backend.hpp"
#include "cuda/runtime/error.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/base/check.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/selftest/startup.hpp"

namespace trireme::bench {
namespace {

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

train::TrainRecord update(StepRig& rig, const StepCase& c) {
  const train::TrainRecord record = rig.step();
  TRIREME_CHECK(!record.skipped, NumericalError, "step {} of {} made no update: its time is not that of a step",
                record.iteration, c.model);
  return record;
}

/// "[{...}, ...]": the medians of the lines of some steps.
std::string timed_lines(StepRig& rig, const StepCase& c, ObservedBackend& backend, int steps) {
  LineTimer timer(backend.memory_is_host());
  backend.observe(&timer);
  std::vector<std::vector<LineTimer::Sum>> sums;
  for (int i = 0; i <= steps; ++i) {
    update(rig, c);
    sums.push_back(timer.take());
    if (i == 0) sums.clear();  // it made the events
  }
  backend.observe(nullptr);
  std::string text;
  for (std::size_t line = 0; line < kernel_kind_count; ++line) {
    if (sums[0][line].calls == 0) continue;
    std::vector<double> times;
    for (const auto& step : sums) times.push_back(step[line].ms);
    text += fmt::format(R"({}{{"line": "{}", "calls": {}, "ms": {:.4f}}})", text.empty() ? "" : ", ",
                        name_of(static_cast<KernelKind>(line)), sums[0][line].calls, median_of(times));
  }
  return "[" + text + "]";
}

struct Arguments {
  bool sweep = false, dry_run = false;
  std::string gemm_cache;
};

/// After this time the GPU counts as hung. Steps take less than a second.
constexpr double max_wait_s = 20;

/// Prints a case's line. Returns whether the kernels passed the start test: wrong ones are timed all the same.
bool run(const StepCase& c, const Arguments& arguments) {
  const bool dry_run = arguments.dry_run, has_lines = !c.graphs && !arguments.sweep;
  const int warm_up = dry_run ? 1 : 4, steps = dry_run ? 2 : arguments.sweep ? 6 : 12, timed = dry_run ? 1 : 5;
  const std::unique_ptr<Backend> device =
      dry_run ? cpu::make_backend(1)
              : cuda::make_backend({.max_wait_s = max_wait_s, .algorithm_cache = arguments.gemm_cache},
                                   TRIREME_CUDA_ARCHITECTURES);
  SelfCommunicator world("world");
  std::unique_ptr<Communicator> devices = world.split(0, 0, "world");
  if (!dry_run) {
    devices = dynamic_cast<DeviceCommunicators&>(*device).make_world(std::move(devices), DeviceTransport::nccl);
  }
  bool right = true;
  if (!dry_run) {
    // As a run does, which uses attention by warp groups where it is right.
    const std::unique_ptr<Backend> reference = cpu::make_backend(1);
    if (c.fp8 && !device->supports(Capability::fp8)) {
      std::cerr << to_string(c) << ": left out, " << device->description() << " has no products in FP8\n";
      return true;
    }
    const selftest::StartupTest tested{.dtype = c.dtype, .fp8 = {.whole = c.fp8}, .where = "this GPU"};
    try {
      for (const std::string& warning : selftest::test_at_start(*device, *reference, tested)) {
        std::cerr << warning << "\n";
      }
    } catch (const EnvironmentError& error) {
      std::cerr << "FAILED: start test of " << to_string(c) << ": " << error.what() << std::endl;
      right = false;
    }
  }
  ObservedBackend backend(*device);
  StepRig rig(c, backend, *devices);
  rig.initialise();
  std::vector<double> times;
  double flops = 0;
  std::size_t launches = 0;
  for (int i = 0; i < warm_up + steps; ++i) {
    const std::size_t before = backend.launches();
    const train::TrainRecord record = update(rig, c);
    launches = backend.launches() - before;
    if (i >= warm_up) times.push_back(record.elapsed_ms);
    flops = record.tflops_per_rank * record.elapsed_ms / c.tensor_ranks;  // 10^9
  }
  const double median = median_of(times);
  std::cout << fmt::format(
                   R"({{"gpu": "{}", {}, "ms": {:.3f}, "least_ms": {:.3f}, "greatest_ms": {:.3f}, "launches": {}, )"
                   R"("full_attention_tflops": {:.1f}{}}})",
                   backend.description(), json_fields(c), median, std::ranges::min(times), std::ranges::max(times),
                   launches, flops / median, has_lines ? ", \"lines\": " + timed_lines(rig, c, backend, timed) : "")
            << std::endl;
  return right;
}

std::vector<StepCase> sweep_cases(bool tiny) {
  std::vector<StepCase> cases;
  for (const int micro_batches : {1, 4, 16}) {
    for (const DType moments : {DType::fp32, DType::bf16}) {
      for (const double dropout : {0.1, 0.0}) {
        for (const bool graphs : {false, true}) {
          if (tiny && graphs) continue;  // the CPU backend has none
          cases.push_back({.model = tiny ? "tiny" : "gpt2-124m",
                           .s = tiny ? 32 : 1024,
                           .b = (tiny ? 16 : 64) / micro_batches,
                           .micro_batches = micro_batches,
                           .graphs = graphs,
                           .moments = moments,
                           .dropout = dropout});
        }
      }
    }
  }
  return cases;
}

std::vector<StepCase> cases_of(const Arguments& arguments) {
  if (arguments.sweep) return sweep_cases(arguments.dry_run);
  if (arguments.dry_run) {
    std::vector<StepCase> cases{{.model = "tiny", .s = 32, .b = 2, .micro_batches = 4}};
    for (const bool sequence_parallel : {false, true}) {
      cases.push_back({.model = "tiny", .s = 32, .b = 2, .tensor_ranks = 2, .sequence_parallel = sequence_parallel});
    }
    return cases;
  }
  std::vector<StepCase> cases = predicted_cases();
  for (const auto& [s, b] : {std::pair{1024, 16}, std::pair{256, 1}}) {
    for (const bool graphs : {false, true}) {
      cases.push_back({.model = "gpt2-124m", .s = s, .b = b, .micro_batches = 4, .graphs = graphs});
    }
  }
  return cases;
}

/// Returns whether the GPU is lost to this process: after a fault in a kernel every call fails.
bool is_of_device(const std::exception& error) {
  return dynamic_cast<const cuda::CudaError*>(&error) != nullptr || dynamic_cast<const HungError*>(&error) != nullptr ||
         dynamic_cast<const MachineError*>(&error) != nullptr;
}

/// Returns the exit code.
int run_all(const Arguments& arguments) {
  int code = 0;
  for (const StepCase& c : cases_of(arguments)) {
    std::cerr << to_string(c) << std::endl;  // a crash or hang has no other name
    try {
      if (!run(c, arguments)) code = 1;
    } catch (const std::exception& error) {
      std::cerr << "FAILED: " << to_string(c) << ": " << error.what() << std::endl;
      if (is_of_device(error)) return static_cast<int>(dynamic_cast<const Error&>(error).exit_code());
      code = 1;
    }
  }
  return code;
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  trireme::bench::Arguments arguments;
  const std::vector<std::string> given(argv + 1, argv + argc);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] == "--sweep") {
      arguments.sweep = true;
    } else if (given[i] == "--dry-run") {
      arguments.dry_run = true;
    } else if (given[i] == "--gemm-cache" && i + 1 < given.size()) {
      arguments.gemm_cache = given[++i];
    } else {
      return std::cerr << "usage: step_gpu_bench [--sweep] [--gemm-cache FILE] [--dry-run]\n", 2;
    }
  }
  return trireme::bench::run_all(arguments);
}

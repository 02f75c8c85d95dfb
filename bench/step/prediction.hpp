#pragma once

#include <array>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "bench/step/step_rig.hpp"
#include "src/plan/cost/costs.hpp"

namespace trireme::bench {

using namespace plan;

/// Returns all kernel calls in a step of the program, in order. The step runs without computing, on a stand-in GPU.
/// Excludes copies of samples to the device, which overlap with the kernels; in generation those of tokens.
std::vector<KernelCall> rehearse(const StepCase& c);

/// Sums over the calls of a kind in a step.
struct LineCost {
  int calls = 0;
  double flops = 0, bytes = 0;
  double ms = 0;      ///< with `end_ms`, without gaps
  double end_ms = 0;  ///< products' epilogues in separate kernels
};

/// Prediction of a step.
struct Prediction {
  StepCase step;
  const Device* gpu;
  std::array<LineCost, kernel_kind_count> lines;
  int launches = 0;
  double gaps_ms = 0;
  double hidden_update_ms = 0;               ///< part of the optimizer beside the next forward
  double model_flops = 0, causal_flops = 0;  ///< one rank's: attention in full, and its causal half alone
  double weight_bytes = 0, cache_bytes = 0;  ///< in generation: weights, and cached keys and values, read once

  double ms() const;
  /// Time of the weights and the cache at the rate of a copy.
  double memory_limit_ms() const { return (weight_bytes + cache_bytes) / (gpu->copy_gbs * 1e6); }
  double tokens_per_second() const;
  const LineCost& line(KernelKind line) const { return lines[static_cast<std::size_t>(line)]; }
};

/// Returns the cost of `calls`, those of a step of `c`.
Prediction predict(const StepCase& c, const Device& gpu, std::span<const KernelCall> calls);

/// A table, with the total, the rate and MFU in both conventions.
void print(std::ostream& out, const Prediction& prediction);
/// One object per line, with the fields of step_gpu_bench.
void print_json(std::ostream& out, const Prediction& prediction);

/// Compares the steps that step_gpu_bench wrote to a file with their predictions: line by line if it timed the lines,
/// else by their totals. `gpu` has the constants; null: those of the device named in the file. Throws DataError, with
/// the line, for other files.
void compare(std::ostream& out, const std::string& file, const Device* gpu);

}  // namespace trireme::bench

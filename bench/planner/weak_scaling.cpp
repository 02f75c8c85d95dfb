// Predicts the weak scaling of Megatron-LM's paper (Shoeybi et al. 2019, arXiv:1909.08053, figure 5) for this program
// on clusters of the planner, with overlaps and without:
//   planner_weak_scaling [CLUSTER ...]

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/model/presets.hpp"
#include "src/plan/step/step_prediction.hpp"

namespace trireme::bench {
namespace {

struct Size {
  const char* model;
  int tensor_ranks;
};
constexpr Size sizes[] = {{"gpt2-1.2b", 1}, {"gpt2-2.5b", 2}, {"gpt2-4.2b", 4}, {"gpt2-8.3b", 8}};

/// Micro-batches of 8, one a step on each data rank.
plan::Job job_of(const Size& size, int data_ranks, bool overlaps, bool recomputes) {
  constexpr std::int64_t micro_batch = 8;
  plan::Job job{model::preset(size.model), {}, {}, {size.tensor_ranks * data_ranks, size.tensor_ranks, 1}};
  job.execution.dtype = DType::bf16;
  job.execution.micro_batch_size = micro_batch;
  job.options.global_batch_size = micro_batch * data_ranks;
  if (recomputes) job.execution.recomputation.granularity = model::RecomputeGranularity::full;
  job.execution.parallel.async_tensor_all_reduce = overlaps;
  job.execution.parallel.data_parallel.overlap_reduce = overlaps;
  return job;
}

/// One row per model, alone and with 64 data ranks. Efficiencies are model FLOP/s per GPU relative to the first row.
void print_table(plan::StepPredictor& predictor, bool overlaps, bool recomputes) {
  fmt::print("\n{}, {}{}\n\n", predictor.cluster().name, overlaps ? "overlaps on" : "overlaps off",
             recomputes ? ", full recomputation" : "");
  fmt::print(
      "| model | tensor ranks | alone: ms | TFLOP/s | efficiency | 64 data ranks: ms | TFLOP/s | efficiency "
      "| exposed: tensor | gradients |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  double first = 0;
  for (const Size& size : sizes) {
    std::string row;
    plan::StepPrediction prediction;
    for (const int data_ranks : {1, 64}) {
      prediction = predictor.predict(job_of(size, data_ranks, overlaps, recomputes));
      const double tflops = prediction.model_flops / (data_ranks * size.tensor_ranks) / (prediction.step_ms * 1e9);
      if (first == 0) first = tflops;
      row += fmt::format(" {:.0f} | {:.0f} | {:.0f} % |", prediction.step_ms, tflops, 100 * tflops / first);
    }
    const auto share = [&](plan::Traffic kind) {
      return 100 * prediction.work.of(kind).exposed_ms / prediction.step_ms;
    };
    fmt::print("| {} | {} |{} {:.1f} % | {:.1f} % |\n", size.model, size.tensor_ranks, row,
               share(plan::Traffic::tensor), share(plan::Traffic::gradients));
  }
}

int run(const std::vector<std::string>& clusters) {
  for (const std::string& name : clusters) {
    plan::StepPredictor predictor(plan::cluster_preset(name));
    // A V100 of 32 GB cannot hold all activations.
    const bool recomputes = name == "dgx-2h";
    for (const bool overlaps : {false, true}) print_table(predictor, overlaps, recomputes);
  }
  return 0;
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> names(argv + 1, argv + argc);
    return trireme::bench::run(names.empty() ? std::vector<std::string>{"dgx-2h", "dgx-h100", "dgx-h200"} : names);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}

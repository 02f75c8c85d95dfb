// Fits the planner's constants to published runs, and predicts the weak scaling of Megatron-LM's paper:
//
//   planner_bench fit FILE.csv                Fits to half of the runs and prints the errors on the other half, then to
//                                             all. The halves are every second row of each source and generation.
//   planner_bench weak-scaling [CLUSTER...]   Shoeybi et al. 2019, arXiv:1909.08053, figure 5, for this program on
//                                             clusters of the planner, with overlaps and without.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "src/base/check.hpp"
#include "src/model/presets.hpp"
#include "src/plan/cases/run_prediction.hpp"
#include "src/plan/step/step_prediction.hpp"

namespace trireme::bench {
namespace {

using plan::FittedShares;
using plan::PublishedRun;
using Member = double FittedShares::*;
using Runs = std::vector<const PublishedRun*>;

std::string generation_of(const PublishedRun& run) { return plan::published_cluster(run.cluster).generation; }

/// Constants of a generation, four of them. Too few V100 runs depend on the network, and no other runs are unfused.
std::vector<Member> members_of(const std::string& generation) {
  return {&FittedShares::product, &FittedShares::memory, &FittedShares::node,
          generation == "V100" ? &FittedShares::unfused : &FittedShares::network};
}

double relative_error(const PublishedRun& run, const FittedShares& shares) {
  plan::PublishedCluster cluster = plan::published_cluster(run.cluster);
  cluster.shares = shares;
  const plan::PublishedCosts costs(cluster, run.fp8);
  return plan::predict_run(run, costs).seconds / run.published_seconds().value() - 1;
}

/// Pseudo-Huber loss of the errors' logarithms, linear beyond 3 %, plus a weak prior towards usual shares for constants
/// that the runs do not determine.
double loss(const Runs& runs, const FittedShares& shares, const std::vector<Member>& members) {
  constexpr double pull = 0.02, large = 0.03;
  const FittedShares usual;
  double sum = 0;
  for (const PublishedRun* run : runs) {
    sum += 2 * large * large * (std::hypot(1, std::log1p(relative_error(*run, shares)) / large) - 1);
  }
  for (const Member member : members) sum += pull * std::pow(std::log(shares.*member / usual.*member), 2);
  return sum;
}

/// Coordinate descent, halving the step if no constant improves.
FittedShares fit(const Runs& runs, const std::vector<Member>& members) {
  FittedShares best;
  double least = loss(runs, best, members);
  for (double step = 0.2; step > 0.002;) {
    const double before = least;
    for (const Member member : members) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        FittedShares tried = best;
        tried.*member *= factor;
        const double value = loss(runs, tried, members);
        if (value < least) {
          least = value;
          best = tried;
        }
      }
    }
    if (least == before) step /= 2;
  }
  return best;
}

struct Half {
  std::map<std::string, Runs> by_generation;
};

/// Runs with a published time, in two halves.
std::vector<Half> halves_of(const std::vector<plan::PublishedRow>& rows) {
  std::vector<Half> halves(2);
  std::map<std::string, std::size_t> count;
  for (const plan::PublishedRow& row : rows) {
    if (!row.run || !row.run->published_seconds()) continue;
    const std::string generation = generation_of(*row.run);
    const std::size_t number = count[generation + row.run->text.at("source")]++;
    halves[number % 2].by_generation[generation].push_back(&*row.run);
  }
  return halves;
}

struct Errors {
  std::vector<double> percent;
  void add(double relative) { percent.push_back(100 * std::abs(relative)); }
  void print(const std::string& name) {
    std::ranges::sort(percent);
    const double mean = std::accumulate(percent.begin(), percent.end(), 0.0) / static_cast<double>(percent.size());
    fmt::print("  {:<56} {:>3} rows: mean {:4.1f} %, median {:4.1f} %, worst {:4.1f} %\n", name.substr(0, 56),
               percent.size(), mean, percent[percent.size() / 2], percent.back());
  }
};

/// Fits on some runs and prints the errors on others.
void report(const Half& fitted, const Half& other, const std::string& title) {
  fmt::print("{}:\n", title);
  std::map<std::string, Errors> by_source;
  Errors grids, sharded;
  for (const auto& [generation, runs] : fitted.by_generation) {
    const FittedShares shares = fit(runs, members_of(generation));
    fmt::print("  {}: product {:.3f}, memory {:.3f}, node {:.3f}, network {:.3f}, unfused {:.3f}\n", generation,
               shares.product, shares.memory, shares.node, shares.network, shares.unfused);
    const auto found = other.by_generation.find(generation);
    if (found == other.by_generation.end()) continue;
    for (const PublishedRun* run : found->second) {
      const double error = relative_error(*run, shares);
      by_source[generation + ", " + run->text.at("source")].add(error);
      (run->is_fsdp() ? sharded : grids).add(error);
    }
  }
  for (auto& [source, errors] : by_source) errors.print(source);
  if (!grids.percent.empty()) grids.print("all with tensor, pipeline and data parallelism");
  if (!sharded.percent.empty()) sharded.print("all with ZeRO-2 or ZeRO-3 (FSDP)");
}

void fit_constants(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TRIREME_CHECK(file.is_open(), IoError, "{}: cannot be read", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<plan::PublishedRow> rows = plan::parse_published_runs(path, text);
  for (const plan::PublishedRow& row : rows) {
    if (!row.run) fmt::print(stderr, "{}\n", row.error);
  }
  const std::vector<Half> halves = halves_of(rows);
  Half all = halves[0];
  for (const auto& [generation, runs] : halves[1].by_generation) {
    Runs& both = all.by_generation[generation];
    both.insert(both.end(), runs.begin(), runs.end());
  }
  report(halves[0], halves[1], "fitted on the first half, errors on the second");
  report(halves[1], halves[0], "fitted on the second half, errors on the first");
  report(all, all, "fitted on all, errors on the same");
}

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

void predict_weak_scaling(const std::vector<std::string>& clusters) {
  for (const std::string& name : clusters) {
    plan::StepPredictor predictor(plan::cluster_preset(name));
    // A V100 of 32 GB cannot hold all activations.
    const bool recomputes = name == "dgx-2h";
    for (const bool overlaps : {false, true}) print_table(predictor, overlaps, recomputes);
  }
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string what = arguments.empty() ? "" : arguments.front();
  try {
    if (what == "fit" && arguments.size() == 2) {
      bench::fit_constants(arguments[1]);
    } else if (what == "weak-scaling") {
      const std::vector<std::string> clusters(arguments.begin() + 1, arguments.end());
      bench::predict_weak_scaling(clusters.empty() ? std::vector<std::string>{"dgx-2h", "dgx-h100", "dgx-h200"}
                                                   : clusters);
    } else {
      throw ConfigError("usage: planner_bench fit FILE.csv | weak-scaling [CLUSTER...]");
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}

// Fits the planner's constants to half of the runs in a file, and prints the errors on the other half; then to all. The
// halves are every second row of each source and generation.
//
//   planner_bench FILE.csv    published runs, as for `trireme plan --cases`
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
#include "src/plan/cases/run_prediction.hpp"

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

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  try {
    TRIREME_CHECK(argc == 2, ConfigError, "usage: planner_bench FILE.csv");
    bench::fit_constants(argv[1]);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}

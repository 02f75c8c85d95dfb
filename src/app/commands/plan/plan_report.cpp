#include "src/app/commands/plan/plan_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/app/job/job.hpp"
#include "src/app/job/memory_report.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/field_names.hpp"
#include "src/base/text.hpp"
#include "src/model/stage/model_parameters.hpp"

namespace trireme::app {
namespace {

using plan::RankedGrid;
using plan::Rejection;

/// Lists the overlaps of a layout: "tp/4 grad param p2p", where tp/4 are four chunks of rows.
std::string overlaps_of(const plan::Job& job) {
  const train::ParallelConfig& p = job.execution.parallel;
  std::vector<std::string> list;
  if (p.row_chunks > 1) list.push_back(fmt::format("tp/{}", p.row_chunks));
  if (p.data_parallel.overlap_reduce) list.emplace_back("grad");
  if (p.data_parallel.overlap_gather) list.emplace_back("param");
  if (p.overlap_p2p) list.emplace_back("p2p");
  return list.empty() ? "-" : fmt::format("{}", fmt::join(list, " "));
}

/// Speed of a step.
struct Speed {
  double tokens_per_second, tflops_per_rank;
};
Speed speed_of(const RankedGrid& grid) {
  const double seconds = grid.step.step_ms / 1000;
  return {static_cast<double>(grid.job.options.global_batch_size * grid.job.execution.sequence_length) / seconds,
          grid.step.model_flops / seconds / 1e12 / grid.job.grid.world_size()};
}

void print_head(const PlanReport& report) {
  const plan::Job& job = report.result.grids.front().job;
  const plan::Cluster& cluster = report.cluster;
  const auto billions = [](std::int64_t count) { return static_cast<double>(count) / 1e9; };
  fmt::print("model: {:.4g} billion parameters{}, sequences of {}, global batch {}, {}\n",
             billions(model::parameter_count(job.model)),
             job.model.experts.any()
                 ? fmt::format(", {:.4g} billion active", billions(model::active_parameter_count(job.model)))
                 : "",
             job.execution.sequence_length, job.options.global_batch_size, name_of(job.execution.dtype));
  fmt::print("cluster {}: {} of {} x {}; {} of a rank's memory are usable\n", printable(cluster.name),
             counted(report.nodes, "node"), cluster.ranks_per_node, printable(cluster.device.name),
             bytes_text(report.result.limit_bytes));
  if (job.model.experts.any()) fmt::print("{}\n", expert_load_text(job.execution.parallel));
  if (report.result.layouts > 0) {
    fmt::print("{} layouts considered, {} predicted, the memory of {} ranks rehearsed\n", report.result.layouts,
               report.result.predicted, report.result.rehearsed);
  }
}

void print_table(const PlanReport& report) {
  fmt::print(
      "\n{:>3} {:>3} {:>3} {:>5} {:>3} {:>3} {:>3} {:>5} {:>5}  {:<11} {:<9} {:>4} {:>2}  {:<19} {:>9} {:>10} {:>10} "
      "{:>7} "
      "{:>6}\n",
      "tp", "pp", "cp", "dp", "ep", "etp", "vpp", "micro", "count", "schedule", "recompute", "zero", "sp", "overlaps",
      "memory", "step ms", "tokens/s", "TFLOP/s", "MFU");
  for (const RankedGrid& grid : report.result.grids) {
    const plan::Job& job = grid.job;
    const Speed speed = speed_of(grid);
    fmt::print(
        "{:>3} {:>3} {:>3} {:>5} {:>3} {:>3} {:>3} {:>5} {:>5}  {:<11} {:<9} {:>4} {:>2}  {:<19} {:>9} {:>10.1f} "
        "{:>10.0f} "
        "{:>7.4g} "
        "{:>5.1f}%\n",
        job.grid.tensor_size(), job.grid.pipeline_size(), job.grid.context_size(), job.grid.data_size(),
        job.grid.expert_size(), job.grid.expert_tensor_size(), plan::chunks_of(job), job.execution.micro_batch_size,
        plan::micro_batches_of(job), job.grid.pipeline_size() > 1 ? parallel::name_of(plan::schedule_of(job)) : "-",
        name_of(job.execution.recomputation.granularity),
        static_cast<int>(job.execution.parallel.data_parallel.sharding),
        job.execution.parallel.sequence_parallel ? "y" : "-", overlaps_of(job), bytes_text(grid.max_bytes()),
        grid.step.step_ms, speed.tokens_per_second, speed.tflops_per_rank,
        100 * speed.tflops_per_rank / report.cluster.device.peak_tflops);
  }
  fmt::print(
      "micro, count: samples of a micro-batch and micro-batches of a data rank; memory: of the fullest rank; TFLOP/s: "
      "a "
      "rank's\nmodel FLOPs, forward and backward, full attention, nothing recomputed; MFU: their share of {:g} "
      "TFLOP/s; tp/N:\n--tp-comm-overlap-chunks N\n",
      report.cluster.device.peak_tflops);
}

void print_part(const char* name, double ms, double step_ms, double hidden_ms = 0) {
  if (ms < 0.005 && hidden_ms < 0.005) return;
  fmt::print("  {:<34}{:>11.2f} ms {:>5.1f} %{}\n", name, ms, 100 * ms / step_ms,
             hidden_ms >= 0.005 ? fmt::format(", and {:.2f} ms overlapped", hidden_ms) : "");
}

void print_parts(const RankedGrid& best) {
  const plan::StepPrediction& step = best.step;
  const plan::WorkTime& work = step.work;
  fmt::print("\nstep of the best: {:.2f} ms, on its rank with the most work\n", step.step_ms);
  print_part("GEMMs", work.products, step.step_ms);
  print_part("attention", work.attention, step.step_ms);
  print_part("memory-bound kernels", work.memory_bound, step.step_ms);
  print_part("optimizer", work.optimizer, step.step_ms, work.hidden_update);
  print_part("launch gaps and host", work.gaps, step.step_ms);
  for (int kind = 0; kind < plan::traffic_count; ++kind) {
    const auto traffic = static_cast<plan::Traffic>(kind);
    const plan::TrafficTime& time = work.of(traffic);
    print_part(fmt::format("communication: {}", plan::name_of(traffic)).c_str(), time.exposed_ms, step.step_ms,
               time.hidden_ms);
  }
  print_part("bubble: waits for other stages", step.bubble_ms, step.step_ms);
  if (step.recompute_ms >= 0.005) fmt::print("  of this {:.2f} ms of work are recomputation\n", step.recompute_ms);
  for (std::size_t stage = 0; stage < best.memory.size(); ++stage) {
    const train::MemoryEstimate& m = best.memory[stage];
    fmt::print("memory of a rank{}: {}: parameters {}, gradients {}, optimizer {}, activations {}, others {}\n",
               best.memory.size() > 1 ? fmt::format(" of stage {}", stage) : "", bytes_text(m.total()),
               bytes_text(m.parameters), bytes_text(m.gradients + m.gradient_work), bytes_text(m.optimizer),
               bytes_text(m.activations), bytes_text(m.work + m.messages + m.batches + m.kernels));
    if (m.host() == 0) continue;
    fmt::print("  and {} of host memory: optimizer {}, activations {}\n", bytes_text(m.host()),
               bytes_text(m.host_optimizer), bytes_text(m.host_activations));
  }
}

std::string axes_text(const parallel::ProcessGrid& grid) {
  return fmt::format("tp {} pp {} cp {} dp {}", grid.tensor_size(), grid.pipeline_size(), grid.context_size(),
                     grid.data_size());
}

/// Returns a line for each reason: the number of grids it excludes, and the one closest to acceptance.
std::vector<std::string> reasons_of(const plan::SearchResult& result) {
  std::map<std::string, std::vector<const Rejection*>> groups;
  for (const Rejection& rejection : result.rejections) groups[rejection.reason].push_back(&rejection);
  std::vector<std::string> lines;
  for (const auto& [reason, rejections] : groups) {
    const Rejection& least = **std::ranges::min_element(rejections, {}, [](const Rejection* r) { return r->amount; });
    std::string detail;
    if (least.kind == Rejection::Kind::memory) {
      detail = fmt::format(", at least {} a rank of {}", bytes_text(least.amount), bytes_text(result.limit_bytes));
    } else if (least.kind == Rejection::Kind::slower) {
      detail = fmt::format(", by at least {:.0f} %", std::floor(100 * least.amount));
    }
    lines.push_back(with_flags(fmt::format("{}: {}{} ({}{})", counted(std::ssize(rejections), "grid"), reason, detail,
                                           rejections.size() == 1 ? "" : "the nearest: ", axes_text(least.grid))));
  }
  return lines;
}

}  // namespace

void check_found(const plan::SearchResult& result) {
  if (!result.grids.empty()) return;
  throw ConfigError("no grid fits:\n  {}", fmt::join(reasons_of(result), "\n  "));
}

void print_text(const PlanReport& report) {
  print_head(report);
  print_table(report);
  print_parts(report.result.grids.front());
  if (!report.result.rejections.empty()) {
    fmt::print("\nnot proposed\n");
    for (const std::string& line : reasons_of(report.result)) fmt::print("  {}\n", line);
  }
  fmt::print("\ntrireme train --data-path CORPUS.h5 --train-iters N --lr X {}\n", shell_words(report.train_options));
}

std::string batch_file_of(const PlanReport& report) {
  const RankedGrid& best = report.result.grids.front();
  const plan::Cluster& cluster = report.cluster;
  const bool has_gpus = cluster.cores_per_node == 0;
  const Speed speed = speed_of(best);
  return fmt::format(
      "#!/bin/bash\n"
      "# Predicted on {}: a step of {:.1f} ms, {:.0f} tokens/s, {:.1f} model TFLOP/s a rank, {} of memory.\n"
      "# Place it beside environment.sh and lives.sh, in the folder jobs of Trireme, or set TRIREME_JOBS to that "
      "folder.\n"
      "# usage: sbatch FILE FOLDER --data-path CORPUS.h5 --train-iters N --lr X [OPTION_OF_TRAIN...]\n"
      "#SBATCH --job-name=trireme\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node={}\n"
      "{}"
      "#SBATCH --exclusive\n"
      "#SBATCH --time=24:00:00\n"
      "#SBATCH --signal=B:USR1@600\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "#SBATCH --output=%x-%j.log\n"
      "\n"
      "jobs=${{TRIREME_JOBS:-$(dirname \"$(scontrol show job \"$SLURM_JOB_ID\" | sed -n 's/^ *Command=\\([^ "
      "]*\\).*/\\1/p' | head -n 1)\")}}\n"
      "source \"$jobs/environment.sh\"\n"
      "source \"$jobs/lives.sh\"\n"
      "run_life \"$1\" {} --backend {} \"${{@:2}}\"\n",
      cluster.name, best.step.step_ms, speed.tokens_per_second, speed.tflops_per_rank, bytes_text(best.max_bytes()),
      report.nodes, cluster.ranks_per_node,
      has_gpus
          ? fmt::format("#SBATCH --gpus-per-node={}\n#SBATCH --cpus-per-task=12\n", cluster.ranks_per_node)
          : fmt::format("#SBATCH --cpus-per-task={}\n", std::max(1, cluster.cores_per_node / cluster.ranks_per_node)),
      shell_words(report.train_options), has_gpus ? "cuda" : "cpu");
}

}  // namespace trireme::app

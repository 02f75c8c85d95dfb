// A layout of `trireme train` on this machine's CPU: the time of a step and the memory of every rank, measured and
// predicted by the planner. Takes the options of `trireme train`, and runs the same steps.
//
//   mpirun -np 2 layout_bench --calibrate kernels.jsonl --calibrate collectives.jsonl --tp 2 ... > line.json
//
// Prints one object: "layout"; "step_ms" the median, least and greatest step after the first two; "predicted_ms" and
// its parts; "memory", the peak bytes of each rank's allocator, and "predicted_memory".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "io/json/plan_json.hpp"
#include "mpi/run_main.hpp"
#include "src/app/commands/train/train_session.hpp"
#include "src/app/job/command_line.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/plan/step/step_prediction.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme {
namespace {

/// Returns the milliseconds of a run's steps except the first two, ascending. Also runs an evaluation, which takes
/// additional memory.
std::vector<double> run_steps(app::TrainSession& session, const data::SampleSplits& data, std::int64_t steps) {
  constexpr std::int64_t warm_up = 2;
  std::vector<double> times_ms;
  for (std::int64_t step = 0; step < steps; ++step) {
    const double ms = session.trainer().step(*data.train).elapsed_ms;
    if (step >= warm_up) times_ms.push_back(ms);
  }
  session.trainer().evaluate(*data.train, 0, 1);
  std::ranges::sort(times_ms);
  return times_ms;
}

/// This machine's cores and links as measured in `files`.
plan::Cluster calibrated_cluster(const std::vector<std::string>& files, const app::Job& job, DType dtype) {
  plan::Cluster cluster = plan::cluster_preset("cpu");
  cluster.ranks_per_node = job.node.local_size;
  cluster.cores_per_node = cores_of_rank(1);
  return plan::calibrated(cluster, io::read_calibration(files), dtype);
}

std::string parts_of(const plan::StepPrediction& p) {
  const plan::WorkTime& work = p.work;
  std::string text = fmt::format(
      R"("products_ms": {:.1f}, "attention_ms": {:.1f}, "memory_bound_ms": {:.1f}, "optimizer_ms": {:.1f}, )"
      R"("gaps_ms": {:.1f}, "bubble_ms": {:.1f})",
      work.products, work.attention, work.memory_bound, work.optimizer, work.gaps, p.bubble_ms);
  for (int kind = 0; kind < plan::traffic_count; ++kind) {
    const auto traffic = static_cast<plan::Traffic>(kind);
    text += fmt::format(R"(, "{}_ms": {:.1f})", plan::name_of(traffic), work.of(traffic).exposed_ms);
  }
  return text;
}

int run(mpi::MpiEnvironment& environment, const std::vector<std::string>& arguments) {
  app::Options options("layout_bench", "Measures and predicts steps of a layout on the CPU.");
  app::RunConfigReader reader(options);
  std::string name;
  std::vector<std::string> calibration;
  options.section("Benchmark");
  options.add("layout", &name, "NAME", "Name of the layout in the output.");
  options.add("calibrate", &calibration, "FILE", "Measurements of this machine.");
  if (app::asks_for_help(arguments) && environment.rank() != 0) return 0;
  if (!options.parse(arguments)) return 0;
  app::Job job(environment, options, reader.parsed().parallel.grid, reader.parsed().device);
  const app::RunConfig& config = reader.settle(job.grid.data_size());
  app::TrainPlan plan = app::make_plan(job, config);
  const data::SampleSplits data = app::make_data(*job.world, plan, config.data.cache_path);
  const train::MemoryEstimate estimate = train::estimate_memory(*job.backend, plan.model, config.execution_config(),
                                                                config.train_options(), job.grid, job.world->rank());
  std::vector<double> times_ms;
  std::size_t peak_bytes = 0;
  {
    app::TrainSession session(job, config, plan);
    session.restore();
    times_ms = run_steps(session, data, plan.iterations);
    peak_bytes = job.backend->peak_allocated_bytes();
  }
  const auto memory = all_gather_number(*job.world, static_cast<std::int64_t>(peak_bytes));
  const auto predicted_memory = all_gather_number(*job.world, static_cast<std::int64_t>(estimate.allocated()));
  if (!job.is_root()) return 0;
  const plan::StepPrediction prediction =
      plan::predict_step(calibrated_cluster(calibration, job, config.precision.dtype),
                         {plan.model, config.execution_config(), config.train_options(), job.grid});
  fmt::print(R"({{"layout": "{}", "ranks": {}, "step_ms": [{:.2f}, {:.2f}, {:.2f}], "predicted_ms": {:.2f}, {}, )"
             R"("memory": [{}], "predicted_memory": [{}]}})"
             "\n",
             name, job.world->size(), times_ms[times_ms.size() / 2], times_ms.front(), times_ms.back(),
             prediction.step_ms, parts_of(prediction), fmt::join(memory, ", "), fmt::join(predicted_memory, ", "));
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return trireme::mpi::run_main(
      argc, argv, [&](trireme::mpi::MpiEnvironment& environment) { return trireme::run(environment, arguments); });
}

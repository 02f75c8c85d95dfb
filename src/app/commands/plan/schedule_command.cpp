#include "src/app/commands/plan/schedule_command.hpp"

#include <fmt/ranges.h>

#include "src/plan/drawing.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::app {
namespace {

/// Returns the micro-batches of an update on one data rank, given by their number or by sizes of batches.
int micro_batches_of(const PlanOptions& options) {
  const std::optional<std::int64_t>& batch = options.batch.global_batch_size;
  TRIREME_CHECK(options.micro_batches.has_value() != batch.has_value(), ConfigError,
                "give either --micro-batches, or --global-batch-size with --micro-batch-size and --data-parallel-size");
  if (options.micro_batches) return *options.micro_batches;
  return static_cast<int>(
      train::micro_batches_of(*batch, options.batch.micro_batch_size, options.data_ranks.value_or(1)));
}

}  // namespace

void check_schedule_size(int stages, int chunks, int micro_batches) {
  constexpr double max_cells = 5e6;
  const double cells = 3.0 * stages * chunks * (micro_batches + 2.0 * stages);
  TRIREME_CHECK(cells <= max_cells, ConfigError,
                "--pp {} x --vpp {} x {} micro-batches: the schedule has about {:.1e} cells, more than the {:.0e} that "
                "can be shown; choose fewer of them",
                stages, chunks, micro_batches, cells, max_cells);
}

void show_schedule(const PlanOptions& options) {
  const int stages = options.parallel.grid.pipeline, chunks = options.parallel.grid.split.chunks.value_or(1);
  const int micro_batches = micro_batches_of(options);
  const parallel::ScheduleKind kind = parallel::schedule_for(options.parallel.schedule, chunks);
  check_schedule_size(stages, chunks, micro_batches);
  const parallel::Schedule schedule = parallel::make_schedule(kind, stages, micro_batches, chunks);
  const plan::Simulation simulation = plan::simulate(schedule, plan::ScheduleTimes::uniform(schedule, {}));
  fmt::print("{}: {} stages{}, {} micro-batches\n", parallel::to_string(kind), stages,
             chunks > 1 ? fmt::format(" of {} chunks", chunks) : "", micro_batches);
  fmt::print("{}", plan::text_of(simulation, schedule));
  fmt::print(
      "F forward (time 1), B backward (2), I its input half (1), W its weights half (1); {}\n"
      "time {:g}, of which work {:g}: bubble {:.1f} % of the work; chunks in flight at the most, by rank: {}\n",
      chunks > 1 ? "F1.3: micro-batch 3 of chunk 1" : "F3: micro-batch 3", simulation.makespan,
      simulation.makespan / (1 + simulation.bubble), 100 * simulation.bubble,
      fmt::join(simulation.peak_in_flight, ", "));
  if (!options.svg.empty()) write_text_file("svg", options.svg, plan::svg_of(simulation, schedule));
}

}  // namespace trireme::app

#include "src/app/commands/plan/plan_report.hpp"

#include <fmt/ranges.h>

#include "io/json/trace_json.hpp"
#include "io/posix/file.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/text_files.hpp"
#include "src/plan/drawing.hpp"
#include "src/plan/timeline.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::app {
namespace {

/// Returns the micro-batches of an update on one data rank, given by their number or by batch sizes.
int micro_batches_of(const PlanOptions& options) {
  const std::optional<std::int64_t>& batch = options.batch.global_batch_size;
  TRIREME_CHECK(options.micro_batches.has_value() != batch.has_value(), ConfigError,
                "give either --micro-batches, or --global-batch-size with --micro-batch-size and --data-parallel-size");
  if (options.micro_batches) return *options.micro_batches;
  return static_cast<int>(
      train::micro_batches_of(*batch, options.batch.micro_batch_size, options.data_ranks.value_or(1)));
}

/// Throws ConfigError if a schedule is too large for memory and the screen.
void check_schedule_size(int stages, int chunks, int micro_batches) {
  constexpr double max_cells = 5e6;
  const double cells = 3.0 * stages * chunks * (micro_batches + 2.0 * stages);
  TRIREME_CHECK(cells <= max_cells, ConfigError,
                "--pp {} x --vpp {} x {} micro-batches: the schedule has about {:.1e} cells, more than the limit of "
                "{:.0e}; choose fewer of them",
                stages, chunks, micro_batches, cells, max_cells);
}

/// Returns the schedule of a job. Throws ConfigError if it is too large to write.
parallel::Schedule shown_schedule(const plan::Job& job) {
  const int stages = job.grid.pipeline_size(), chunks = plan::chunks_of(job), count = plan::micro_batches_of(job);
  check_schedule_size(stages, chunks, count);
  return parallel::make_schedule(plan::schedule_of(job), stages, count, chunks);
}

}  // namespace

void show_schedule(const PlanOptions& options) {
  const int stages = options.parallel.grid.pipeline, chunks = options.parallel.grid.split.chunks.value_or(1);
  const int micro_batches = micro_batches_of(options);
  const parallel::ScheduleKind kind = parallel::schedule_for(options.parallel.schedule, chunks);
  check_schedule_size(stages, chunks, micro_batches);
  const parallel::Schedule schedule = parallel::make_schedule(kind, stages, micro_batches, chunks);
  const plan::Simulation simulation = plan::simulate(schedule, plan::ScheduleTimes::uniform(schedule, {}));
  fmt::print("{}: {} stages{}, {} micro-batches\n", parallel::name_of(kind), stages,
             chunks > 1 ? fmt::format(" of {} chunks", chunks) : "", micro_batches);
  fmt::print("{}", plan::text_of(simulation, schedule));
  fmt::print(
      "F forward (time 1), B backward (2), I its input half (1), W its weights half (1); {}\n"
      "time {:g}, of which work {:g}: bubble {:.1f} % of the work; peak chunks in flight, by rank: {}\n",
      chunks > 1 ? "F1.3: micro-batch 3 of chunk 1" : "F3: micro-batch 3", simulation.makespan,
      simulation.makespan / (1 + simulation.bubble), 100 * simulation.bubble,
      fmt::join(simulation.peak_in_flight, ", "));
  if (!options.svg.empty()) write_text_file("svg", options.svg, plan::svg_of(simulation, schedule));
}

void write_schedule_svg(const std::string& path, const plan::RankedGrid& grid) {
  constexpr double width = 1800;  // pixels
  const parallel::Schedule schedule = shown_schedule(grid.job);
  write_text_file("svg", path, plan::svg_of(grid.step.schedule, schedule, {width / grid.step.schedule.makespan, "ms"}));
}

void write_predicted_trace(const std::string& path, const plan::RankedGrid& grid) {
  const parallel::Schedule schedule = shown_schedule(grid.job);
  std::string text = io::trace_begin;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const int rank = grid.job.grid.rank({.pipeline = stage});
    text += (stage == 0 ? "" : ",\n") + io::trace_events(plan::spans_of(grid.job, grid.step, stage),
                                                         grid.job.grid.describe(rank) + " (predicted)", rank);
  }
  write_text_file("trace-file", path, text + io::trace_end);
}

std::vector<plan::EventDifference> compare_with(const std::string& path, const plan::RankedGrid& grid) {
  constexpr std::int64_t max_bytes = std::int64_t{1} << 31;
  const std::vector<plan::TraceEvent> trace =
      io::read_trace(io::read_whole_file(path, max_bytes, io::Symlinks::follow), path);
  try {
    return plan::compare(grid.job, grid.step, trace);
  } catch (const ConfigError& error) {
    throw ConfigError("--compare {}: {}", path, error.what());
  }
}

void print_comparison(const std::string& path, const std::vector<plan::EventDifference>& rows) {
  constexpr std::size_t max_rows = 40;
  fmt::print("\nan iteration of {}, measured against predicted, the largest difference first\n", printable(path));
  fmt::print("{:<24} {:>6} {:>12} {:>12} {:>12} {:>8} {:>10} {:>10} {:>8}\n", "event", "rank", "measured ms",
             "predicted ms", "difference", "ratio", "mean", "predicted", "count");
  for (std::size_t i = 0; i < rows.size() && i < max_rows; ++i) {
    const plan::EventDifference& row = rows[i];
    const auto mean = [](double sum, double count) { return count > 0 ? fmt::format("{:.3f}", sum / count) : "-"; };
    fmt::print("{:<24} {:>6} {:>12.3f} {:>12.3f} {:>+12.3f} {:>8} {:>10} {:>10} {:>8.4g}\n", printable(row.name),
               row.rank, row.measured_ms, row.predicted_ms, row.difference_ms(),
               row.predicted_ms > 0 ? fmt::format("{:.3f}", row.measured_ms / row.predicted_ms) : "-",
               mean(row.measured_ms, row.measured_count), mean(row.predicted_ms, row.predicted_count),
               row.measured_count > 0 ? row.measured_count : row.predicted_count);
  }
  if (rows.size() > max_rows) fmt::print("... {} more\n", rows.size() - max_rows);
}

}  // namespace trireme::app

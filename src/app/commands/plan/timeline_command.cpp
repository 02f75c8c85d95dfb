#include "src/app/commands/plan/timeline_command.hpp"

#include <fmt/format.h>

#include <cmath>

#include "io/json/trace_json.hpp"
#include "io/posix/file.hpp"
#include "src/app/commands/plan/schedule_command.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/text_file.hpp"
#include "src/plan/drawing.hpp"
#include "src/plan/timeline.hpp"

namespace trireme::app {
namespace {

/// Returns the schedule of a job. ConfigError if it is too large to be written.
parallel::Schedule shown_schedule(const plan::Job& job) {
  const int stages = job.grid.pipeline_size(), chunks = plan::chunks_of(job), count = plan::micro_batches_of(job);
  check_schedule_size(stages, chunks, count);
  return parallel::make_schedule(plan::schedule_of(job), stages, count, chunks);
}

}  // namespace

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

void print_comparison(const std::string& path, const plan::RankedGrid& grid) {
  constexpr std::int64_t max_bytes = std::int64_t{1} << 31;
  const std::vector<plan::TraceEvent> trace =
      io::read_trace(io::read_whole_file(path, max_bytes, io::Symlinks::follow), path);
  std::vector<plan::EventDifference> rows;
  try {
    rows = plan::compare(grid.job, grid.step, trace);
  } catch (const ConfigError& error) {
    throw ConfigError("--compare {}: {}", path, error.what());
  }
  constexpr std::size_t max_rows = 40;
  fmt::print("\nan iteration of {}, measured beside predicted, the largest difference first\n", printable(path));
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

#include "src/app/commands/commands.hpp"

#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "src/app/commands/plan/cases_command.hpp"
#include "src/app/options/options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/plan/drawing.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::app {
namespace {

/// Returns the micro-batches of an update on one data rank, given by their number or by sizes of batches.
int micro_batches_of(const std::optional<int>& count, const std::optional<std::int64_t>& global_batch_size,
                     std::int64_t micro_batch_size, int data_ranks) {
  TRIREME_CHECK(count.has_value() != global_batch_size.has_value(), ConfigError,
                "give either --micro-batches, or --global-batch-size with --micro-batch-size and --data-parallel-size");
  if (count) return *count;
  return static_cast<int>(train::micro_batches_of(*global_batch_size, micro_batch_size, data_ranks));
}

/// Throws ConfigError where a schedule, a list in memory and a table on the screen, would be too large.
void check_size(int stages, int chunks, int micro_batches) {
  constexpr double max_cells = 5e6;
  const double cells = 3.0 * stages * chunks * (micro_batches + 2.0 * stages);
  TRIREME_CHECK(cells <= max_cells, ConfigError,
                "--pp {} x --vpp {} x {} micro-batches: the schedule has about {:.1e} cells, more than the {:.0e} that "
                "can be shown; choose fewer of them",
                stages, chunks, micro_batches, cells, max_cells);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  TRIREME_CHECK(!file.fail(), IoError, "--svg {}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace

int plan_command(const CommandLine& line) {
  bool show_schedule = false;
  int stages = 1;
  int chunks = 1;
  std::optional<parallel::ScheduleKind> asked;
  std::optional<int> count;
  std::optional<std::int64_t> global_batch_size;
  std::int64_t micro_batch_size = 1;
  int data_ranks = 1;
  std::string svg;
  std::string cases;
  bool json = false;
  Options options(line.command(), "Shows a job without running it: the schedule of its pipeline.");
  options.add_flag("show-schedule", &show_schedule,
                   "Print the timeline of each pipeline rank. A forward takes 1, a backward 2 (its halves 1 each), "
                   "messages no time.");
  options.add("svg", &svg, "FILE", "Also draw it.");
  options.section("Published runs");
  options.add("cases", &cases, "FILE",
              "Predict the training runs of a CSV file, a row each, and print the errors where it has their times.");
  options.add_flag("json", &json, "Print a line of JSON for each run instead of a table.");
  options.section("Pipeline");
  options.add("pipeline-model-parallel-size,pp", &stages, "N", "Ranks that divide the layers among them.",
              rank_count());
  options.add("num-virtual-stages-per-pipeline-rank,vpp", &chunks, "N", "Chunks of layers on each pipeline rank.",
              layer_count());
  declare_schedule(options, &asked);
  options.add("micro-batches", &count, "N", "Micro-batches of an update on one data rank.", at_least(1));
  options.add("global-batch-size", &global_batch_size, "N", "Instead: samples of an update on all data ranks.",
              countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Samples of a micro-batch.", countable());
  options.add("data-parallel-size", &data_ranks, "N", "Data ranks.", rank_count());
  if (!line.read(options)) return 0;
  if (!cases.empty()) return run_cases(cases, json);
  TRIREME_CHECK(show_schedule, ConfigError,
                "trireme plan shows schedules: give --show-schedule; see trireme plan --help");

  const int micro_batches = micro_batches_of(count, global_batch_size, micro_batch_size, data_ranks);
  const parallel::ScheduleKind kind = parallel::schedule_for(asked, chunks);
  check_size(stages, chunks, micro_batches);
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
  if (!svg.empty()) write_file(svg, plan::svg_of(simulation, schedule));
  return 0;
}

}  // namespace trireme::app

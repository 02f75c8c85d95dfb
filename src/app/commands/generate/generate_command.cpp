#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/folder.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/commands/generate/interactive.hpp"
#include "src/app/commands/generate/prompt_session.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/base/log.hpp"
#include "src/base/parse_number.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/data/template/template.hpp"

namespace trireme::app {
namespace {

/// Returns the step of the folder `path` that a command loads, -1 if there is none.
std::int64_t newest_step(const std::string& path) {
  std::int64_t newest = -1;
  if (!io::is_there(path)) return newest;
  const io::CheckpointLocation location = io::find_checkpoint(path);
  TRIREME_CHECK(location.step.empty(), ConfigError,
                "--follow: {} is the folder of one step. Try --load with the folder above it", path);
  for (const checkpoint::StepEntry& entry : io::CheckpointStore(location.root).steps()) {
    if (entry.replaced) continue;
    if (entry.latest) return entry.step;
    newest = std::max(newest, entry.step);
  }
  return newest;
}

/// Waits until a run has saved a step after `step`, and returns it. Collective: the ranks exchange a message a second,
/// so that none takes another for hung.
std::int64_t wait_for_step(Communicator& world, const std::string& path, std::int64_t step) {
  bool is_first = true;
  while (true) {
    std::int64_t newest = -1;
    collectively(world, [&] {
      if (world.rank() == 0) newest = newest_step(path);
    });
    newest = all_reduce_number(world, newest, ReduceOp::max);
    if (newest > step) return newest;
    if (std::exchange(is_first, false)) log::info("waiting for the next checkpoint in {}", path);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

int generate_command(const CommandLine& line) {
  GenerateOptions o;
  Options options(line.command(), "Continues a text, or the texts of a file, with a trained model.");
  o.declare(options);
  const std::optional<megatron::Translation> translation = megatron::read(line, options);
  if (!translation) return 0;
  o.settle(options);

  Job job(line.environment(), options, o.model.grid, o.model.device);
  translation->log();
  // Templates may show the date: the same on all ranks.
  const std::string now = broadcast_text(*job.world, fmt::format("{}", std::time(nullptr)), 0);
  data::jinja::set_time(parse_number<std::time_t>(now).value());
  const auto load = [&] {
    return load_model(job, o.model, [&](const model::ModelConfig& config, train::ExecutionConfig& execution) {
      translation->check_model(config);
      // Only of a stage of training, which generation does not run: the grid divides it.
      const GridOptions& grid = o.model.grid;
      const std::int64_t parts = std::int64_t{2} * grid.context * grid.tensor;
      execution.sequence_length = std::max(config.max_positions / parts, std::int64_t{1}) * parts;
    });
  };
  if (o.is_typed()) {
    run_interactive(job, *load(), o);
    return 0;
  }
  PromptSession session(job, o);
  if (!o.follow) {
    session.run(*load());
    return 0;
  }
  for (std::int64_t step = -1;;) {
    step = wait_for_step(*job.world, o.model.load, step);
    const std::unique_ptr<SavedModel> saved = load();
    step = saved->description.step;
    session.run(*saved);
  }
}

}  // namespace trireme::app

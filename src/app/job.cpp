#include "src/app/job.hpp"

#include <algorithm>

#include "io/corpus_store.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::app {

Job::Job(const mpi::MpiEnvironment& environment, const Options& options, const GridOptions& grid_options)
    : world(environment.make_world()),
      node(mpi::find_node_place(*world)),
      grid(world->size(), grid_options.tensor, grid_options.pipeline, grid_options.context) {
  std::string given = version();
  for (const auto& [name, value] : options.values()) given += "\n" + name + " = " + value;
  check_same_everywhere(*world, "the options or the program", given);
  collectively(*world, [&] {
    backend = make_backend(grid_options.backend, default_thread_count(node.ranks_sharing_cores), &backend_reason);
  });
  communicators = parallel::make_grid_communicators(grid, *world);
}

std::string Job::description() const {
  std::string text =
      fmt::format("{} rank{} (tensor {} x pipeline {} x context {} x data {}), {} on this machine; backend {}, {}",
                  grid.world_size(), grid.world_size() == 1 ? "" : "s", grid.tensor_size(), grid.pipeline_size(),
                  grid.context_size(), grid.data_size(), node.local_size, backend->name(), backend->description());
  if (grid.world_size() > 1) text += " a rank";
  if (!backend_reason.empty()) text += " (" + backend_reason + ")";
  return text;
}

std::string version() { return TRIREME_VERSION " (" TRIREME_COMMIT ")"; }

std::shared_ptr<data::TokenStore> open_corpus(Communicator& world, const std::string& path) {
  std::shared_ptr<data::TokenStore> store;
  collectively(world, [&] { store = std::make_shared<io::CorpusStore>(path); });
  return store;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(arguments, [](const std::string& a) { return a == "--help" || a == "-h"; });
}

}  // namespace trireme::app

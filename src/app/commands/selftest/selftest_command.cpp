#include <algorithm>
#include <cstdio>
#include <optional>

#include "io/json/selftest_json.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/selftest_files.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/job/job.hpp"
#include "src/app/options/field_names.hpp"
#include "src/app/options/options.hpp"
#include "src/backend/cuda_library.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "src/base/thread_pool.hpp"
#include "src/selftest/check.hpp"

namespace trireme::app {
namespace {

struct SelftestOptions {
  double seconds = 10;
  double min_share = 0.8;
  bool quick = false;
  std::string save;
  std::string json;
  GridOptions grid;
  DeviceOptions device;

  void declare(Options& options) {
    options.section("Test");
    options.add("seconds", &seconds, "X", "Time for which every rank repeats one GEMM and compares its results.",
                at_least(0));
    options.add(
        "min-share", &min_share, "X",
        "A rank is slow below this fraction of the median rate of all ranks. Tolerances are wider for bandwidths, "
        "latencies and files. A GPU must copy at 0.75 X of its memory bandwidth, and reach 0.5 X of its peak in "
        "GEMMs.",
        between(0, 1));
    options.add_flag("quick", &quick,
                     "Test only small sizes, within seconds: finds wrong results, but compares no rates.");
    options.add("save", &save, "DIR", "Folder of the run; tests its file system with 16 MiB per rank.");
    options.add("json", &json, "FILE", "Also write all results of all ranks.");
    options.section("Grid (data ranks: ranks / (tensor x pipeline x context))");
    grid.declare_sizes(options);
    device.declare(options);
  }
};

/// Returns the groups of the grid and the world, for the memory of the backend. Collective.
std::vector<selftest::Group> groups_of(Job& job) {
  const std::vector<std::string> nodes = all_gather_text(*job.world, std::to_string(job.node.first_rank));
  const auto spans_nodes = [&](const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      if (nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(ranks.front())]) return true;
    }
    return false;
  };
  std::vector<int> all;
  for (int rank = 0; rank < job.world->size(); ++rank) all.push_back(rank);
  Communicator* world = job.device_world ? job.device_world.get() : job.world.get();
  std::vector<selftest::Group> groups = {{"world", world, spans_nodes(all)}};
  for (const parallel::GroupKind kind : parallel::all_group_kinds) {
    groups.push_back(
        {name_of(kind), job.communicators.of(kind).get(), spans_nodes(job.grid.group(kind, job.world->rank()))});
  }
  return groups;
}

/// Looks for a GPU on every rank of a job on GPUs. Returns a report of the nodes without one: these have no backend,
/// and the other checks need all ranks. Collective.
selftest::Report find_missing_gpus(mpi::MpiCommunicator& world, BackendChoice backend) {
  const mpi::NodeLocation node = mpi::find_node_location(world);
  GpuReport gpu;
  if (const CudaExports* library = backend == BackendChoice::cpu ? nullptr : open_cuda_library(gpu.problem)) {
    gpu = library->take_inventory(node.local_rank);
  }
  const std::vector<selftest::Result> own = {
      {.check = "GPU", .passed = gpu.device >= 0, .detail = gpu.problem, .rank = world.rank(), .host = node_name()}};
  std::vector<selftest::Result> all;
  for (const std::string& text : all_gather_text(world, selftest::text_of(own))) {
    for (selftest::Result& result : selftest::results_of(text)) all.push_back(std::move(result));
  }
  const bool wants_gpus = backend == BackendChoice::cuda ||
                          (backend == BackendChoice::automatic && std::ranges::any_of(all, &selftest::Result::passed));
  if (!wants_gpus) return {};
  return selftest::judge(std::move(all));
}

/// Adds the versions of libraries and, on GPUs, the place and the ceilings of the GPU.
void describe_libraries(const Job& job, selftest::Context& context) {
  context.properties.push_back({"MPI", mpi::library_version()});
  if (job.backend->memory_is_host()) {
    context.properties.push_back({"backend", job.backend->name() + ", " + job.backend->description()});
    return;
  }
  std::string problem;
  if (const CudaExports* library = open_cuda_library(problem)) {
    const GpuReport gpu = library->take_inventory(job.node.local_rank);
    context.properties.push_back({"CUDA", gpu.versions});
    context.pci_address = gpu.pci_address;
    context.ceilings = gpu.ceilings;
  }
}

/// The file of results. It is opened before the test, so that a wrong path fails early.
class ResultsFile {
 public:
  /// Makes the folder of the run, and opens the file, if any, on rank 0. Collective.
  ResultsFile(const SelftestOptions& o, Communicator& world) : world_(world) {
    collectively(world_, [&] {
      if (world_.rank() != 0) return;
      if (!o.save.empty()) io::make_folders(o.save);
      if (!o.json.empty()) file_.emplace(o.json);
    });
  }
  /// Writes the file and renames it to its name. Collective.
  void write(const selftest::Report& report) {
    collectively(world_, [&] {
      if (!file_) return;
      io::FileOutput output(file_->path());
      const std::string text = io::selftest_json(report);
      output.write_bytes(std::as_bytes(std::span(text)));
      output.close();
      file_->commit();
    });
  }

 private:
  Communicator& world_;
  std::optional<io::TemporaryFile> file_;
};

/// Prints and writes the report. Returns the exit code of this rank. Only the printing rank returns that of the job:
/// mpirun may end the job and its output once a rank has failed. Collective.
int finish(const selftest::Report& report, ResultsFile& results, const Communicator& world) {
  const bool is_root = world.rank() == 0;
  if (is_root) {
    std::fputs(with_flags(selftest::table_of(report)).c_str(), stdout);
    std::fflush(stdout);
  }
  results.write(report);
  return static_cast<int>(report.passed() || !is_root ? ExitCode::success : ExitCode::environment);
}

}  // namespace

int selftest_command(const CommandLine& line) {
  SelftestOptions o;
  Options options(line.command(),
                  "Tests every rank's kernels, device, network and file system. Prints a table, the worst first, and "
                  "finally the bad nodes, separated by commas, or 'ok'. Exit code 4 if there are bad nodes.");
  o.declare(options);
  if (!line.read(options)) return 0;
  line.environment().engine()->set_max_wait(60 * o.device.timeout_minutes);
  const std::unique_ptr<mpi::MpiCommunicator> world = line.environment().make_world();
  if (const selftest::Report missing = find_missing_gpus(*world, o.device.backend); !missing.passed()) {
    ResultsFile results(o, *world);
    return finish(missing, results, *world);
  }
  Job job(line.environment(), options, o.grid, o.device);
  ResultsFile results(o, *world);
  std::unique_ptr<Backend> reference;
  collectively(*job.world, [&] {
    reference = make_backend(BackendChoice::cpu, default_thread_count(job.node.ranks_sharing_cores));
  });
  if (job.is_root()) log::info("{}", job.description());
  io::SelftestFiles files;
  selftest::Context context{.backend = *job.backend,
                            .reference = *reference,
                            .world = *job.world,
                            .groups = groups_of(job),
                            .place = {job.world->rank(), node_name(), job.node.first_rank, job.node.local_rank},
                            .pci_address = {},
                            .nvml = "libnvidia-ml.so.1",
                            .ceilings = {},
                            .properties = {},
                            .allow_tf32 = o.device.allow_tf32,
                            .quick = o.quick,
                            .burn_seconds = o.seconds,
                            .min_share = o.quick ? 0 : o.min_share,
                            .files = &files,
                            .folder = o.save};
  describe_libraries(job, context);
  return finish(selftest::run(selftest::all_checks(o.quick), context), results, *world);
}

}  // namespace trireme::app

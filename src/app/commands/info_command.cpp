#include "src/app/commands/commands.hpp"

#include <cstdio>

#include "io/arrow/tables.hpp"
#include "io/h5/file.hpp"
#include "mpi/error.hpp"
#include "mpi/node.hpp"
#include "src/app/job/job.hpp"
#include "src/app/options/options.hpp"
#include "src/backend/cuda_library.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::app {

int info_command(const CommandLine& line) {
  Options options(line.command(),
                  "Prints the version, features and libraries of this program, and the devices and ranks of this job.");
  if (!line.read(options)) return 0;
  const std::unique_ptr<mpi::MpiCommunicator> world = line.environment().make_world();
  const mpi::NodeLocation node = mpi::find_node_location(*world);
  const int threads = default_thread_count(node.ranks_sharing_cores);
  std::string reason;
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::automatic, threads, &reason,
                                                        {.world_rank = world->rank(), .local_rank = node.local_rank});
  GpuReport gpus;
  std::string cuda;
  if (const CudaExports* library = open_cuda_library(gpus.problem)) {
    gpus = library->take_inventory(node.local_rank);
    cuda = fmt::format("{}, kernels for {}", gpus.versions, library->architectures);
  }
  const std::string gpu = gpus.device < 0 ? "no GPU" : gpus.devices[static_cast<std::size_t>(gpus.device)];
  const std::vector<std::string> ranks = all_gather_text(
      *world, fmt::format("{}, number {} of {} there: {}, {}; {}", mpi::this_rank_and_host(), node.local_rank,
                          node.local_size, backend->name(), backend->description(), gpu));
  if (world->rank() != 0) return 0;
  std::printf("trireme   %s\n", version().c_str());
  std::printf("backend   %s, %s%s\n", backend->name().c_str(), backend->description().c_str(),
              reason.empty() ? "" : (" (" + reason + ")").c_str());
  if (!cuda.empty()) std::printf("CUDA      %s\n", cuda.c_str());
  if (!gpus.problem.empty()) std::printf("GPUs      none: %s\n", gpus.problem.c_str());
  for (const std::string& device : gpus.devices) std::printf("          %s\n", device.c_str());
  std::printf("MPI       %s\n", mpi::library_version().c_str());
  std::printf("HDF5      %s\n", io::h5::library_version().c_str());
  const std::string arrow = io::arrow_version();
  std::printf("Arrow     %s\n", arrow.empty() ? "not built in: Parquet is not read" : arrow.c_str());
  for (const std::string& rank : ranks) std::printf("%s\n", rank.c_str());
  return 0;
}

}  // namespace trireme::app

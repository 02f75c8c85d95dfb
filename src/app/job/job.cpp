#include "src/app/job/job.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "io/corpus/corpus_store.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "src/base/signals.hpp"
#include "src/base/text.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"
#include "src/prepare/corpora.hpp"

namespace trireme::app {

Job::Job(const mpi::MpiEnvironment& environment, const Options& options, const GridOptions& grid_options,
         const DeviceOptions& device)
    : world(environment.make_world()), node(mpi::find_node_location(*world)), grid(grid_options.of(world->size())) {
  environment.engine()->set_max_wait(60 * device.timeout_minutes);
  check_same_options(*world, options);
  make_backend(device);
  collectively(*world, [&] { device.check(options, *backend, backend_reason); });
  if (auto* devices = dynamic_cast<DeviceCommunicators*>(backend.get())) {
    transport_ = device.communicator.value_or(DeviceTransport::nccl);
    device_world = devices->make_world(world->split(0, world->rank(), "world"), transport_);
  }
  communicators = parallel::make_grid_communicators(grid, device_world ? *device_world : *world);
}

void Job::make_backend(const DeviceOptions& device) {
  collectively(*world, [&] {
    backend = trireme::make_backend(device.backend, default_thread_count(node.ranks_sharing_cores), &backend_reason,
                                    device.backend_options(world->rank(), node.local_rank));
  });
  move_handlers_to_alternate_stacks();  // those of libraries loaded by the backend
  node_ranks = world->split(node.first_rank, world->rank(), "node");
  const bool on_cpu = backend->memory_is_host();
  // The first rank of each kind, counted from the end so that the maximum finds it; 0 if none.
  const int counted_rank = world->size() - world->rank();
  std::array<int, 2> first = {on_cpu ? counted_rank : 0, on_cpu ? 0 : counted_rank};
  all_reduce_numbers(*world, first, ReduceOp::max);
  if (std::ranges::min(first) > 0) {
    const int cpu_rank = world->size() - first[0];
    throw EnvironmentError(
        "rank {} can use a GPU, and rank {} cannot: {}; start the ranks where there are GPUs, or use --backend cpu",
        world->size() - first[1], cpu_rank, broadcast_text(*world, backend_reason, cpu_rank));
  }
  if (!on_cpu) warn_of_single_cores();
  if (on_cpu && device.backend == BackendChoice::automatic) warn_of_unused_gpus();
  const std::string own = backend->device_identity();
  ranks_on_device =
      on_cpu ? node.local_size : static_cast<int>(std::ranges::count(all_gather_text(*node_ranks, own), own));
}

void Job::warn_of_single_cores() const {
  const bool single = cores_of_rank(node.ranks_sharing_cores) == 1;
  if (all_reduce_number(*world, single ? 1 : 0, ReduceOp::max) == 0) return;
  const std::vector<std::string> hosts = gather_distinct_text(*world, single ? node_name() : "", 0);
  if (!is_root()) return;
  log::warn(
      "each rank has a single core on {}: kernel launches, NCCL's threads, reading and saving share it, and the GPU "
      "waits; give each rank several (srun --cpus-per-task, mpirun --map-by slot:PE=4)",
      fmt::join(hosts, ", "));
}

void Job::warn_of_unused_gpus() const {
  const char* gpus = std::getenv("SLURM_GPUS_ON_NODE");
  if (!is_root() || gpus == nullptr || std::string_view(gpus) == "0") return;
  log::warn("the job has {} GPUs on a node, but computes on the cores: {}. With --backend cuda such a job ends here.",
            gpus, backend_reason);
}

std::string Job::description() const {
  std::string experts = grid.expert_size() > 1 ? fmt::format(", expert {}", grid.expert_size()) : "";
  if (grid.folds_experts()) experts += fmt::format(", expert tensor {}", grid.expert_tensor_size());
  std::string text =
      fmt::format("{} (tensor {} x pipeline {} x context {} x data {}{}), {} on this machine; backend {}, {}",
                  counted(grid.world_size(), "rank"), grid.tensor_size(), grid.pipeline_size(), grid.context_size(),
                  grid.data_size(), experts, node.local_size, backend->name(), backend->description());
  if (grid.world_size() > 1) text += " a rank";
  if (!backend_reason.empty()) text += " (" + backend_reason + ")";
  if (device_world && world->size() > 1) {
    text += transport_ == DeviceTransport::nccl ? "; communication by NCCL"
                                                : "; communication staged through host memory, which is slow";
  }
  return text;
}

std::int64_t Job::bytes_for_files() const {
  return static_cast<std::int64_t>(machine_memory_bytes()) / 8 / node.local_size;
}

std::string version() { return TRIREME_VERSION " (" TRIREME_COMMIT ")"; }

void check_same_options(Communicator& world, const Options& options) {
  std::string given = version();
  for (const auto& [name, value] : options.values()) given += "\n" + name + " = " + value;
  check_same_everywhere(world, "the options or the program", given);
}

std::vector<std::string> token_files(const data::TokenStore& corpus) {
  std::vector<std::string> files;
  if (const auto* source = dynamic_cast<const prepare::CorpusSource*>(&corpus)) {
    for (const data::TokenStore* owner : source->token_owners()) files.push_back(owner->name());
  }
  return files;
}

std::shared_ptr<data::TokenStore> open_corpus(Communicator& world, const std::string& path, CorpusCheck check,
                                              std::uint64_t seed) {
  constexpr std::int64_t sampled_blocks = 32;
  std::shared_ptr<io::CorpusStore> store;
  collectively(world, [&] {
    store = std::make_shared<io::CorpusStore>(path);
    const std::int64_t blocks = store->blocks();
    const bool all = check == CorpusCheck::full || blocks <= sampled_blocks;
    const std::int64_t checked = check == CorpusCheck::none ? 0 : all ? blocks : sampled_blocks;
    for (std::int64_t i = world.rank(); i < checked; i += world.size()) {
      const std::uint64_t draw = splitmix64(mix64(seed), static_cast<std::uint64_t>(i));
      const std::int64_t block = all ? i : static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(blocks));
      store->verify_block(block);
      store->release_block(block);
    }
  });
  return store;
}

data::BertVocabulary bert_vocabulary(const data::TokenStore& corpus) {
  TRIREME_CHECK(corpus.info().tokenizer == "wordpiece", DataError,
                "{} was made by tokenizer {}, but BERT reads WordPiece. Try to build it again with --tokenizer "
                "wordpiece --split-sentences",
                corpus.name(), corpus.info().tokenizer);
  return data::bert_vocabulary_of(data::wordpiece_from_payload(corpus.info().tokenizer_payload).tokens);
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

}  // namespace trireme::app

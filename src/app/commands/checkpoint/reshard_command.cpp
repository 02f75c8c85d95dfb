#include "src/app/commands/commands.hpp"

#include <algorithm>
#include <unordered_set>

#include "io/checkpoint/checkpoint_store.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/options/options.hpp"
#include "src/app/run_config/parallel_options.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/checkpoint/reshard.hpp"
#include "src/train/state_tensors.hpp"

namespace trireme::app {
namespace {

struct ReshardOptions {
  std::string load;
  std::string save;
  std::optional<std::int64_t> step;
  GridOptions grid;
  int data_ranks = 1;
  bool distributed_optimizer = false;
  std::optional<std::int64_t> bucket_elements;

  void declare(Options& options) {
    options.add("load", &load, "DIR", "Folder of checkpoints, of which the newest is read, or one step's folder.");
    options.add("ckpt-step", &step, "N", "The checkpoint of this iteration instead of the newest.", at_least(0));
    options.add("save", &save, "DIR", "Folder for the new checkpoint; replaces a step of the same number.");
    options.require({"load", "save"});
    grid.declare(options, "Grid whose files are written, one per rank; default one rank");
    options.add("data-parallel-size", &data_ranks, "N", "Data ranks.", rank_count());
    options.add_flag("use-distributed-optimizer", &distributed_optimizer,
                     "Split the state of a data group into equal shards, as ZeRO 1 does; otherwise distribute entire "
                     "tensors over the data ranks.");
    options.add(
        "ddp-bucket-size", &bucket_elements, "N",
        "With --use-distributed-optimizer: parameters of a bucket; each bucket is sharded separately; default all.",
        at_least(1));
  }

  parallel::ProcessGrid target() const {
    std::int64_t ranks = std::int64_t{grid.tensor} * grid.pipeline;
    for (const int size : {grid.context, data_ranks}) ranks = std::min<std::int64_t>(ranks, max_ranks + 1) * size;
    TRIREME_CHECK(ranks <= max_ranks, ConfigError,
                  "--tp {} x --pp {} x --cp {} x --data-parallel-size {} are {} files; the limit is {}", grid.tensor,
                  grid.pipeline, grid.context, data_ranks, ranks, max_ranks);
    return grid.of(static_cast<int>(ranks), data_ranks);
  }
};

/// Returns the files that the ranks of the grid would write: all weights, and the moments of those that have them in
/// the checkpoint. Muon keeps other moments for matrices than for the rest.
std::vector<checkpoint::TargetFile> target_files(const checkpoint::StepReader& step, const model::ModelConfig& config,
                                                 const train::ExecutionConfig& execution,
                                                 const parallel::ProcessGrid& grid) {
  std::vector<std::string> kinds;  // in the order in which they were written
  std::unordered_set<std::string> tensors;
  for (const checkpoint::Piece& piece : step.manifest().pieces) {
    const std::string kind = piece.tensor.substr(0, piece.tensor.find('/'));
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    tensors.insert(piece.tensor);
  }
  std::vector<checkpoint::TargetFile> files;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    checkpoint::TargetFile& file = files.emplace_back();
    for (const checkpoint::StateTensor& piece : train::state_pieces(config, execution, grid, rank)) {
      // Among many data ranks most shards hold nothing of most tensors.
      if (!piece.written_here || piece.data.numel() == 0) continue;
      for (const std::string& kind : kinds) {
        const std::string tensor = kind + "/" + piece.name;
        if (kind != "model" && !tensors.contains(tensor)) continue;
        file.push_back({.tensor = tensor,
                        .shape = piece.shape,
                        .slice = {.box = piece.box, .flat_begin = piece.flat_begin, .count = piece.data.numel()}});
      }
    }
  }
  return files;
}

}  // namespace

int checkpoint_reshard_command(const CommandLine& line) {
  ReshardOptions o;
  Options options(line.command(),
                  "Rewrites a checkpoint, optimizer state included, as the files that a job on another grid would have "
                  "written. Loading on another grid does not need this: it changes the number and size of the files. "
                  "Under mpirun the ranks share the files; each holds one tensor's piece at a time.");
  o.declare(options);
  if (!line.read(options)) return 0;
  TRIREME_CHECK(!o.bucket_elements || o.distributed_optimizer, ConfigError,
                "--ddp-bucket-size needs --use-distributed-optimizer: without shards there are no buckets");
  const parallel::ProcessGrid grid = o.target();

  const auto world = line.environment().make_world();
  OpenCheckpoint source = open_checkpoint(*world, o.load, {.step = o.step});
  const Attributes& attributes = source.description.attributes;
  const parallel::DataSharding sharding =
      o.distributed_optimizer ? parallel::DataSharding::optimizer : parallel::DataSharding::none;
  const train::ExecutionConfig execution{
      .dtype = trained_dtype(attributes),
      .vocabulary_multiple = o.grid.vocabulary_multiple,
      .padded_vocabulary_size = o.grid.padded_vocabulary,
      .recomputation = {},
      .parallel = {.pipeline = o.grid.pipeline_split(),
                   .schedule = {},
                   .data_parallel = {.sharding = sharding, .bucket_elements = o.bucket_elements.value_or(0)}}};
  const std::vector<checkpoint::TargetFile> files =
      target_files(*source.reader, model::config_from(attributes), execution, grid);

  std::unique_ptr<checkpoint::Store> store;
  collectively(*world, [&] { store = std::make_unique<io::CheckpointStore>(o.save); });
  checkpoint::reshard(*source.reader, *store, *world, files);
  // Reads the result back to check it.
  const std::unique_ptr<checkpoint::StepReader> written =
      checkpoint::open_checkpoint(*store, *world, store->step_name(source.description.step));
  log::info("{}: step {} in {}, read back and complete", written->description(), written->manifest().step,
            counted(std::ssize(written->manifest().files), "file"));
  return 0;
}

}  // namespace trireme::app

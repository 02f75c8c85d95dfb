#include "src/app/job/local_checkpoints.hpp"

#include <algorithm>
#include <optional>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/log.hpp"
#include "src/checkpoint/load.hpp"

namespace trireme::app {
namespace {

/// Longest `.branch`: some ten thousand attempts.
constexpr std::int64_t max_branch_bytes = 1 << 20;

/// Name of the file with the attempts of a run, in the folder of --save.
constexpr const char* branch_name = "/.branch";

/// Throws ConfigError if `folder` has checkpoints that are not local ones: a run would delete them.
void require_local_steps(io::CheckpointStore& store, const std::string& folder) {
  bool has_others = io::is_there(folder + branch_name);
  for (const checkpoint::StepEntry& entry : store.steps()) {
    try {
      has_others |= !checkpoint::lineage_of(store.open(entry.name)->manifest().attributes);
    } catch (const CheckpointError&) {  // damaged
    }
  }
  TRIREME_CHECK(!has_others, ConfigError,
                "--local-checkpoint-dir {} has checkpoints of --save, which local ones would replace: name a folder "
                "that each node has for itself",
                folder);
}

}  // namespace

LocalCheckpoints::LocalCheckpoints(const Job& job, const CheckpointOptions& options)
    : job_(job),
      options_(options),
      store_(options.local_folder),
      world_(job.world->split(0, job.world->rank(), "local checkpoints")),
      steps_(store_, *world_, job.node.first_rank) {
  try {
    steps_.lock([&] {
      require_local_steps(store_, options.local_folder);
      store_.reserve();
    });
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::io) throw;  // such as a lack of room: the writer warns of it
  }
}

std::string LocalCheckpoints::branch_path() const { return options_.save + branch_name; }

OpenCheckpoint LocalCheckpoints::open_start() {
  const OpenOptions source = options_.source(job_.bytes_for_files());
  const bool in_place = options_.goes_on_in_place() && !source.step;
  OpenCheckpoint start;
  if (in_place) {
    OpenOptions peek = source;
    peek.optional = true;
    peek.warns = peek.logs = false;
    peek.verification = checkpoint::Verification::while_reading;
    OpenCheckpoint shared;
    try {
      shared = open_checkpoint(*job_.world, options_.load, peek);
    } catch (const CheckpointError&) {  // on all ranks: no shared step is intact, but a local one may be
    }
    start = open_local(shared);
  }
  if (!start.reader) start = open_checkpoint(*job_.world, options_.load, source);
  if (!start.reader) return start;
  if (const auto stored = checkpoint::lineage_of(start.description.attributes)) lineage_.branch = stored->branch;
  if (start_ < 0 && in_place) lineage_.base = start.description.step;
  return start;
}

/// Empty if no local step continues from `shared`, the newest step of --load, which may be empty.
OpenCheckpoint LocalCheckpoints::open_local(const OpenCheckpoint& shared) {
  std::string found;
  collectively(*job_.world, [&] {
    if (!job_.is_root() || !io::is_there(branch_path())) return;
    std::int64_t newest = -1;  // even if it is damaged
    for (const checkpoint::StepEntry& entry : io::CheckpointStore(options_.load).steps()) {
      newest = std::max(newest, entry.step);
    }
    found = fmt::format("{} {}", newest, io::read_whole_file(branch_path(), max_branch_bytes));
  });
  found = broadcast_text(*job_.world, found, 0);
  if (found.empty()) return {};
  const std::size_t blank = found.find(' ');
  const std::int64_t newest = std::stoll(found.substr(0, blank));
  checkpoint::Branch branch;
  collectively(*job_.world, [&] {
    try {
      branch = checkpoint::Branch(found.substr(blank + 1));
    } catch (const CheckpointError& error) {
      throw CheckpointError("{}: {}. Without this file the run continues from the newest checkpoint of --save",
                            branch_path(), error.what());
    }
  });
  const std::int64_t saved = shared.reader ? shared.description.step : -1;
  if (shared.reader) {
    const auto lineage = checkpoint::lineage_of(shared.description.attributes);
    if (!lineage || !branch.passes(lineage->branch, saved)) return {};
  }
  OpenCheckpoint start;
  start.reader = steps_.open([&](const checkpoint::Manifest& manifest) {
    const auto lineage = checkpoint::lineage_of(manifest.attributes);
    return manifest.step > saved && lineage && lineage->base <= newest && branch.passes(lineage->branch, manifest.step);
  });
  if (!start.reader) return {};
  const checkpoint::Manifest& manifest = start.reader->manifest();
  steps_.fetch(*start.reader, checkpoint::files_of_blobs(manifest));
  collectively(*job_.world, [&] {
    check_attributes(manifest.attributes, manifest.step);
    start.description = checkpoint::read_description(*start.reader);
  });
  start_ = manifest.step;
  lineage_.base = saved;
  log::info("loading {}, a local checkpoint: iteration {}", start.reader->description(), start_);
  return start;
}

void LocalCheckpoints::fetch(checkpoint::StepReader& start, std::span<const checkpoint::StateTensor> tensors) {
  if (start_ >= 0) steps_.fetch(start, checkpoint::files_of(start.manifest(), tensors));
}

void LocalCheckpoints::add_to(train::CheckpointWriterOptions& options, std::int64_t iteration) {
  lineage_.branch.add(broadcast_text(*job_.world, io::unique_suffix(), 0), iteration);
  options.local = &steps_;
  options.local_start = start_;
  options.lineage = lineage_;
}

void LocalCheckpoints::record_attempt() {
  collectively(*job_.world, [&] {
    if (job_.is_root()) io::write_durably(branch_path(), lineage_.branch.text());
  });
}

}  // namespace trireme::app

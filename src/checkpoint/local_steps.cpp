#include "src/checkpoint/local_steps.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/checkpoint/file_copies.hpp"
#include "src/checkpoint/load.hpp"
#include "src/checkpoint/piece_reader.hpp"
#include "src/checkpoint/save.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::checkpoint {
namespace {

/// Returns whether the file is there with its size.
bool has_file(StepReader& step, std::size_t file) {
  try {
    return step.file_size(file) == step.manifest().files[file].size_bytes;
  } catch (const CheckpointError&) {
    return false;
  }
}

/// Chooses the copies by which each node gets the files that it needs and lacks. Nodes that send, and ranks of a node,
/// take turns. CheckpointError if no node has a file.
std::vector<FileCopy> plan_copies(const Manifest& manifest, const std::vector<std::vector<int>>& members,
                                  const std::vector<std::set<std::size_t>>& present,
                                  const std::vector<std::set<std::size_t>>& needed) {
  std::vector<FileCopy> copies;
  std::vector<std::size_t> sent(members.size()), received(members.size());
  const auto next = [&](std::vector<std::size_t>& turns, std::size_t node) {
    return members[node][turns[node]++ % members[node].size()];
  };
  for (std::size_t to = 0; to < members.size(); ++to) {
    for (const std::size_t file : needed[to]) {
      if (present[to].contains(file)) continue;
      std::size_t from = members.size();
      for (std::size_t node = 0; node < members.size(); ++node) {
        if (present[node].contains(file) && (from == members.size() || sent[node] < sent[from])) from = node;
      }
      TRIREME_CHECK(from < members.size(), CheckpointError, "no node has the file {} of the local step {}",
                    manifest.files[file].name, manifest.step);
      copies.push_back({file, next(sent, from), next(received, to)});
    }
  }
  return copies;
}

}  // namespace

LocalSteps::LocalSteps(Store& store, Communicator& world, int node)
    : store_(store), world_(world), node_of_(all_gather_number(world, node)) {
  std::map<int, int> numbers;
  for (std::size_t rank = 0; rank < node_of_.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(node_of_[rank], static_cast<int>(members_.size()));
    if (is_new) members_.emplace_back();
    node_of_[rank] = found->second;
    members_[static_cast<std::size_t>(found->second)].push_back(static_cast<int>(rank));
  }
  groups_.node = world.split(node_of(world.rank()), world.rank(), "node");
  groups_.leaders = world.split(groups_.node->rank() == 0 ? 0 : -1, world.rank(), "first ranks of nodes");
}

int LocalSteps::previous_node() const {
  const int nodes = static_cast<int>(members_.size());
  return (node_of(world_.rank()) + nodes - 1) % nodes;
}

void LocalSteps::lock(const std::function<void()>& lock) {
  collectively(world_, [&] {
    if (!leads()) return;
    try {
      lock();
    } catch (const EnvironmentError& error) {
      throw EnvironmentError("{}. Each node of each job needs a <local_checkpoint_dir> of its own", error.what());
    }
  });
}

void LocalSteps::prepare(std::span<const StateTensor> tensors, std::int64_t start) {
  lock([&] { store_.claim(0); });
  is_locked_ = true;
  keep_only({start});
  std::int64_t written_bytes = shard_overhead_bytes;
  for (const StateTensor& tensor : tensors) {
    if (tensor.written_here) written_bytes += static_cast<std::int64_t>(tensor.data.size_bytes());
  }
  const std::vector<std::int64_t> bytes = all_gather_number(world_, written_bytes);
  const std::set<int> stored = {node_of(world_.rank()), previous_node()};
  std::int64_t step_bytes = 0;
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (stored.contains(node_of(rank))) step_bytes += bytes[static_cast<std::size_t>(rank)];
  }
  // Two steps are kept while the next one is written; `start` already takes the place of one.
  lock([&] { store_.claim(step_bytes * (start >= 0 ? 2 : 3)); });
  previous_ = start;
}

void LocalSteps::save(const RunDescription& description, std::span<const StateTensor> tensors, std::int64_t also_kept) {
  std::vector<ShardContent> contents = shards_of(world_, description, tensors);
  write_step(store_, world_, description, contents, {}, &groups_);
  is_locked_ = true;
  std::unique_ptr<StepReader> step;
  collectively(world_, [&] { step = open_saved(description.step); });
  damaged_.clear();
  const Manifest& manifest = step->manifest();
  const std::set<int> stored = {node_of(world_.rank()), previous_node()};
  std::vector<std::size_t> files;
  stored_bytes_ = 0;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto file = std::ranges::find(manifest.files, shard_name(rank), &FileEntry::name);
    if (!stored.contains(node_of(rank)) || file == manifest.files.end()) continue;
    stored_bytes_ += file->size_bytes;
    if (leads()) files.push_back(static_cast<std::size_t>(file - manifest.files.begin()));
  }
  if (has_copies()) fetch(*step, files);
  keep_only({description.step, previous_, also_kept});
  previous_ = description.step;
}

std::unique_ptr<StepReader> LocalSteps::open(const std::function<bool(const Manifest&)>& accepts) {
  std::string found;
  collectively(world_, [&] {
    if (!leads()) return;
    for (const StepEntry& entry : store_.steps()) {
      if (entry.replaced) continue;
      try {
        const std::unique_ptr<StepReader> step = store_.open(entry.name);
        if (accepts(step->manifest())) found += fmt::format("{} {}\n", entry.step, step->manifest().digest);
      } catch (const CheckpointError& error) {
        log::warn("{}: another node's manifest is used, if there is one", error.what());
      }
    }
  });
  std::set<std::pair<std::int64_t, std::string>, std::greater<>> candidates;
  for (const std::string& text : all_gather_text(world_, found)) {
    for (std::string_view line : split(text, '\n')) {
      const std::optional<std::int64_t> step = take_number<std::int64_t>(line);
      if (step && !line.empty()) candidates.emplace(*step, line.substr(1));
    }
  }
  for (const auto& [number, digest] : candidates) {
    std::unique_ptr<StepReader> step = open_everywhere(number, digest);
    damaged_.clear();
    collectively(world_, [&] {
      for (const std::size_t file : intact_files(*step)) {
        try {
          verify_file(*step, file);
        } catch (const CheckpointError& error) {
          log::warn("{}: another copy is used, if there is one", error.what());
          damaged_.insert(file);
        }
      }
    });
    std::set<std::size_t> present;
    for (const std::set<std::size_t>& files : by_node(intact_files(*step))) present.insert(files.begin(), files.end());
    const std::size_t files = step->manifest().files.size();
    if (present.size() == files) return step;
    if (world_.rank() == 0) {
      log::warn("the local step {} is not used: {} of its {} files are on no node", number, files - present.size(),
                files);
    }
  }
  return nullptr;
}

void LocalSteps::fetch(StepReader& step, const std::vector<std::size_t>& files) {
  const std::vector<std::set<std::size_t>> present = by_node(intact_files(step));
  const std::vector<std::set<std::size_t>> needed = by_node({files.begin(), files.end()});
  const std::vector<FileCopy> copies = plan_copies(step.manifest(), members_, present, needed);
  copy_files(world_, store_, step, copies);
  for (const FileCopy& copy : copies) {
    if (node_of(copy.to) == node_of(world_.rank())) damaged_.erase(copy.file);
  }
}

void LocalSteps::clear() {
  if (!is_locked_) return;  // they may be another job's
  keep_only({});
  previous_ = -1;
}

void LocalSteps::keep_only(const std::set<std::int64_t>& steps) {
  collectively(world_, [&] {
    if (!leads()) return;
    for (const StepEntry& entry : store_.steps()) {
      if (!entry.replaced && !steps.contains(entry.step)) store_.remove(entry.name);
    }
  });
}

/// This rank's share of the files of its node that are there, except those found damaged.
std::set<std::size_t> LocalSteps::intact_files(StepReader& step) {
  std::set<std::size_t> files;
  const auto first = static_cast<std::size_t>(groups_.node->rank()),
             stride = static_cast<std::size_t>(groups_.node->size());
  for (std::size_t file = first; file < step.manifest().files.size(); file += stride) {
    if (!damaged_.contains(file) && has_file(step, file)) files.insert(file);
  }
  return files;
}

/// The files that the ranks of each node name.
std::vector<std::set<std::size_t>> LocalSteps::by_node(const std::set<std::size_t>& files) {
  std::vector<std::set<std::size_t>> all(members_.size());
  const std::vector<std::string> texts = all_gather_text(world_, fmt::format("{}", fmt::join(files, " ")));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const std::string_view word : split(texts[rank], ' ')) {
      all[static_cast<std::size_t>(node_of_[rank])].insert(parse_number<std::size_t>(word).value());
    }
  }
  return all;
}

/// Opens a step that some node has. The others get its manifest.
std::unique_ptr<StepReader> LocalSteps::open_everywhere(std::int64_t step, const std::string& digest) {
  const std::string name = store_.step_name(step);
  std::unique_ptr<StepReader> reader;
  collectively(world_, [&] {
    if (!leads()) return;
    try {
      reader = store_.open(name);
      if (reader->manifest().digest != digest) reader.reset();
    } catch (const CheckpointError&) {
      // It is not there.
    }
  });
  std::string text;
  if (leads()) {
    const std::vector<int> owners = all_gather_number(*groups_.leaders, reader ? 1 : 0);
    const auto owner = static_cast<int>(std::ranges::find(owners, 1) - owners.begin());
    text = broadcast_text(*groups_.leaders, reader ? to_text(reader->manifest()) : "", owner);
  }
  collectively(world_, [&] {
    if (leads() && !reader) store_.commit(store_.begin(step, 0, {}), manifest_from_text(text));
  });
  collectively(world_, [&] {
    reader = store_.open(name);
    TRIREME_CHECK(reader->manifest().digest == digest, CheckpointError, "{} has another manifest than other nodes",
                  reader->description());
    check_format(*reader);
    validate(reader->manifest());
  });
  return reader;
}

std::vector<std::size_t> files_of(const Manifest& manifest, std::span<const StateTensor> tensors) {
  std::multimap<std::string_view, const StateTensor*> by_name;
  for (const StateTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  std::set<std::size_t> files;
  for (const Piece& piece : manifest.pieces) {
    if (files.contains(piece.file)) continue;
    const auto [first, last] = by_name.equal_range(piece.tensor);
    for (auto found = first; found != last; ++found) {
      const StateTensor& tensor = *found->second;
      if (tensor.shape != piece.shape) continue;  // which loading refuses
      for_each_common_range(piece.slice, slice_of(tensor), [&](const ElementRange&) { files.insert(piece.file); });
    }
  }
  return {files.begin(), files.end()};
}

std::vector<std::size_t> files_of_blobs(const Manifest& manifest) {
  std::set<std::size_t> files;
  for (const Piece& blob : manifest.blobs) files.insert(blob.file);
  return {files.begin(), files.end()};
}

}  // namespace trireme::checkpoint

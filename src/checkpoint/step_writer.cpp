#include "src/checkpoint/step_writer.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/base/timer.hpp"
#include "src/checkpoint/file_copies.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::checkpoint {
namespace {

/// Writes one rank's files and returns their manifest, in which `file` counts the rank's own.
Manifest write_shards(Store& store, const std::string& staging, std::vector<ShardContent>& shards) {
  Manifest result;
  for (ShardContent& shard : shards) {
    const ShardFile written = store.write_shard(staging, shard.file_name, shard.datasets);
    for (std::size_t i = 0; i < shard.datasets.size(); ++i) {
      const bool is_piece = i < shard.pieces.size();
      Piece& piece = is_piece ? shard.pieces[i] : shard.blobs[i - shard.pieces.size()];
      piece.file = result.files.size();
      piece.offset_bytes = written.offsets_bytes[i];
      piece.digest = written.digests[i];
      (is_piece ? result.pieces : result.blobs).push_back(piece);
    }
    result.files.push_back(written.entry);
  }
  return result;
}

/// The manifest of what all ranks wrote, on rank 0. Files are in the order of their names.
Manifest gather_manifest(Communicator& world, const RunDescription& description, const Manifest& written) {
  struct Entry {
    FileEntry file;
    std::vector<Piece> pieces;
    std::vector<Piece> blobs;
  };
  std::vector<Entry> entries;
  const std::string mine = written.files.empty() ? "" : to_text(written);
  for (const std::string& text : gather_text(world, mine, 0)) {
    Manifest of_rank = manifest_from_text(text);
    const std::size_t first = entries.size();
    for (FileEntry& file : of_rank.files) entries.push_back({std::move(file), {}, {}});
    for (Piece& piece : of_rank.pieces) entries[first + piece.file].pieces.push_back(std::move(piece));
    for (Piece& blob : of_rank.blobs) entries[first + blob.file].blobs.push_back(std::move(blob));
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) { return entry.file.name; });

  Manifest manifest;
  manifest.step = description.step;
  manifest.attributes = description.attributes;
  for (Entry& entry : entries) {
    for (auto [from, to] : {std::pair{&entry.pieces, &manifest.pieces}, {&entry.blobs, &manifest.blobs}}) {
      for (Piece& piece : *from) {
        piece.file = manifest.files.size();
        to->push_back(std::move(piece));
      }
    }
    manifest.files.push_back(std::move(entry.file));
  }
  return manifest;
}

/// A step in progress, of `size_bytes` in the store of `sharers`.
struct NewStep {
  std::int64_t step = 0;
  std::int64_t size_bytes = 0;
  std::string origin = {};
};

/// Begins a step, runs `write` on every rank, and commits the manifest that `write` returns on the first of `sharers`.
void commit_step(Store& store, Communicator& world, Communicator& sharers, const NewStep& step,
                 const std::function<Manifest(const std::string& staging)>& write) {
  const bool leads = sharers.rank() == 0;
  std::string staging;
  collectively(world, [&] {
    if (leads) staging = store.begin(step.step, step.size_bytes, step.origin);
  });
  staging = broadcast_text(sharers, staging, 0);
  try {
    const Manifest manifest = write(staging);
    collectively(world, [&] {
      if (!leads) return;
      validate(manifest);
      store.commit(staging, manifest);
    });
  } catch (...) {
    if (leads) store.abandon(staging);
    throw;
  }
}

void log_saved(const Store& store, std::int64_t step, std::int64_t size_bytes, const Timer& timer) {
  const double size_mb = static_cast<double>(size_bytes) / 1e6;
  log::info("saved step {} in {}: {:.1f} MB in {:.2f} s, {:.0f} MB/s", step, store.description(), size_mb,
            timer.elapsed_s(), size_mb / timer.elapsed_s());
}

}  // namespace

void ShardContent::add(Piece piece, std::function<ConstTensorView()> data) {
  piece.dataset = fmt::format("tensor/{}/{}", piece.tensor, pieces_of_[piece.tensor]++);
  const bool whole_box = piece.slice.count == piece.slice.box.numel();
  datasets.emplace_back(piece.dataset, piece.dtype, whole_box ? piece.slice.box.extent : Shape{piece.slice.count},
                        std::move(data));
  pieces.push_back(std::move(piece));
}

void ShardContent::add_blobs(const std::map<std::string, std::string>& named) {
  for (const auto& [name, bytes] : named) {
    TRIREME_CHECK(is_plain_name(name, max_tensor_name_bytes), ShapeError,
                  "the blob '{}' cannot be saved: names are 1 to 200 letters, digits and . _ - /", name);
    const Shape shape{static_cast<std::int64_t>(bytes.size())};
    blobs.push_back({.tensor = name,
                     .dtype = DType::uint8,
                     .shape = shape,
                     .slice = {Box::whole(shape), 0, shape[0]},
                     .dataset = "blob/" + name + "/0"});
    datasets.emplace_back(blobs.back().dataset,
                          ConstTensorView(reinterpret_cast<const std::uint8_t*>(bytes.data()), shape));
  }
}

std::int64_t ShardContent::size_bytes() const {
  std::int64_t sum = 0;
  for (const ShardDataset& dataset : datasets) sum += dataset.size_bytes();
  return sum;
}

std::string shard_name(int rank) { return fmt::format("rank-{:05}.h5", rank); }

std::int64_t write_step(Store& store, Communicator& world, const RunDescription& description,
                        std::vector<ShardContent>& shards, const std::string& origin, const NodeGroups* nodes) {
  const Timer timer;
  Communicator& sharers = nodes != nullptr ? *nodes->node : world;
  std::erase_if(shards, [](const ShardContent& shard) { return shard.datasets.empty(); });
  std::int64_t size_bytes = 0;
  for (const ShardContent& shard : shards) size_bytes += shard.size_bytes();
  size_bytes = all_reduce_number(sharers, size_bytes, ReduceOp::sum);
  const std::int64_t files = all_reduce_number(sharers, std::ssize(shards), ReduceOp::sum);
  commit_step(store, world, sharers, {description.step, size_bytes + shard_overhead_bytes * files, origin},
              [&](const std::string& staging) {
                Manifest written;
                collectively(world, [&] { written = write_shards(store, staging, shards); });
                Manifest manifest = gather_manifest(world, description, written);
                if (nodes == nullptr || !nodes->leaders) return manifest;
                return manifest_from_text(broadcast_text(*nodes->leaders, to_text(manifest), 0));
              });
  if (nodes == nullptr) log_saved(store, description.step, size_bytes, timer);
  return size_bytes;
}

void copy_step(Store& store, Communicator& world, StepReader& source) {
  const Timer timer;
  const Manifest& manifest = source.manifest();
  std::int64_t size_bytes = 0;
  for (const FileEntry& file : manifest.files) size_bytes += file.size_bytes;
  commit_step(store, world, world, {manifest.step, size_bytes}, [&](const std::string& staging) {
    collectively(world, [&] {
      for (std::size_t i = 0; i < manifest.files.size(); ++i) {
        if (manifest.files[i].name != shard_name(world.rank())) continue;
        const std::unique_ptr<FileSink> sink = store.add_file(staging, manifest.files[i]);
        for_each_block(source, i, [&](std::span<const std::byte> block) { sink->append(block); });
        sink->finish();
      }
    });
    return manifest;
  });
  log_saved(store, manifest.step, size_bytes, timer);
}

}  // namespace trireme::checkpoint

#include "src/checkpoint/step_writer.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/base/timer.hpp"
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
  std::string mine;
  for (const FileEntry& file : written.files)
    mine += fmt::format("{} {} {}\n", file.name, file.size_bytes, file.digest);
  const std::vector<std::string> files = gather_text(world, mine, 0);
  const std::vector<std::string> pieces = gather_text(world, to_text(written.pieces), 0);
  const std::vector<std::string> blobs = gather_text(world, to_text(written.blobs), 0);
  struct Entry {
    FileEntry file;
    std::vector<Piece> pieces;
    std::vector<Piece> blobs;
  };
  std::vector<Entry> entries;
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    const std::size_t first = entries.size();
    std::istringstream lines(files[rank]);
    for (FileEntry file; lines >> file.name >> file.size_bytes >> file.digest;) entries.push_back({file, {}, {}});
    for (Piece& piece : pieces_from_text(pieces[rank])) entries[first + piece.file].pieces.push_back(piece);
    for (Piece& blob : pieces_from_text(blobs[rank])) entries[first + blob.file].blobs.push_back(blob);
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

void write_step(Store& store, Communicator& world, const RunDescription& description, std::vector<ShardContent>& shards,
                const std::string& origin) {
  const Timer timer;
  std::erase_if(shards, [](const ShardContent& shard) { return shard.datasets.empty(); });
  std::int64_t size_bytes = 0;
  for (const ShardContent& shard : shards) size_bytes += shard.size_bytes();
  size_bytes = all_reduce_number(world, size_bytes, ReduceOp::sum);
  const std::int64_t files = all_reduce_number(world, std::ssize(shards), ReduceOp::sum);
  std::string staging;
  collectively(world, [&] {
    if (world.rank() == 0) staging = store.begin(description.step, size_bytes + shard_overhead_bytes * files, origin);
  });
  staging = broadcast_text(world, staging, 0);
  try {
    Manifest written;
    collectively(world, [&] { written = write_shards(store, staging, shards); });
    const Manifest manifest = gather_manifest(world, description, written);
    collectively(world, [&] {
      if (world.rank() != 0) return;
      validate(manifest);
      store.commit(staging, manifest);
    });
  } catch (...) {
    if (world.rank() == 0) store.abandon(staging);
    throw;
  }
  const double size_mb = static_cast<double>(size_bytes) / 1e6;
  log::info("saved step {} in {}: {:.1f} MB in {:.2f} s, {:.0f} MB/s", description.step, store.description(), size_mb,
            timer.elapsed_s(), size_mb / timer.elapsed_s());
}

}  // namespace trireme::checkpoint

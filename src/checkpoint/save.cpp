#include "src/checkpoint/save.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::checkpoint {
namespace {

/// What a rank's file needs beside its tensors, at the most.
constexpr std::int64_t overhead_bytes = std::int64_t{1} << 20;

struct Shard {
  std::vector<Piece> pieces;
  std::vector<Piece> held;  // of tensors that others write: without elements
  std::vector<Piece> blobs;
  std::vector<ShardDataset> datasets;  // of all pieces, then of all blobs
};

Shard shard_of(std::span<const StateTensor> tensors) {
  Shard shard;
  std::map<std::string, int> pieces_of;
  for (const StateTensor& tensor : tensors) {
    const Part part{tensor.box, tensor.flat_begin, tensor.data.numel()};
    const std::string problem = part_problem(tensor.shape, part);
    TRIREME_CHECK(problem.empty() && is_plain_name(tensor.name), ShapeError, "the tensor '{}' cannot be saved: {}",
                  tensor.name, problem.empty() ? "names are 1 to 200 letters, digits and . _ - /" : problem);
    Piece piece;
    piece.tensor = tensor.name;
    piece.dtype = tensor.data.dtype();
    piece.shape = tensor.shape;
    piece.part = part;
    piece.dataset = fmt::format("tensor/{}/{}", tensor.name, pieces_of[tensor.name]);
    if (!tensor.written_here || part.count == 0) {
      piece.part.count = 0;
      shard.held.push_back(std::move(piece));
      continue;
    }
    ++pieces_of[tensor.name];
    shard.pieces.push_back(piece);
    const bool whole_box = part.count == tensor.box.numel();
    shard.datasets.push_back({piece.dataset, tensor.data.reshape(whole_box ? tensor.box.extent : Shape{part.count})});
  }
  return shard;
}

void add_blobs(const std::map<std::string, std::string>& blobs, Shard& shard) {
  for (const auto& [name, bytes] : blobs) {
    TRIREME_CHECK(is_plain_name(name), ShapeError,
                  "the blob '{}' cannot be saved: names are 1 to 200 letters, digits and . _ - /", name);
    Piece blob;
    blob.tensor = name;
    blob.dtype = DType::uint8;
    blob.shape = {static_cast<std::int64_t>(bytes.size())};
    blob.part = {Box::whole(blob.shape), 0, blob.shape[0]};
    blob.dataset = "blob/" + name + "/0";
    shard.datasets.push_back(
        {blob.dataset, ConstTensorView(reinterpret_cast<const std::uint8_t*>(bytes.data()), blob.shape)});
    shard.blobs.push_back(std::move(blob));
  }
}

std::int64_t sum_over_ranks(Communicator& world, std::int64_t value) {
  ImmediateStream host;
  world.all_reduce(host, TensorView(&value, {1}), ReduceOp::sum).wait(host);
  return value;
}

/// Bytes of tensors and blobs of all ranks.
std::int64_t data_bytes(Communicator& world, const Shard& shard) {
  std::int64_t bytes = 0;
  for (const ShardDataset& dataset : shard.datasets) bytes += static_cast<std::int64_t>(dataset.data.size_bytes());
  return sum_over_ranks(world, bytes);
}

/// Throws on all ranks unless every element of every tensor that any rank holds has exactly one writer.
void check_writers(Communicator& world, const Shard& shard) {
  const std::vector<std::string> texts = all_gather_text(world, to_text(shard.pieces) + to_text(shard.held));
  collectively(world, [&] {
    if (world.rank() != 0) return;
    std::vector<Piece> all;
    for (const std::string& text : texts) {
      const std::vector<Piece> of_rank = pieces_from_text(text);
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    validate_tensors(all);
  });
}

void write_shard(Store& store, const std::string& staging, int rank, Shard& shard, FileEntry& file) {
  if (shard.datasets.empty()) return;
  const ShardFile written = store.write_shard(staging, fmt::format("rank-{:05}.h5", rank), shard.datasets);
  file = written.entry;
  for (std::size_t i = 0; i < shard.datasets.size(); ++i) {
    Piece& piece = i < shard.pieces.size() ? shard.pieces[i] : shard.blobs[i - shard.pieces.size()];
    piece.offset_bytes = written.offsets_bytes[i];
    piece.digest = digest(shard.datasets[i].data.data(), shard.datasets[i].data.size_bytes());
  }
}

/// The manifest of what all ranks wrote, on every rank.
Manifest gather_manifest(Communicator& world, const RunDescription& description, const Shard& shard,
                         const FileEntry& file) {
  Manifest manifest;
  manifest.step = description.step;
  manifest.attributes = description.attributes;
  manifest.blobs = shard.blobs;
  const auto file_names = all_gather_text(world, file.name);
  const auto file_sizes = all_gather_text(world, fmt::format("{}", file.size_bytes));
  const auto file_digests = all_gather_text(world, file.digest);
  const auto pieces = all_gather_text(world, to_text(shard.pieces));
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    if (file_names[rank].empty()) continue;
    for (Piece& piece : pieces_from_text(pieces[rank])) {
      piece.file = manifest.files.size();
      manifest.pieces.push_back(std::move(piece));
    }
    manifest.files.push_back({file_names[rank], std::stoll(file_sizes[rank]), file_digests[rank]});
  }
  return manifest;
}

void prune(Store& store, std::int64_t saved_step, int keep_last) {
  int kept = 0;
  std::string beyond;
  for (const StepEntry& entry : store.steps()) {  // greatest first
    if (entry.replaced || !entry.step) continue;
    if (*entry.step > saved_step) {
      beyond += " " + entry.name;
    } else if (kept < keep_last || entry.latest) {
      ++kept;
    } else {
      store.remove(entry.name);
    }
  }
  if (!beyond.empty()) {
    log::warn("{}:{} are beyond step {}, which was just saved: of another course of the run, and left alone",
              store.description(), beyond, saved_step);
  }
}

}  // namespace

void prepare_saving(Store& store, Communicator& world, std::span<const StateTensor> tensors) {
  Shard shard;
  collectively(world, [&] { shard = shard_of(tensors); });
  check_writers(world, shard);
  const std::int64_t needed = data_bytes(world, shard) + overhead_bytes * world.size();
  std::string token;
  collectively(world, [&] {
    if (world.rank() == 0) token = store.claim(needed + needed / 5);
  });
  token = broadcast_text(world, token, 0);
  collectively(world, [&] { store.confirm(token); });
}

void save(Store& store, Communicator& world, const RunDescription& description, std::span<const StateTensor> tensors,
          const SaveOptions& options) {
  const Timer timer;
  Shard shard;
  collectively(world, [&] {
    shard = shard_of(tensors);
    if (world.rank() == 0) add_blobs(description.blobs, shard);
  });
  check_writers(world, shard);
  const std::int64_t size_bytes = data_bytes(world, shard);
  std::string staging;
  collectively(world, [&] {
    if (world.rank() == 0) {
      staging = store.begin(description.step, size_bytes + overhead_bytes * world.size());
    }
  });
  staging = broadcast_text(world, staging, 0);
  try {
    FileEntry file;
    collectively(world, [&] { write_shard(store, staging, world.rank(), shard, file); });
    const Manifest manifest = gather_manifest(world, description, shard, file);
    collectively(world, [&] {
      if (world.rank() != 0) return;
      validate(manifest);
      store.commit(staging, manifest);
    });
  } catch (...) {
    if (world.rank() == 0) store.abandon(staging);
    throw;
  }
  if (world.rank() != 0) return;
  const double size_mb = static_cast<double>(size_bytes) / 1e6;
  log::info("saved step {} in {}: {:.1f} MB in {:.2f} s, {:.0f} MB/s", description.step, store.description(), size_mb,
            timer.elapsed_s(), size_mb / timer.elapsed_s());
  if (options.keep_last == 0) return;
  try {
    prune(store, description.step, options.keep_last);
  } catch (const Error& error) {
    log::warn("step {} is saved, but an older one could not be removed: {}", description.step, error.what());
  }
}

}  // namespace trireme::checkpoint

#include "src/checkpoint/reshard.hpp"

#include <fmt/ranges.h>

#include <map>
#include <set>

#include "src/base/check.hpp"
#include "src/checkpoint/load.hpp"
#include "src/checkpoint/step_writer.hpp"

namespace trireme::checkpoint {
namespace {

using Stored = std::map<std::string, const Piece*>;  // one piece of each tensor, for its type and shape

Piece piece_of(const Stored& stored, const TargetPiece& target) {
  return {
      .tensor = target.tensor, .dtype = stored.at(target.tensor)->dtype, .shape = target.shape, .slice = target.slice};
}

void check_targets(const StepReader& step, const Stored& stored, std::span<const TargetFile> files) {
  std::set<std::string> problems;
  std::set<std::string> wanted;
  for (const TargetFile& file : files) {
    for (const TargetPiece& target : file) {
      wanted.insert(target.tensor);
      const auto found = stored.find(target.tensor);
      if (found == stored.end()) {
        problems.insert(target.tensor + ": not in the checkpoint");
      } else if (found->second->shape != target.shape) {
        problems.insert(fmt::format("{}: {} in the checkpoint, {} in the layout", target.tensor,
                                    to_string(found->second->shape), to_string(target.shape)));
      }
    }
  }
  for (const auto& [name, piece] : stored) {
    if (!wanted.contains(name) && piece->shape.numel() > 0) problems.insert(name + ": in the checkpoint only");
  }
  TRIREME_CHECK(problems.empty(), CheckpointError, "{} does not fit the requested layout:\n  {}", step.description(),
                fmt::join(problems, "\n  "));
  std::vector<Piece> all;
  for (const TargetFile& file : files) {
    for (const TargetPiece& target : file) all.push_back(piece_of(stored, target));
  }
  validate_tensors(all);
}

}  // namespace

void reshard(StepReader& step, Store& store, Communicator& world, std::span<const TargetFile> files) {
  Stored stored;
  for (const Piece& piece : step.manifest().pieces) stored.try_emplace(piece.tensor, &piece);
  RunDescription description;
  collectively(world, [&] {
    check_targets(step, stored, files);
    description = read_description(step);
  });

  TensorReader reader(step);
  std::vector<std::byte> buffer;  // bytes of the current piece
  std::vector<ShardContent> shards;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (static_cast<int>(i % static_cast<std::size_t>(world.size())) != world.rank()) continue;
    ShardContent& shard = shards.emplace_back();
    shard.file_name = shard_name(static_cast<int>(i));
    for (const TargetPiece& target : files[i]) {
      if (target.slice.count == 0) continue;
      const Piece piece = piece_of(stored, target);
      shard.add(piece, [&reader, &buffer, piece] {
        buffer.resize(static_cast<std::size_t>(piece.size_bytes()));
        const TensorView data(buffer.data(), piece.dtype, {piece.slice.count});
        reader.read({piece.tensor, piece.shape, piece.slice.box, piece.slice.flat_begin, data});
        return ConstTensorView(data);
      });
    }
    if (i == 0) shard.add_blobs(description.blobs);
  }
  write_step(store, world, description, shards);
}

}  // namespace trireme::checkpoint

#include "src/checkpoint/save.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/checkpoint/load.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::checkpoint {
namespace {

struct Shard {
  ShardContent content;
  std::vector<Piece> held;  // a piece without elements of each tensor, the same on all ranks of a stage
};

Shard shard_of(std::span<const StateTensor> tensors, int rank) {
  Shard shard;
  shard.content.file_name = shard_name(rank);
  for (const StateTensor& tensor : tensors) {
    const TensorSlice slice{tensor.box, tensor.flat_begin, tensor.data.numel()};
    const std::string problem = slice_problem(tensor.shape, slice);
    TRIREME_CHECK(problem.empty() && is_plain_name(tensor.name, max_tensor_name_bytes), ShapeError,
                  "the tensor '{}' cannot be saved: {}", tensor.name,
                  problem.empty() ? "names are 1 to 200 letters, digits and . _ - /" : problem);
    Piece piece{.tensor = tensor.name, .dtype = tensor.data.dtype(), .shape = tensor.shape, .slice = slice};
    if (tensor.written_here && slice.count > 0) {
      shard.content.add(piece, [data = tensor.data] { return ConstTensorView(data); });
    }
    piece.slice = {Box::whole(tensor.shape), 0, 0};
    shard.held.push_back(std::move(piece));
  }
  return shard;
}

/// Throws on all ranks unless every element of every tensor that any rank holds has exactly one writer.
void check_writers(Communicator& world, const Shard& shard) {
  std::vector<std::string> texts = gather_text(world, to_text(shard.content.pieces), 0);
  std::ranges::move(gather_distinct_text(world, to_text(shard.held), 0), std::back_inserter(texts));
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

/// Reads the step back, divided among the ranks.
void verify_saved(Store& store, Communicator& world, std::int64_t step) {
  try {
    open_checkpoint(store, world, store.step_name(step));
  } catch (const HungError&) {
    throw;  // an unresponsive rank is not a fault of the step
  } catch (const Error& error) {
    throw CollectiveError(
        ExitCode::io,
        fmt::format("step {} was written, but does not read back intact: {}; earlier steps are left alone", step,
                    error.what()));
  }
}

/// Removes the steps before `saved_step` except those retained indefinitely, those for rewinds, and the last complete
/// ones, leaving `keep_last` including it.
void prune(Store& store, std::int64_t saved_step, const SaveOptions& options) {
  int kept = 1;
  bool can_rewind = options.rewind_distance == 0;
  for (const StepEntry& entry : store.steps()) {  // greatest first
    if (entry.replaced || entry.step >= saved_step) continue;
    const bool retained = options.retain_interval > 0 && entry.step % options.retain_interval == 0;
    if (kept >= options.keep_last && can_rewind) {
      if (!retained) store.remove(entry.name);
    } else if (looks_complete(store, entry.name)) {
      ++kept;
      can_rewind = can_rewind || entry.step <= saved_step - options.rewind_distance;
    }
  }
}

/// A later load would prefer them.
void warn_of_steps_beyond(Store& store, std::int64_t step) {
  std::vector<std::string> beyond;
  for (const StepEntry& entry : store.steps()) {
    if (entry.step > step) beyond.push_back(entry.name);
  }
  if (beyond.empty()) return;
  log::warn(
      "{}: beyond step {}, where this run begins, there is {}, which a later load prefers: to resume from this run's "
      "saves, move it away",
      store.description(), step, fmt::join(beyond, " "));
}

}  // namespace

void prepare_saving(Store& store, Communicator& world, std::span<const StateTensor> tensors, std::int64_t step) {
  Shard shard;
  collectively(world, [&] { shard = shard_of(tensors, world.rank()); });
  check_writers(world, shard);
  const std::int64_t needed =
      all_reduce_number(world, shard.content.size_bytes(), ReduceOp::sum) + shard_overhead_bytes * world.size();
  std::string token;
  collectively(world, [&] {
    if (world.rank() == 0) token = store.claim(needed + needed / 5);
  });
  token = broadcast_text(world, token, 0);
  collectively(world, [&] { store.confirm(token); });
  collectively(world, [&] {
    if (world.rank() == 0) warn_of_steps_beyond(store, step);
  });
}

std::vector<ShardContent> shards_of(Communicator& world, const RunDescription& description,
                                    std::span<const StateTensor> tensors) {
  Shard shard;
  collectively(world, [&] {
    shard = shard_of(tensors, world.rank());
    if (world.rank() == 0) shard.content.add_blobs(description.blobs);
  });
  check_writers(world, shard);
  std::vector<ShardContent> contents;
  contents.push_back(std::move(shard.content));
  return contents;
}

void save(Store& store, Communicator& world, const RunDescription& description, std::span<const StateTensor> tensors,
          const SaveOptions& options) {
  std::vector<ShardContent> contents = shards_of(world, description, tensors);
  write_step(store, world, description, contents);
  keep(store, world, description.step, options);
}

void keep(Store& store, Communicator& world, std::int64_t step, const SaveOptions& options) {
  if (options.keep_last == 0) return;
  verify_saved(store, world, step);
  if (world.rank() != 0) return;
  try {
    prune(store, step, options);
  } catch (const Error& error) {
    log::warn("step {} is saved, but an older one could not be removed: {}", step, error.what());
  }
}

}  // namespace trireme::checkpoint

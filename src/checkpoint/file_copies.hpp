#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::checkpoint {

/// Bytes of a file that are in memory at a time while it is copied.
inline constexpr std::size_t copied_block_bytes = std::size_t{4} << 20;

/// Calls `use` for consecutive blocks of file `file` of `step`.
void for_each_block(StepReader& step, std::size_t file, const std::function<void(std::span<const std::byte>)>& use);

/// A file of a step that rank `from` sends to rank `to`.
struct FileCopy {
  std::size_t file = 0;  ///< index in the manifest
  int from = 0, to = 0;
};

/// Copies files between the stores of ranks, in blocks, each into the step of the receiver's store that it has opened.
/// `copies` is the same list on all ranks. Throws on all of them if one cannot read or write. Collective over `world`,
/// a communicator of host memory.
void copy_files(Communicator& world, Store& store, StepReader& step, std::span<const FileCopy> copies);

}  // namespace trireme::checkpoint

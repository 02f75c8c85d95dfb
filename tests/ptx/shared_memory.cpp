#include "tests/ptx/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/ptx/instruction.hpp"

namespace trireme::ptx {

SharedMemory::SharedMemory(std::size_t size_bytes, int threads)
    : bytes_(size_bytes),
      words_((size_bytes + word_bytes - 1) / word_bytes),
      warp_epochs_(static_cast<std::size_t>(threads / warp_size)) {}

void SharedMemory::reset() {
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff});
  std::fill(words_.begin(), words_.end(), Word{});
}

SharedMemory::Access SharedMemory::access_of(int thread) const {
  const int warp = thread / warp_size;
  return {thread, warp, block_epoch_, warp_epochs_[static_cast<std::size_t>(warp)]};
}

bool SharedMemory::comes_before(const Access& access, const Access& now) {
  if (access.thread == nobody || access.thread == now.thread || access.block_epoch < now.block_epoch) return true;
  return access.thread != several_warps && access.warp == now.warp && access.warp_epoch < now.warp_epoch;
}

std::string SharedMemory::description(const char* what, const Access& before) {
  const std::string thread = before.thread >= 0 ? fmt::format("thread {}", before.thread) : "other threads";
  return fmt::format("race: {} {} the same shared memory, and no barrier is between", thread, what);
}

std::optional<std::string> SharedMemory::read(int thread, std::size_t offset, std::size_t size_bytes) {
  const Access now = access_of(thread);
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) {
    Word& word = words_[i];
    if (word.copying != nobody) {
      return fmt::format("the copy by thread {} into this shared memory was not waited for", word.copying);
    }
    if (!comes_before(word.write, now)) return description("wrote", word.write);
    Access& read = word.read;
    if (read.thread != nobody && read.thread != thread && read.block_epoch == now.block_epoch) {
      const bool same_warp = read.warp == now.warp && read.thread != several_warps;
      read = now;
      read.thread = same_warp ? several_lanes : several_warps;
    } else {
      read = now;
    }
  }
  return {};
}

std::optional<std::string> SharedMemory::write(int thread, std::size_t offset, std::size_t size_bytes) {
  const Access now = access_of(thread);
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) {
    Word& word = words_[i];
    if (word.copying != nobody) {
      return fmt::format("the copy by thread {} into this shared memory was not waited for", word.copying);
    }
    if (!comes_before(word.write, now)) return description("wrote", word.write);
    if (!comes_before(word.read, now)) return description("read", word.read);
    word.write = now;
  }
  return {};
}

std::optional<std::string> SharedMemory::begin_copy(int thread, std::size_t offset, std::size_t size_bytes) {
  std::optional<std::string> race = write(thread, offset, size_bytes);
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) words_[i].copying = thread;
  return race;
}

void SharedMemory::end_copy(int thread, std::size_t offset, std::size_t size_bytes) {
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) {
    words_[i].copying = nobody;
    words_[i].write = access_of(thread);
  }
}

}  // namespace trireme::ptx

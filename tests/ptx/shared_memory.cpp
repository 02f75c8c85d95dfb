#include "tests/ptx/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

bool SharedMemory::is_free(const Word& word, const Access& earlier, const Access& now) {
  return word.copying == nobody && comes_before(earlier, now);
}

bool SharedMemory::refuse(const Word& word, const Access& earlier, const char* what) {
  if (word.copying != nobody) {
    race_ = fmt::format("the copy by thread {} into this shared memory was not waited for", word.copying);
  } else {
    const std::string thread = earlier.thread >= 0 ? fmt::format("thread {}", earlier.thread) : "other threads";
    race_ = fmt::format("race: {} {} the same shared memory, and no barrier is between", thread, what);
  }
  return false;
}

bool SharedMemory::read(int thread, std::size_t offset, std::size_t size_bytes) {
  const Access now = access_of(thread);
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) {
    Word& word = words_[i];
    if (!is_free(word, word.write, now)) return refuse(word, word.write, "wrote");
    // Most reads are of a word that all threads read.
    if (word.read.thread == several_warps && word.read.block_epoch == now.block_epoch) continue;
    const Access before = std::exchange(word.read, now);
    if (before.thread != nobody && before.thread != thread && before.block_epoch == now.block_epoch) {
      word.read.thread = before.warp == now.warp && before.thread != several_warps ? several_lanes : several_warps;
    }
  }
  return true;
}

bool SharedMemory::write(int thread, std::size_t offset, std::size_t size_bytes) {
  const Access now = access_of(thread);
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) {
    Word& word = words_[i];
    if (!is_free(word, word.write, now)) return refuse(word, word.write, "wrote");
    if (!is_free(word, word.read, now)) return refuse(word, word.read, "read");
    word.write = now;
  }
  return true;
}

bool SharedMemory::begin_copy(int thread, std::size_t offset, std::size_t size_bytes) {
  if (!write(thread, offset, size_bytes)) return false;
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) words_[i].copying = thread;
  return true;
}

void SharedMemory::end_copy(int thread, std::size_t offset, std::size_t size_bytes) {
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) {
    words_[i].copying = nobody;
    words_[i].write = access_of(thread);
  }
}

}  // namespace trireme::ptx

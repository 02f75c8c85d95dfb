#include "tests/ptx/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/ptx/instruction.hpp"

namespace trireme::ptx {

SharedMemory::SharedMemory(std::size_t size_bytes, int threads)
    : bytes_(size_bytes),
      words_((size_bytes + word_bytes - 1) / word_bytes),
      order_(threads),
      reads_(words_.size() * static_cast<std::size_t>(order_.warps())),
      fences_(static_cast<std::size_t>(threads)) {}

void SharedMemory::reset() {
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff});
  std::fill(words_.begin(), words_.end(), Word{});
  order_.pass_block_barrier();  // earlier reads have no effect
  barriers_.clear();
}

template <class Visit>
bool SharedMemory::for_words(std::size_t offset, std::size_t size_bytes, Visit&& visit) {
  for (std::size_t i = offset / word_bytes; i * word_bytes < offset + size_bytes; ++i) {
    if (!visit(i, words_[i])) return false;
  }
  return true;
}

bool SharedMemory::refuse(std::string fault) {
  race_ = std::move(fault);
  return false;
}
bool SharedMemory::refuse_race(const Order::Access& earlier, const char* what) {
  const std::string thread = earlier.thread >= 0 ? fmt::format("thread {}", earlier.thread) : "other threads";
  return refuse(fmt::format("race: {} {} the same shared memory, and no barrier is between", thread, what));
}

bool SharedMemory::is_written(const Word& word, int thread) {
  if (word.copying != Order::nobody) {
    return refuse(fmt::format("the copy by thread {} into this shared memory was not waited for", word.copying));
  }
  return order_.precedes(word.write, thread) || refuse_race(word.write, "wrote");
}

bool SharedMemory::read(int thread, std::size_t offset, std::size_t size_bytes) {
  const Order::Access now = order_.access_of(thread);
  const int warp = thread / warp_size;
  return for_words(offset, size_bytes, [&](std::size_t i, const Word& word) {
    if (!is_written(word, thread)) return false;
    Order::Access& latest = read_of(i, warp);
    const bool of_others = latest.thread != thread && !order_.precedes(latest, warp, thread);
    latest = {of_others ? Order::several_lanes : thread, now.epoch};
    return true;
  });
}

bool SharedMemory::write(int thread, std::size_t offset, std::size_t size_bytes) {
  const Order::Access now = order_.access_of(thread);
  return for_words(offset, size_bytes, [&](std::size_t i, Word& word) {
    if (!is_written(word, thread)) return false;
    if (word.products > 0) return refuse("a product of a warp group reads this shared memory, and was not waited for");
    for (int warp = 0; warp < order_.warps(); ++warp) {
      if (!order_.precedes(read_of(i, warp), warp, thread)) return refuse_race(read_of(i, warp), "read");
    }
    word.write = now;
    word.fences = fences_[static_cast<std::size_t>(thread)];
    return true;
  });
}

bool SharedMemory::begin_copy(int thread, std::size_t offset, std::size_t size_bytes) {
  return write(thread, offset, size_bytes) && for_words(offset, size_bytes, [&](std::size_t, Word& word) {
           word.copying = thread;
           return true;
         });
}

void SharedMemory::end_copy(int thread, std::size_t offset, std::size_t size_bytes) {
  for_words(offset, size_bytes, [&](std::size_t, Word& word) {
    word.copying = Order::nobody;
    word.write = order_.access_of(thread);
    word.fences = fences_[static_cast<std::size_t>(thread)];
    return true;
  });
}

bool SharedMemory::begin_product(int warp, std::size_t offset, std::size_t size_bytes) {
  return for_words(offset, size_bytes, [&](std::size_t, Word& word) {
    if (!is_written(word, warp * warp_size)) return false;
    const int writer = word.write.thread;
    if (writer >= 0 && fences_[static_cast<std::size_t>(writer)] == word.fences) {
      return refuse(fmt::format("thread {} wrote this shared memory, and no fence.proxy.async of it follows", writer));
    }
    ++word.products;
    return true;
  });
}

void SharedMemory::end_product(int warp, std::size_t offset, std::size_t size_bytes) {
  for_words(offset, size_bytes, [&](std::size_t i, Word& word) {
    --word.products;
    read_of(i, warp) = {Order::all_lanes, order_.access_of(warp * warp_size).epoch};
    return true;
  });
}

bool SharedMemory::initialise_barrier(int thread, std::size_t offset, unsigned arrivals) {
  if (arrivals == 0) return refuse("an mbarrier needs an arrival");
  if (!write(thread, offset, 2 * word_bytes)) return false;
  Barrier& barrier = barriers_[offset] = {};
  barrier.arrivals = barrier.missing = arrivals;
  return true;
}

SharedMemory::Barrier* SharedMemory::barrier_at(int thread, std::size_t offset) {
  const auto found = barriers_.find(offset);
  if (found == barriers_.end()) refuse("this mbarrier was not initialised");
  return found != barriers_.end() && is_written(words_[offset / word_bytes], thread) ? &found->second : nullptr;
}

bool SharedMemory::arrive(int thread, std::size_t offset) {
  Barrier* barrier = barrier_at(thread, offset);
  if (barrier == nullptr) return false;
  order_.publish(thread, barrier->arriving);
  if (--barrier->missing == 0) {
    barrier->missing = barrier->arrivals;
    barrier->ended = barrier->arriving;
    ++barrier->phase;
  }
  return true;
}

bool SharedMemory::try_wait(int thread, std::size_t offset, unsigned parity, bool& ended) {
  const Barrier* barrier = barrier_at(thread, offset);
  if (barrier == nullptr) return false;
  ended = barrier->phase % 2 != parity;
  if (ended) order_.learn(thread, barrier->ended);
  return true;
}

}  // namespace trireme::ptx

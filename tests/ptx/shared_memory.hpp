#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "tests/ptx/order.hpp"

namespace trireme::ptx {

/// Shared memory of a block, which finds races: accesses of two threads to one word, one of them a write, that nothing
/// orders. A word written by an asynchronous copy must not be accessed until the copy was waited for. Products of warp
/// groups read through another proxy: they need a fence by the thread that wrote, and until they are waited for nothing
/// may be written there. Functions that return false or null describe the fault in `race`.
class SharedMemory {
 public:
  SharedMemory(std::size_t size_bytes, int threads);

  /// Fills it with NaN for a new block.
  void reset();
  std::size_t size() const { return bytes_.size(); }
  std::byte* at(std::size_t offset) { return bytes_.data() + offset; }

  void pass_block_barrier() { order_.pass_block_barrier(); }
  void pass_warp_barrier(int warp) { order_.pass_warp_barrier(warp); }

  // Accesses of `thread` to bytes within the memory.
  bool read(int thread, std::size_t offset, std::size_t size_bytes);
  bool write(int thread, std::size_t offset, std::size_t size_bytes);
  bool begin_copy(int thread, std::size_t offset, std::size_t size_bytes);
  void end_copy(int thread, std::size_t offset, std::size_t size_bytes);
  /// Description of the latest fault.
  const std::string& race() const { return race_; }

  /// fence.proxy.async of a thread.
  void publish_to_products(int thread) { ++fences_[static_cast<std::size_t>(thread)]; }
  // Reads by a product of a warp's.
  bool begin_product(int warp, std::size_t offset, std::size_t size_bytes);
  void end_product(int warp, std::size_t offset, std::size_t size_bytes);

  // mbarriers, of 8 bytes.
  bool initialise_barrier(int thread, std::size_t offset, unsigned arrivals);
  bool arrive(int thread, std::size_t offset);
  /// Sets `ended` to whether the current phase has another parity; then the thread has waited for that before it.
  bool try_wait(int thread, std::size_t offset, unsigned parity, bool& ended);

 private:
  static constexpr std::size_t word_bytes = 4;
  struct Word {
    Order::Access write;
    std::uint32_t fences = 0;     // the number of its writer at that time
    int copying = Order::nobody;  // thread whose copy is under way
    std::uint32_t products = 0;   // products under way that read it
  };
  struct Barrier {
    unsigned arrivals = 0, missing = 0, phase = 0;
    Order::Known arriving, ended;  // accesses before the arrivals so far, and before those of ended phases
  };
  Order::Access& read_of(std::size_t word, int warp) {
    return reads_[word * static_cast<std::size_t>(order_.warps()) + static_cast<std::size_t>(warp)];
  }
  /// Calls visit(index, word) for the words; stops and returns false where it does.
  template <class Visit>
  bool for_words(std::size_t offset, std::size_t size_bytes, Visit&& visit);
  /// Returns whether the word is not being copied to and was written before what `thread` does now.
  bool is_written(const Word& word, int thread);
  /// Describes a fault, and returns false.
  bool refuse(std::string fault);
  bool refuse_race(const Order::Access& earlier, const char* what);
  /// Returns an initialised mbarrier, or null.
  Barrier* barrier_at(int thread, std::size_t offset);

  std::vector<std::byte> bytes_;
  std::vector<Word> words_;
  Order order_;
  std::vector<Order::Access> reads_;  // the latest: [word][warp]
  std::vector<std::uint32_t> fences_;
  std::map<std::size_t, Barrier> barriers_;
  std::string race_;
};

}  // namespace trireme::ptx

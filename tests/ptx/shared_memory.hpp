#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::ptx {

/// Shared memory of a block, which finds races: accesses of two threads to one word, one of them a write, without a
/// barrier in between. A block barrier orders all threads, a warp barrier (bar.warp.sync) the lanes of the warp. A word
/// written by an asynchronous copy must not be accessed until the copy was waited for.
class SharedMemory {
 public:
  SharedMemory(std::size_t size_bytes, int threads);

  /// Fills it with NaN for a new block.
  void reset();
  std::size_t size() const { return bytes_.size(); }
  std::byte* at(std::size_t offset) { return bytes_.data() + offset; }

  void pass_block_barrier() { ++block_epoch_; }
  void pass_warp_barrier(int warp) { ++warp_epochs_[static_cast<std::size_t>(warp)]; }

  // Accesses of `thread` to bytes within the memory. They return false on a race.
  bool read(int thread, std::size_t offset, std::size_t size_bytes);
  bool write(int thread, std::size_t offset, std::size_t size_bytes);
  bool begin_copy(int thread, std::size_t offset, std::size_t size_bytes);
  /// Description of the latest race.
  const std::string& race() const { return race_; }
  void end_copy(int thread, std::size_t offset, std::size_t size_bytes);

 private:
  static constexpr std::size_t word_bytes = 4;
  static constexpr int nobody = -1, several_lanes = -2, several_warps = -3;
  struct Access {
    int thread = nobody;
    int warp = 0;
    std::uint32_t block_epoch = 0, warp_epoch = 0;
  };
  struct Word {
    Access write, read;
    int copying = nobody;  // thread whose copy is under way
  };
  Access access_of(int thread) const;
  /// Returns whether a barrier orders the access before that of `now`.
  static bool comes_before(const Access& access, const Access& now);
  /// Returns whether the word is not being copied to and its earlier access comes before `now`.
  static bool is_free(const Word& word, const Access& earlier, const Access& now);
  /// Describes the race with an earlier access, and returns false.
  bool refuse(const Word& word, const Access& earlier, const char* what);

  std::vector<std::byte> bytes_;
  std::vector<Word> words_;
  std::uint32_t block_epoch_ = 0;
  std::vector<std::uint32_t> warp_epochs_;
  std::string race_;
};

}  // namespace trireme::ptx

#pragma once

#include <cstdint>
#include <vector>

namespace trireme::ptx {

/// Order of the accesses of a block's threads to shared memory. The accesses of a warp are numbered by epochs, which
/// end where it synchronises. A barrier of the block orders all threads, one of a warp its lanes; an arrival at an
/// mbarrier publishes what came before it to the warps that wait for its phase.
class Order {
 public:
  explicit Order(int threads);

  /// Threads of an access: one, or some lanes of a warp.
  static constexpr int nobody = -1, several_lanes = -2, all_lanes = -3;
  struct Access {
    int thread = nobody;
    std::uint32_t epoch = 0;
  };
  /// Epochs by thread: its accesses of earlier ones are known.
  using Known = std::vector<std::uint32_t>;

  int warps() const { return static_cast<int>(epochs_.size()); }
  Access access_of(int thread) const { return {thread, epochs_[warp_of(thread)]}; }
  /// Returns whether an access of `warp` comes before any access that `thread` makes now.
  bool precedes(const Access& access, int warp, int thread) const;
  bool precedes(const Access& access, int thread) const {
    return precedes(access, access.thread < 0 ? 0 : static_cast<int>(warp_of(access.thread)), thread);
  }

  void pass_block_barrier();
  void pass_warp_barrier(int warp);
  /// Adds to `known` the thread's accesses, and what is known to its warp.
  void publish(int thread, Known& known);
  void learn(int thread, const Known& known);

 private:
  static std::size_t warp_of(int thread);
  const std::uint32_t* seen(int warp) const { return &seen_[static_cast<std::size_t>(warp) * threads_]; }
  std::uint32_t* seen(int warp) { return &seen_[static_cast<std::size_t>(warp) * threads_]; }

  std::size_t threads_;
  std::vector<std::uint32_t> epochs_, barrier_epochs_;  // by warp: the current one, and that after the block's barrier
  std::vector<std::uint32_t> seen_;                     // [warp][thread]
};

}  // namespace trireme::ptx

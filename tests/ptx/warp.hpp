#pragma once

#include <deque>
#include <functional>
#include <span>

#include "tests/ptx/group_products.hpp"
#include "tests/ptx/instruction.hpp"
#include "tests/ptx/shared_memory.hpp"

namespace trireme::ptx {

/// Bytes [begin, end); empty if begin == end.
struct Region {
  std::uintptr_t begin = 0, end = 0;
  bool contains(std::uintptr_t address, std::size_t size_bytes) const {
    return address >= begin && address < end && size_bytes <= end - address;
  }
};
/// Returns the allocation that an address of global memory lies in.
using Regions = std::function<Region(std::uintptr_t address)>;

/// Generic addresses with these bits set are those of shared and of local memory.
constexpr std::uint64_t shared_window = std::uint64_t{1} << 56, local_window = std::uint64_t{2} << 56;

/// Parts of a block that its warps share.
struct BlockState {
  const Kernel* kernel;
  const std::vector<std::byte>* parameters;
  const Regions* regions;
  SharedMemory* shared;
  std::vector<GroupProducts>* products;  ///< by warp group
  unsigned number, count;                ///< index of the block, number of blocks
  int threads;
};

enum class Access { read, write, copy };

/// The threads of a warp. Lanes at the same instruction execute it together. Of lanes at different ones, those at the
/// first continue, so that they meet again after a branch.
class Warp {
 public:
  Warp(const BlockState& block, int number);

  /// Prepares it for the block's next number.
  void reset();
  /// Runs until all lanes have ended or wait for other warps. Returns whether it has executed anything; if not, it
  /// waits for other warps. Throws PtxError, which names kernel, block, thread, line and instruction.
  bool run();
  bool has_ended() const { return ended_ == all_lanes; }
  bool is_at_barrier() const { return at_barrier_ == all_lanes; }
  void pass_barrier();
  /// Throws PtxError for lanes at a barrier that the other threads of the block do not reach.
  [[noreturn]] void fail_at_barrier() const;
  bool is_attempting() const { return attempting_ != 0; }
  /// Throws PtxError for lanes that wait for a phase of an mbarrier which does not end.
  [[noreturn]] void fail_attempt() const;
  /// Throws PtxError unless the warp has begun the products of its group, and waited for them.
  void check_products() const;

  // For operations.

  std::uint64_t* row(int number) { return &registers_[static_cast<std::size_t>(number * warp_size)]; }
  int number() const { return number_; }
  SharedMemory& shared() { return *block_.shared; }
  /// Memory of an instruction's address for a lane. Throws PtxError if it is outside the memory of the kernel, not
  /// aligned to its size, or on a race.
  std::byte* memory(const Instruction& instruction, Space space, int address, int lane, std::size_t size_bytes,
                    Access access);
  [[noreturn]] void fail(const Instruction& instruction, int lane, const std::string& reason) const;

  PendingProducts& products() { return products_; }
  /// Notes a product. Throws PtxError if another warp of the group has begun a different one.
  void begin_product(const Instruction& instruction, const GroupProduct& product);

  /// An asynchronous copy of a lane; `from` is null for zeros.
  struct Copy {
    const std::byte* from;
    std::size_t to, size_bytes, valid_bytes;
  };
  void begin_copy(int lane, const Copy& copy) { groups_[lane_index(lane)].back().push_back(copy); }
  void commit_copies(int lane) { groups_[lane_index(lane)].emplace_back(); }
  /// Makes the copies of all committed groups of the lane except the latest.
  void wait_for_copies(int lane, std::size_t latest);

 private:
  static std::size_t lane_index(int lane) { return static_cast<std::size_t>(lane); }
  int thread_of(int lane) const { return number_ * warp_size + lane; }
  /// The running lanes at the first instruction that any of them has reached.
  Lanes first_lanes();
  void run_together(Lanes lanes);
  /// Fails if the instruction accesses a register of a product under way, and notes which register it writes.
  void check_registers(const Instruction& instruction, Lanes lanes);
  GroupProducts& products_of_group() const { return (*block_.products)[static_cast<std::size_t>(number_ / 4)]; }
  /// Executes an attempt of the `active` of these lanes, which are at it.
  void attempt(const Instruction& instruction, Lanes lanes, Lanes active);
  /// Executes a collective operation, or lets the lanes wait for the others.
  void meet(const Instruction& instruction, Lanes lanes);
  Lanes guarded(const Instruction& instruction, Lanes lanes);
  Lanes lanes_at(int instruction) const;
  void go_to(Lanes lanes, int instruction);
  std::uint64_t check_global(const Instruction& instruction, int lane, std::uint64_t address, std::size_t size_bytes);
  void check_race(const Instruction& instruction, int lane, std::size_t offset, std::size_t size_bytes, Access access);

  const BlockState& block_;
  int number_;
  std::vector<std::uint64_t> registers_;
  std::vector<std::byte> local_;
  std::array<int, warp_size> at_{};  // instruction of each lane
  int first_other_ = 0;              // first instruction of the running lanes that do not advance
  Lanes ended_ = 0, at_barrier_ = 0, waiting_ = 0, attempting_ = 0;  // the rest runs
  bool advanced_ = false;                                            // since the begin of `run`
  Region region_;                                                    // allocation of the latest access
  std::array<std::deque<std::vector<Copy>>, warp_size> groups_;      // the last is not committed
  PendingProducts products_;
  std::size_t products_begun_ = 0;  // number of the group's products that this warp has begun
};

struct Launch {
  unsigned blocks = 1;
  int threads = warp_size;       ///< block size, a multiple of 32
  std::size_t shared_bytes = 0;  ///< dynamic
  /// The kernel's parameters, as PTX declares them.
  std::vector<std::byte> parameters;
};

/// Runs the blocks of a kernel one after the other, on the calling thread. Global memory is the host's; `regions` gives
/// the part that the kernel may access. Throws PtxError for accesses elsewhere, races in shared memory, barriers that
/// some threads do not reach, phases that do not end, and more threads than the kernel was compiled for.
void run(const Kernel& kernel, const Launch& launch, const Regions& regions);

/// Packs arguments, given by address, as the parameters of a kernel.
std::vector<std::byte> pack_parameters(const Kernel& kernel, std::span<const void* const> arguments);

}  // namespace trireme::ptx

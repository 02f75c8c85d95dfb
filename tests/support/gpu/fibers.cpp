#include "tests/support/gpu/fibers.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/gpu/check_launch.hpp"
#include "tests/support/gpu/fiber_context.hpp"

namespace trireme::gpu::host {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr unsigned max_threads = 1024;  // maximum of a block

/// Barrier that some fibers reach and then all pass. Rounds alternate, so that a late fiber is not ordered after the
/// next round.
class Meeting {
 public:
  void arrive() { released(&arrived_[round_]); }
  /// Returns after all have arrived; their writes are visible to the caller.
  void gather() { acquired(&arrived_[round_]); }
  /// All may pass; a new round begins.
  void open() {
    gather();
    released(&passed_[round_]);
    round_ = 1 - round_;
  }
  /// After `open`.
  void pass() { acquired(&passed_[1 - round_]); }

 private:
  int round_ = 0;
  char arrived_[2], passed_[2];
};

enum class State : std::uint8_t { ready, at_barrier, at_phase, in_collective, ended };

/// Copy of sixteen bytes to shared memory that is in flight; zeros where the source is null.
struct Copy {
  void* to;
  const void* from;
  void make() const {
    accessed(from, to);
    if (from != nullptr)
      std::memcpy(to, from, 16);
    else
      std::memset(to, 0, 16);
  }
};

struct Fiber {
  Context context;
  std::deque<std::vector<Copy>> copies{1};  // groups of copies; the last is not yet committed
  std::unique_ptr<char, void (*)(char*)> memory{nullptr, nullptr};
  std::source_location where;
  void* argument = nullptr;
  const PhaseBarrier* barrier = nullptr;  // whose phase it waits for
  unsigned phase = 0;
  bool phase_has_ended() const { return barrier->phase % 2 != phase % 2; }
};

/// Sets all elements, without memset, which ThreadSanitizer would take for accesses of the running thread.
template <class T>
void set_all(std::span<T> elements, T value) {
  for (volatile T& element : elements) element = value;
}

struct SharedPiece {
  std::unique_ptr<void, void (*)(void*)> memory{nullptr, std::free};
  std::size_t size_bytes = 0;
  bool fresh = false;  // not yet filled for this block
  char allocated;      // a point in time

  void poison() {
    set_all<unsigned char>({static_cast<unsigned char*>(memory.get()), size_bytes}, 0xff);
    fresh = false;
  }
};

std::string line(const std::source_location& where) {
  const std::string path = where.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), where.line());
}
bool same(const std::source_location& a, const std::source_location& b) {
  if (a.line() != b.line()) return false;
  return a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
}

class Machine {
 public:
  unsigned order_seed = 0;

  void run(const Launch& launch, const std::function<void()>& body) {
    if (launch.threads <= 0 || launch.threads > static_cast<int>(max_threads) || launch.threads % warp_size != 0)
      throw std::logic_error(fmt::format("kernel {}: {} threads a block", launch.kernel, launch.threads));
    launch_ = &launch;
    body_ = &body;
    host_.adopt();
    fibers_.reserve(max_threads);  // fibers keep references to themselves
    while (fibers_.size() < static_cast<std::size_t>(launch.threads)) add_fiber();
    shared_.clear();
    blockDim.x = static_cast<unsigned>(launch.threads);
    gridDim.x = static_cast<unsigned>(launch.blocks);
    std::vector<unsigned> blocks(static_cast<std::size_t>(launch.blocks)), threads(blockDim.x);
    std::iota(blocks.begin(), blocks.end(), 0U);
    std::iota(threads.begin(), threads.end(), 0U);
    if (order_seed != 0) {
      std::mt19937 random(order_seed);
      std::shuffle(blocks.begin(), blocks.end(), random);
      std::shuffle(threads.begin(), threads.end(), random);
    }
    for (const unsigned block : blocks) run_block(block, threads);
    shared_.clear();
  }

  void wait(State state, const std::source_location& where) {
    Fiber& fiber = fibers_[threadIdx.x];
    states_[threadIdx.x] = state;
    fiber.where = where;
    from_host_ = !select_next();
    (from_host_ ? host_ : fibers_[threadIdx.x].context).enter(fiber.context);
  }

  void block_barrier(const std::source_location& where) {
    barrier_.arrive();
    wait(State::at_barrier, where);
    barrier_.pass();
  }

  void collective(unsigned threads, void* argument, void (*combine)(Arguments), const std::source_location& where) {
    const unsigned first = threadIdx.x & ~(threads - 1), first_warp = first / warp_size;
    const std::span<Fiber> all(&fibers_[first], threads);
    Meeting& meeting = meetings_[first_warp];
    all[threadIdx.x - first].argument = argument;
    meeting.arrive();
    const std::span<unsigned> waiting(&waiting_[first_warp], threads / warp_size);
    if (std::accumulate(waiting.begin(), waiting.end(), 1U) < threads || !others_wait_at(where, all)) {
      ++waiting_[threadIdx.x / warp_size];
      wait(State::in_collective, where);
      return meeting.pass();
    }
    for (unsigned i = 0; i < threads; ++i) arguments_[i] = all[i].argument;
    set_all<State>({&states_[first], threads}, State::ready);
    set_all(waiting, 0U);
    meeting.gather();
    combine({arguments_.data(), threads});
    meeting.open();
  }

  void arrive(PhaseBarrier& barrier) {
    released(&barrier);
    if (--barrier.missing > 0) return;
    barrier.missing = barrier.arrivals;
    ++barrier.phase;
  }
  void wait_for_phase(PhaseBarrier& barrier, unsigned phase, const std::source_location& where) {
    Fiber& fiber = fibers_[threadIdx.x];
    fiber.barrier = &barrier;
    fiber.phase = phase;
    wait(State::at_phase, where);
    acquired(&barrier);
  }

  void* shared(const void* owner, std::size_t size_bytes) {
    SharedPiece& piece = shared_[owner];
    if (piece.memory == nullptr) {
      void* memory = nullptr;
      if (posix_memalign(&memory, 16, size_bytes) != 0) throw std::bad_alloc();
      piece.memory.reset(memory);
      piece.size_bytes = size_bytes;
      check_shared_bytes();
      piece.fresh = true;
      released(&piece.allocated);
    }
    acquired(&piece.allocated);
    if (piece.fresh) piece.poison();
    return piece.memory.get();
  }
  const char* kernel() const { return launch_->kernel; }
  void* dynamic_shared() { return shared(nullptr, launch_->shared_bytes); }

  void copy_async(void* shared, const void* global, bool valid) {
    const Copy copy{shared, valid ? global : nullptr};
    if (order_seed != 0) return copy.make();
    fibers_[threadIdx.x].copies.back().push_back(copy);
  }
  void commit_copies() { fibers_[threadIdx.x].copies.emplace_back(); }
  void wait_for_copies(std::size_t latest) {
    auto& groups = fibers_[threadIdx.x].copies;
    for (; groups.size() > latest + 1; groups.pop_front()) {
      for (const Copy& copy : groups.front()) copy.make();
    }
  }

  /// Runs one thread of a block, from begin to end.
  void run_thread() {
    acquired(&begin_);
    try {
      (*body_)();
    } catch (...) {
      fault_ = std::current_exception();
    }
    released(&end_);
  }

 private:
  /// Returns whether the other fibers of a group, all in collectives, are in that one.
  bool others_wait_at(const std::source_location& where, std::span<const Fiber> all) const {
    return std::ranges::all_of(
        all, [&](const Fiber& fiber) { return &fiber == &fibers_[threadIdx.x] || same(fiber.where, where); });
  }
  /// Selects the next thread of this round that may run, in order. Returns false after the last, and after a fault.
  bool select_next() {
    for (; next_ < order_.size() && !fault_; ++next_) {
      const unsigned thread = order_[next_];
      if (states_[thread] == State::at_phase && fibers_[thread].phase_has_ended()) states_[thread] = State::ready;
      if (states_[thread] != State::ready) continue;
      threadIdx.x = thread;
      ++next_;
      return true;
    }
    return false;
  }
  /// Checks the shared memory of the block, as far as it is known.
  void check_shared_bytes() const {
    std::size_t all = launch_->shared_bytes;
    for (const auto& [owner, piece] : shared_) {
      if (owner != nullptr) all += piece.size_bytes;
    }
    const std::size_t max_bytes =
        launch_->shared_bytes > shared_bytes_unasked ? max_shared_bytes : std::size_t{48} << 10;
    if (all > max_bytes)
      throw std::logic_error(fmt::format("kernel {}: {} bytes of shared memory, {} of them dynamic; {} can be had",
                                         launch_->kernel, all, launch_->shared_bytes, max_bytes));
  }
  void add_fiber();
  [[noreturn]] static void fiber_main();

  void run_block(unsigned block, const std::vector<unsigned>& order) {
    blockIdx.x = block;
    released(&begin_);
    for (auto& [owner, piece] : shared_) piece.fresh = true;
    set_all<unsigned>(waiting_, 0U);
    for (const unsigned thread : order) {
      states_[thread] = State::ready;
      std::deque<std::vector<Copy>>& copies = fibers_[thread].copies;
      if (copies.size() > 1 || !copies.front().empty()) copies.assign(1, {});
    }
    order_ = order;
    for (;;) {
      next_ = 0;
      if (select_next()) {
        from_host_ = true;
        fibers_[threadIdx.x].context.enter(host_);  // returns after all that may run have
        if (fault_) {
          fibers_.clear();
          std::rethrow_exception(std::exchange(fault_, nullptr));
        }
        continue;
      }
      const auto all_are = [&](State state) {
        return std::all_of(states_.begin(), states_.begin() + blockDim.x, [&](State s) { return s == state; });
      };
      if (all_are(State::ended)) return acquired(&end_);
      const std::source_location& where = fibers_[0].where;
      if (!all_are(State::at_barrier) || !std::all_of(fibers_.begin(), fibers_.begin() + blockDim.x,
                                                      [&](const Fiber& fiber) { return same(fiber.where, where); })) {
        const std::string message = report(block);
        fibers_.clear();
        throw std::logic_error(message);
      }
      barrier_.open();
      set_all<State>({states_.data(), blockDim.x}, State::ready);
    }
  }

  /// Lists the threads that wait, and where.
  std::string report(unsigned block) const {
    std::string text = fmt::format("kernel {}, block {} is stuck:", launch_->kernel, block);
    const auto state_of = [&](unsigned thread) {
      const State state = states_[thread];
      if (state == State::ended) return std::string("have ended");
      const char* what = state == State::at_phase ? "end of a phase" : state == State::in_collective ? "warp" : "block";
      return fmt::format("wait at {} for the {}", line(fibers_[thread].where), what);
    };
    for (unsigned begin = 0, end = 0; begin < blockDim.x; begin = end) {
      while (end < blockDim.x && state_of(end) == state_of(begin)) ++end;
      text += fmt::format(" threads {} to {} {};", begin, end - 1, state_of(begin));
    }
    text.pop_back();
    return text;
  }

  const Launch* launch_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr fault_;  // exception of a thread
  Context host_;
  std::span<const unsigned> order_;  // threads of the block
  std::size_t next_ = 0;             // index in order_ of the next thread of this round
  bool from_host_ = false;           // true if the host entered the running fiber
  std::vector<Fiber> fibers_;
  std::array<State, max_threads> states_{};  // close together for the processor's cache
  Meeting barrier_, meetings_[max_threads / warp_size];
  std::array<void*, max_threads> arguments_;                 // those of a collective
  std::array<unsigned, max_threads / warp_size> waiting_{};  // fibers of each warp that are in collectives
  char begin_, end_;                                         // points in time, of a block
  std::map<const void*, SharedPiece> shared_;
};

Machine machine;
Starter the_starter;
Memory the_memory;

void Machine::add_fiber() {
  // A protected page lies below the stack.
  void* memory = mmap(nullptr, stack_bytes + page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page_bytes, PROT_NONE);
  Fiber& fiber = fibers_.emplace_back();
  fiber.memory = {static_cast<char*>(memory), [](char* stack) { munmap(stack, stack_bytes + page_bytes); }};
  // Stacks that all began at the same place of a page would displace each other in the processor's cache.
  const std::size_t unused = fibers_.size() * 640 % page_bytes;
  fiber.context.prepare(static_cast<char*>(memory) + page_bytes, stack_bytes - unused, &Machine::fiber_main);
}

void Machine::fiber_main() {
  machine.fibers_[threadIdx.x].context.arrived(machine.from_host_ ? &machine.host_ : nullptr);
  for (;;) {
    machine.run_thread();
    machine.wait(State::ended, {});
  }
}

}  // namespace

void set_order(unsigned seed) { machine.order_seed = seed; }
void run(const Launch& launch, const std::function<void()>& body) { machine.run(launch, body); }
void set_memory(Memory memory) { the_memory = std::move(memory); }
void check_memory(const Launch& launch, const void* pointer) {
  if (pointer == nullptr || !the_memory || the_memory(pointer)) return;
  throw std::logic_error(fmt::format("kernel {} was given memory that is not the GPU's", launch.kernel));
}
void set_starter(Starter starter) { the_starter = std::move(starter); }
void start(Stream& stream, const Launch& launch, std::function<void()> body) {
  check_launch(launch, max_shared_bytes);
  if (!the_starter) return run(launch, body);
  the_starter(stream, launch, [launch, body = std::move(body)] { run(launch, body); });
}
void collective(unsigned threads, void* argument, void (*combine)(Arguments), const std::source_location& where) {
  machine.collective(threads, argument, combine, where);
}
void arrive(PhaseBarrier& barrier) { machine.arrive(barrier); }
void wait_for_phase(PhaseBarrier& barrier, unsigned phase, const std::source_location& where) {
  machine.wait_for_phase(barrier, phase, where);
}
void block_barrier(const std::source_location& where) { machine.block_barrier(where); }
void check_alignment(const void* address, const std::source_location& where) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 == 0) return;
  throw std::logic_error(
      fmt::format("kernel {}, {}: an address that is not a multiple of 16", machine.kernel(), line(where)));
}
void* shared_memory(const void* owner, std::size_t size_bytes) { return machine.shared(owner, size_bytes); }
void* dynamic_shared_memory() { return machine.dynamic_shared(); }
void copy_async(void* shared, const void* global, bool valid) { machine.copy_async(shared, global, valid); }
void commit_copies() { machine.commit_copies(); }
void wait_for_copies(std::size_t latest) { machine.wait_for_copies(latest); }

}  // namespace trireme::gpu::host

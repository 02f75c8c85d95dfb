#include "tests/ptx/order.hpp"

#include <algorithm>

#include "tests/ptx/instruction.hpp"

namespace trireme::ptx {

Order::Order(int threads)
    : threads_(static_cast<std::size_t>(threads)),
      epochs_(threads_ / warp_size, 1),
      barrier_epochs_(epochs_.size(), 1),
      seen_(epochs_.size() * threads_) {}

std::size_t Order::warp_of(int thread) { return static_cast<std::size_t>(thread / warp_size); }

bool Order::precedes(const Access& access, int warp, int thread) const {
  if (access.thread == nobody || access.thread == thread ||
      access.epoch < barrier_epochs_[static_cast<std::size_t>(warp)]) {
    return true;
  }
  const std::uint32_t* known = seen(static_cast<int>(warp_of(thread)));
  if (access.thread >= 0) return access.epoch < known[access.thread];
  const auto is_known = [&](std::uint32_t epoch) { return access.epoch < epoch; };
  const std::uint32_t* lanes = known + warp * warp_size;
  return access.thread == all_lanes ? std::any_of(lanes, lanes + warp_size, is_known)
                                    : std::all_of(lanes, lanes + warp_size, is_known);
}

void Order::pass_block_barrier() {
  for (std::uint32_t& epoch : epochs_) ++epoch;
  barrier_epochs_ = epochs_;
}

void Order::pass_warp_barrier(int warp) {
  std::fill_n(seen(warp) + warp * warp_size, warp_size, ++epochs_[static_cast<std::size_t>(warp)]);
}

void Order::publish(int thread, Known& known) {
  const std::size_t warp = warp_of(thread);
  const std::uint32_t* from = seen(static_cast<int>(warp));
  known.resize(threads_);
  for (std::size_t i = 0; i < threads_; ++i) known[i] = std::max(known[i], from[i]);
  known[static_cast<std::size_t>(thread)] = ++epochs_[warp];
}

void Order::learn(int thread, const Known& known) {
  std::uint32_t* to = seen(static_cast<int>(warp_of(thread)));
  for (std::size_t i = 0; i < known.size(); ++i) to[i] = std::max(to[i], known[i]);
}

}  // namespace trireme::ptx

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Sample order of a corpus, expensive to compute.
struct SampleOrder {
  const TokenStore& store;
  std::string name;         ///< DocumentRange::name
  std::string description;  ///< everything the order depends on: equal descriptions imply equal bytes
};

/// Stores the arrays of orders for other ranks and later runs.
class IndexCache {
 public:
  using Arrays = std::vector<std::span<const std::byte>>;
  struct Kept {
    Arrays arrays;                      ///< each aligned to 64 bytes
    std::shared_ptr<const void> owner;  ///< owner of their memory; null if nothing valid is stored
  };
  virtual ~IndexCache() = default;
  virtual Kept find(const SampleOrder& order) = 0;
  /// Stores the arrays of an order and returns the stored ones; nothing if they are small or storing failed, which is
  /// logged.
  virtual Kept keep(const SampleOrder& order, const Arrays& arrays) = 0;
};

/// Logs the computation of an order that takes more than about a second: `what` before `compute` runs, and its time
/// afterwards. `steps` counts the entries that are shuffled or read.
template <class Compute>
void compute_with_log(const std::string& name, double steps, const std::string& what, const Compute& compute) {
  constexpr double logged_steps = 1e7;
  if (steps < logged_steps) return compute();
  log::info("order of {}: computing {}", name, what);
  const Timer timer;
  compute();
  log::info("order of {}: computed in {:.1f} s", name, timer.elapsed_s());
}

}  // namespace trireme::data

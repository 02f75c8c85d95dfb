#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Order of the samples of a corpus, which takes long to compute.
struct SampleOrder {
  const TokenStore& store;
  std::string name;         ///< DocumentRange::name
  std::string description;  ///< all that the order depends on: the same description always means the same bytes
};

/// Keeps the arrays of orders for other ranks and later runs.
class IndexCache {
 public:
  using Arrays = std::vector<std::span<const std::byte>>;
  struct Kept {
    Arrays arrays;                      ///< each aligned to 64 bytes
    std::shared_ptr<const void> owner;  ///< owner of their memory; null where nothing sound is kept
  };
  virtual ~IndexCache() = default;
  virtual Kept find(const SampleOrder& order) = 0;
  /// Keeps the arrays of an order and returns them as they are kept; nothing where they are few, or that failed, which
  /// it logs.
  virtual Kept keep(const SampleOrder& order, const Arrays& arrays) = 0;
};

/// Logs the computation of an order that takes more than about a second: `what` is computed before `compute` runs, and
/// its time after it. `steps` counts the entries that are shuffled or read.
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

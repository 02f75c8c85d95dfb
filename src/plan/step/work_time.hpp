#pragma once

#include <array>
#include <span>

#include "src/plan/cluster/cluster.hpp"
#include "src/plan/cost/collective_cost.hpp"
#include "src/plan/work/stage_work.hpp"

namespace trireme::plan {

/// Communication by its purpose.
enum class Traffic {
  tensor,      ///< sums, gathers and scatters of activations in a tensor group
  context,     ///< keys and values in a context group
  pipeline,    ///< messages between stages
  gradients,   ///< reduction of gradients over data and context ranks, and of the tied embedding
  parameters,  ///< gathers of updated parameters
  scalars,     ///< loss, norm of gradients
};
constexpr int traffic_count = static_cast<int>(Traffic::scalars) + 1;
const char* name_of(Traffic traffic);

/// Time of communication.
struct TrafficTime {
  double exposed_ms = 0;  ///< while the rank waits
  double hidden_ms = 0;   ///< beside its own work
};

/// Time of a rank's work, in milliseconds. It forms a vector space: layers are differences of chunks.
struct WorkTime {
  double products = 0;
  double attention = 0;
  double memory_bound = 0;  ///< norms, dropout, activations, copies, embedding, cross entropy
  double optimizer = 0;     ///< with clearing and norm of gradients
  double gaps = 0;          ///< after launches, and where the host waits
  std::array<TrafficTime, traffic_count> traffic{};

  double exposed() const;
  double total() const { return products + attention + memory_bound + optimizer + gaps + exposed(); }
  TrafficTime& of(Traffic kind) { return traffic[static_cast<std::size_t>(kind)]; }
  const TrafficTime& of(Traffic kind) const { return traffic[static_cast<std::size_t>(kind)]; }
  WorkTime& operator+=(const WorkTime& other);
  friend WorkTime operator+(WorkTime a, const WorkTime& b) { return a += b; }
  friend WorkTime operator*(double factor, WorkTime work);
};

/// Groups of a rank in which a stage communicates.
struct StageGroups {
  GroupPlacement tensor, context;
};

/// Time of recorded events on a rank of `cluster`. Collectives of a group run one after another beside kernels; waits
/// for them are exposed. Products beside a tensor group's collective leave it the multiprocessors that the program
/// leaves it. On a CPU (Cluster::cores_per_node) the rank's own cores move data inside a node: nothing of it is hidden.
WorkTime time_of(const Cluster& cluster, std::span<const WorkEvent> events, const StageGroups& groups, bool graphs);

}  // namespace trireme::plan

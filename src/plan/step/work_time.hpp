#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "src/parallel/grid/process_grid.hpp"
#include "src/plan/cluster/cluster.hpp"
#include "src/plan/cost/costs.hpp"
#include "src/plan/simulation.hpp"
#include "src/plan/work/recorded_work.hpp"

namespace trireme::plan {

/// Communication step of a rank: starts an operation, or waits for one it has started.
struct OverlapStep {
  enum class Kind { start, wait };
  double compute = 0;  ///< compute time since the previous step, in any unit
  Kind kind = Kind::start;
  int operation = 0;    ///< number of the communication, from 0
  double duration = 0;  ///< duration of the communication that starts; unused in a wait
  int link = 0;         ///< link used, from 0; unused in a wait
};

/// Time of a rank's steps, and the part of it in which the rank waited for each operation.
struct CriticalPath {
  double time = 0;            ///< until the last step
  std::vector<double> waits;  ///< by operation
};

/// Serialises the communications of a link in the order of their starts, while the rank computes; a wait lasts until
/// its communication completes. ConfigError for a wait without a start.
CriticalPath critical_path(std::span<const OverlapStep> steps);

/// Communication by its purpose.
enum class Traffic {
  tensor,      ///< sums, gathers and scatters of activations in a tensor group
  context,     ///< keys and values in a context group
  experts,     ///< tokens and their results in an expert group
  pipeline,    ///< messages between stages
  gradients,   ///< reduction of gradients over data and context ranks, and of the tied embedding
  parameters,  ///< gathers of updated parameters
  scalars,     ///< loss, norm of gradients
  host,        ///< activations and the optimizer's state, to and from host memory
};
constexpr int traffic_count = static_cast<int>(Traffic::host) + 1;
const char* name_of(Traffic traffic);

/// Time of communication.
struct TrafficTime {
  double exposed_ms = 0;  ///< while the rank waits
  double hidden_ms = 0;   ///< overlapped with its own work
};

/// Time of a rank's work, in milliseconds. It forms a vector space: layers are differences of chunks.
struct WorkTime {
  double products = 0;
  double attention = 0;
  double memory_bound = 0;   ///< norms, dropout, activations, copies, embedding, cross entropy
  double optimizer = 0;      ///< including gradient clearing and norm; without hidden_update
  double hidden_update = 0;  ///< part of the update beside the next forward
  double gaps = 0;           ///< after launches, and while the host waits
  double idle = 0;           ///< gaps, waits, and the idle time of products (ProductTime), for other kernels
  std::array<TrafficTime, traffic_count> traffic{};

  double exposed() const;
  double total() const { return products + attention + memory_bound + optimizer + gaps + exposed(); }
  TrafficTime& of(Traffic kind) { return traffic[static_cast<std::size_t>(kind)]; }
  const TrafficTime& of(Traffic kind) const { return traffic[static_cast<std::size_t>(kind)]; }
  /// Adds copies to and from host memory beside `others` milliseconds of other work.
  void add_host_copies(double ms, double others) {
    of(Traffic::host).exposed_ms += std::max(0.0, ms - others);
    of(Traffic::host).hidden_ms += std::min(ms, others);
  }
  WorkTime& operator+=(const WorkTime& other);
  friend WorkTime operator+(WorkTime a, const WorkTime& b) { return a += b; }
  friend WorkTime operator*(double factor, WorkTime work);
  friend WorkTime operator-(WorkTime a, const WorkTime& b) { return a += -1 * b; }
};

/// Times of a chunk of the model, or of a part of it, with a micro-batch. A backward in halves may be all that is set.
struct ChunkTime {
  WorkTime forward, backward, backward_input, backward_weight;

  ChunkTime& operator+=(const ChunkTime& other) {
    forward += other.forward;
    backward += other.backward;
    backward_input += other.backward_input;
    backward_weight += other.backward_weight;
    return *this;
  }
  friend ChunkTime operator*(double factor, ChunkTime chunk) {
    chunk.forward = factor * chunk.forward;
    chunk.backward = factor * chunk.backward;
    chunk.backward_input = factor * chunk.backward_input;
    chunk.backward_weight = factor * chunk.backward_weight;
    return chunk;
  }
  friend ChunkTime operator+(ChunkTime a, const ChunkTime& b) { return a += b; }
  friend ChunkTime operator-(ChunkTime a, const ChunkTime& b) { return a += -1 * b; }
};

/// Placements of a rank's groups.
class GroupPlacements {
 public:
  GroupPlacements(const Cluster& cluster, const parallel::ProcessGrid& grid);
  const GroupPlacement& of(parallel::GroupKind kind) const { return groups_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<GroupPlacement, std::size(parallel::all_group_kinds)> groups_;
};

/// Sums the time of recorded events on a rank of a cluster. Collectives of one kind of traffic are serialised and
/// overlap with kernels; waits for them are exposed. Products concurrent with a tensor group's collective leave it
/// multiprocessors as in the program. On a CPU (Cluster::cores_per_node) the rank's own cores move data inside a node:
/// none of it is hidden.
class WorkTimer {
 public:
  /// All must outlive this object.
  WorkTimer(const Cluster& cluster, CallCosts& costs, const GroupPlacements& groups, bool graphs)
      : cluster_(cluster), costs_(costs), groups_(groups), graphs_(graphs) {}

  /// Adds events in their order. `traffic` is the purpose of all their communication; by default derived from their
  /// groups. Waits for operations that started before the first event take no time.
  void add(std::span<const WorkEvent> events, std::optional<Traffic> traffic = {});
  /// Lets time pass for work that is counted elsewhere.
  void pass(double ms) { computed_ += ms; }
  /// Time of all events so far.
  WorkTime time() const;

 private:
  void start(const WorkEvent& event, std::optional<Traffic> traffic);
  void wait(int operation);

  const Cluster& cluster_;
  CallCosts& costs_;
  const GroupPlacements& groups_;
  bool graphs_;
  WorkTime time_;
  std::vector<OverlapStep> steps_;
  std::vector<std::optional<Traffic>> kinds_;  // by operation, of those that have started
  double computed_ = 0;                        // since the last of the steps
  int in_flight_ = 0;                          // collectives of the tensor group
};

/// Time of only these events.
WorkTime time_of(const Cluster& cluster, CallCosts& costs, std::span<const WorkEvent> events,
                 const GroupPlacements& groups, bool graphs);

/// Times of one unit of parameters with a micro-batch: its forward, WorkTime::idle of that, and the step that completes
/// its gradients.
struct UnitTime {
  double forward = 0;
  double idle = 0;
  double backward = 0;
};

/// Time that a rank spends on its update.
struct UpdateTime {
  WorkTime clearing;
  WorkTime reduction;  ///< after its last backward, plus the excess of its last backward over others
  WorkTime norm;
  WorkTime update;  ///< plus the next forwards' waits for parameters
};

/// Times recorded updates of one rank. `units` are those of `work`, in its order.
class UpdateTimer {
 public:
  /// All must outlive this object.
  UpdateTimer(const Cluster& cluster, CallCosts& costs, const GroupPlacements& groups, const UpdateWork& work,
              const std::vector<UnitTime>& units, bool graphs)
      : cluster_(cluster), costs_(costs), groups_(groups), work_(work), units_(units), graphs_(graphs) {}

  /// Excess of every backward of a chunk over its units: from gradients rounded or, in ZeRO 2, reduced after each
  /// micro-batch.
  WorkTime hooks(int chunk) const;

  /// Time of the update after the rank's `steps`, whose backwards contain `hooks`. Overlapped reductions start when the
  /// last backward has passed a bucket's last unit. Overlapped gathers extend into the next forwards, which occur at
  /// the times of these steps.
  UpdateTime update(const std::vector<TimedStep>& steps, int micro_batches, int chunks) const;

 private:
  WorkTimer timer() const { return {cluster_, costs_, groups_, graphs_}; }
  WorkTime reduction(const std::vector<TimedStep>& steps, int last_micro_batch) const;
  WorkTime optimizer(const std::vector<TimedStep>& steps) const;

  const Cluster& cluster_;
  CallCosts& costs_;
  const GroupPlacements& groups_;
  const UpdateWork& work_;
  const std::vector<UnitTime>& units_;
  bool graphs_;
};

}  // namespace trireme::plan

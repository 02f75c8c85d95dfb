#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/plan/search/candidates.hpp"
#include "src/plan/work/device_stand_in.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme::plan {

/// Time and memory of jobs, queried by a search.
class JobCosts {
 public:
  virtual ~JobCosts() = default;
  /// ConfigError if the program could not run the job.
  virtual StepPrediction predict(const Job& job) = 0;
  /// Cheap lower bound of the fullest rank's bytes.
  virtual double min_bytes(const Job& job) = 0;
  /// Memory of a rank of pipeline stage `stage`, by a rehearsal.
  virtual train::MemoryEstimate memory(const Job& job, int stage) = 0;
  /// Bytes of a rank's device that a run may take, and of host memory for each rank.
  virtual double limit_bytes() const = 0;
  virtual double host_limit_bytes() const = 0;
};

/// Costs of a cluster. Reserves a twentieth of device memory for the driver, NCCL and recorded graphs, and a fifth of
/// host memory for everything else. Ranks on a CPU share the memory of their node, which is all that they have.
class ClusterCosts final : public JobCosts {
 public:
  explicit ClusterCosts(const Cluster& cluster);
  ~ClusterCosts() override;

  StepPrediction predict(const Job& job) override { return predictor_.predict(job); }
  /// With P parameters on average over the ranks, and a bytes that a layer keeps of a micro-batch: the bytes of P, and
  /// a x layers of the first stage in flight, without offloaded ones. The first stage has as many parameters as the
  /// others, and the embedding; only P counts where chunks differ.
  double min_bytes(const Job& job) override;
  train::MemoryEstimate memory(const Job& job, int stage) override;
  double limit_bytes() const override;
  double host_limit_bytes() const override;

 private:
  std::size_t layer_bytes(const Job& job);

  StepPredictor predictor_;
  std::unique_ptr<Backend> device_;
  std::map<std::string, std::size_t> layer_bytes_;
};

/// Maximum of the micro-batches of all chunks that are in flight on the first rank (parallel::make_schedule).
int in_flight(parallel::ScheduleKind kind, int stages, int chunks, int micro_batches);

/// The fastest layout of a grid that fits into memory.
struct RankedGrid {
  Job job;
  StepPrediction step;
  std::vector<train::MemoryEstimate> memory;  ///< that of the fullest rank; of the first grid, that of every stage

  std::size_t max_bytes() const;
};

struct SearchResult {
  std::vector<RankedGrid> grids;  ///< fastest first
  std::vector<Rejection> rejections;
  int layouts = 0;    ///< layouts considered
  int predicted = 0;  ///< layouts whose step was predicted
  int rehearsed = 0;  ///< rehearsals of a rank's memory
  double limit_bytes = 0;
};

/// Searches the `wanted` fastest grids. A layout is predicted if the lower bound of its fullest rank fits; memory is
/// rehearsed from the fastest on. Found layouts are then improved one axis at a time (`variants`). Ties keep the order
/// of `candidates`, so results are deterministic. If no layout fits, all are tried with the optimizer's state in host
/// memory.
SearchResult search(const SearchSpace& space, JobCosts& costs, int wanted);

/// Predicts a single job, with the memory of every stage.
RankedGrid predict_one(const Job& job, JobCosts& costs);

}  // namespace trireme::plan

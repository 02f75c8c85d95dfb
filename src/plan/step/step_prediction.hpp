#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/model/model_config.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/plan/step/work_time.hpp"
#include "src/plan/work/recorded_work.hpp"
#include "src/train/train_options.hpp"

namespace trireme::plan {

/// A training run whose step is predicted.
struct Job {
  model::ModelConfig model;
  train::ExecutionConfig execution;
  train::TrainOptions options;  ///< global batch, clipping and optimizer; the rest is not read
  parallel::ProcessGrid grid;
};

/// Distribution of the job's layers among chunks.
parallel::PipelineLayout layout_of(const Job& job);
inline int chunks_of(const Job& job) { return layout_of(job).chunks; }
/// Returns whether all chunks have the same layers.
bool has_equal_chunks(const Job& job);
parallel::ScheduleKind schedule_of(const Job& job);
/// Micro-batches of an update on each data rank.
int micro_batches_of(const Job& job);

/// Prediction of a training step. The work is that of the busiest pipeline rank. Work, with its exposed communication,
/// and the bubble add up to the step. If ranks share cores (Cluster::cores_per_node), a node takes at least the time of
/// its cores for the work of all: a waiting rank yields its core.
struct StepPrediction {
  double step_ms = 0;
  WorkTime work;
  double bubble_ms = 0;     ///< waits for other stages, for messages between them, and for a core
  double recompute_ms = 0;  ///< part of the work recomputed in backward
  double model_flops = 0;   ///< FLOPs of all ranks (model::model_flops)
  Simulation schedule;      ///< one data rank's pipeline, in milliseconds; of a long one the first and last rounds
};

/// Predicts steps of this program on a cluster. A rank's work comes from a rehearsal of its code, cached for later
/// predictions; its time comes from the cluster's costs.
class StepPredictor {
 public:
  explicit StepPredictor(Cluster cluster);
  ~StepPredictor();
  StepPredictor(const StepPredictor&) = delete;

  const Cluster& cluster() const { return cluster_; }
  /// ConfigError if the program could not run the job.
  StepPrediction predict(const Job& job);

 private:
  struct Parts;
  struct Stage;
  struct Keys {
    std::string stage, update;
  };
  const Parts& parts_of(const Job& job, const std::string& key, const GroupPlacements& groups);
  const UpdateWork& update_of(const Job& job, const std::string& key, int rank);
  Stage stage_of(const Job& job, const Keys& keys, const GroupPlacements& groups, int rank);
  /// Times of messages between stages, without those of chunks.
  ScheduleTimes message_times(const Job& job, const GroupPlacements& groups, double boundary_bytes) const;

  Cluster cluster_;
  CallCosts costs_;
  std::map<std::string, std::unique_ptr<Parts>> parts_;         ///< by what the work of a stage depends on
  std::map<std::string, std::unique_ptr<UpdateWork>> updates_;  ///< by that of updates
};

inline StepPrediction predict_step(const Cluster& cluster, const Job& job) {
  return StepPredictor(cluster).predict(job);
}

}  // namespace trireme::plan

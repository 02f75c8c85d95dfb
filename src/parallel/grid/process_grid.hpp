#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace trireme::parallel {

/// The groups a rank belongs to.
enum class GroupKind {
  tensor,     ///< splits every layer of one stage of one replica
  pipeline,   ///< the stages of one replica, first to last
  context,    ///< splits the sequences of one replica by positions
  data,       ///< holds the same parameters and the same part of sequences, of different samples
  gradient,   ///< holds the same parameters: context x data, over which gradients are summed
  model,      ///< holds all parameters together: the tensor groups of all stages
  embedding,  ///< first and last stage, which share the tied embedding; no group for the ranks between
  // Only if experts are divided over ranks; otherwise no rank is in such a group.
  expert,  ///< holds all experts of a layer and exchanges tokens; with expert tensor size T, of one tensor rank
  expert_gradient,  ///< holds the same part of the same experts
  expert_model,     ///< holds all experts together: expert tensor x expert x pipeline
  expert_tensor,    ///< splits each expert; no group if that is the tensor group
};
const char* name_of(GroupKind kind);

/// Returns the divisors of `n`, ascending.
std::vector<int> divisors(int n);
inline constexpr GroupKind all_group_kinds[] = {
    GroupKind::tensor,          GroupKind::pipeline,     GroupKind::context,      GroupKind::data,
    GroupKind::gradient,        GroupKind::model,        GroupKind::embedding,    GroupKind::expert,
    GroupKind::expert_gradient, GroupKind::expert_model, GroupKind::expert_tensor};

struct GridPosition {
  int tensor = 0;
  int context = 0;
  int data = 0;
  int pipeline = 0;
  friend bool operator==(const GridPosition&, const GridPosition&) = default;
};

/// Grid of ranks, as in Megatron-LM: rank = tensor + T (context + C (data + D pipeline)). A tensor group, which
/// communicates most, has neighbouring ranks and so lies within one node. Pure arithmetic, no communication.
///
/// Experts divide the S = T C D ranks of a stage anew (Liu et al. 2025, arXiv:2504.14960), into X ranks that split each
/// expert, N that divide the experts of a layer, and S / (X N) that hold the same: rank in the stage = expert tensor +
/// X (expert + N expert data). With X = T, the default, these are the tensor groups, and N neighbours in a gradient
/// group.
class ProcessGrid {
 public:
  /// `data_size` 0 means world_size / (tensor_size pipeline_size context_size). Throws ConfigError, with the factors
  /// and the nearest grids that fit, unless the sizes multiply to `world_size`, and `expert_size` x
  /// `expert_tensor_size`, 0: `tensor_size`, divides the ranks of a stage.
  ProcessGrid(int world_size, int tensor_size, int pipeline_size, int context_size = 1, int data_size = 0,
              int expert_size = 1, int expert_tensor_size = 0);

  int world_size() const { return tensor_size_ * context_size_ * data_size_ * pipeline_size_; }
  int tensor_size() const { return tensor_size_; }
  int context_size() const { return context_size_; }
  int data_size() const { return data_size_; }
  int pipeline_size() const { return pipeline_size_; }
  /// Ranks that hold the same parameters.
  int gradient_size() const { return context_size_ * data_size_; }
  /// Ranks of a pipeline stage, on all replicas.
  int stage_size() const { return tensor_size_ * gradient_size(); }
  /// Ranks over which the experts of a layer are divided, those that split each, and those that hold the same part.
  int expert_size() const { return expert_size_; }
  int expert_tensor_size() const { return expert_tensor_size_; }
  int expert_gradient_size() const { return stage_size() / (expert_size_ * expert_tensor_size_); }
  /// Returns whether other ranks split the experts than the rest of a layer.
  bool folds_experts() const { return expert_tensor_size_ != tensor_size_; }
  /// Neighbours in a group that exchanges tokens, GroupKind::expert, that split each expert; 0: the tensor group does.
  int expert_splits() const { return folds_experts() ? expert_tensor_size_ : 0; }
  /// Ranks of that group.
  int token_group_size() const { return expert_size_ * std::max(expert_splits(), 1); }

  GridPosition position(int rank) const;
  int rank(const GridPosition& position) const;
  /// Number of `rank` in its gradient group.
  int gradient_rank(int rank) const { return rank / tensor_size_ % gradient_size(); }
  int expert_tensor_rank(int rank) const { return rank % stage_size() % expert_tensor_size_; }
  int expert_rank(int rank) const { return rank % stage_size() / expert_tensor_size_ % expert_size_; }
  int expert_gradient_rank(int rank) const { return rank % stage_size() / (expert_tensor_size_ * expert_size_); }

  bool has(GroupKind kind) const {
    if (kind < GroupKind::expert) return true;
    return folds_experts() || (expert_size_ > 1 && kind != GroupKind::expert_tensor);
  }
  /// World ranks of the group of this kind that `rank` is in, in the group's order; empty if it is in none.
  std::vector<int> group(GroupKind kind, int rank) const;
  /// All groups of a kind, ordered by their first member.
  std::vector<std::vector<int>> groups(GroupKind kind) const;

  /// "rank 5: tensor 1 of 2, data 0 of 2, pipeline 1 of 2", with "context 0 of 2, " before the data if there are
  /// several context ranks, and "expert 0 of 2, " after it if there are several expert ranks, then "expert tensor 0 of
  /// 1, " if other ranks split the experts.
  std::string describe(int rank) const;
  /// Drawing of the grid for the log: a row for each pipeline stage, a column for each replica. A cell has the ranks of
  /// its tensor and context groups. At most eight replicas and sixteen stages are drawn.
  std::string diagram() const;

 private:
  /// Throws ConfigError unless the ranks of a stage divide into expert groups.
  void check_experts() const;

  int tensor_size_;
  int context_size_;
  int data_size_;
  int pipeline_size_;
  int expert_size_;
  int expert_tensor_size_;
};

}  // namespace trireme::parallel

#pragma once

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
  expert,           ///< divides the experts of every layer: neighbours in the gradient group
  expert_gradient,  ///< holds the same experts: the ranks of a gradient group with equal expert rank
  expert_model,     ///< holds all experts together: tensor x expert x pipeline
};
const char* name_of(GroupKind kind);
inline constexpr GroupKind all_group_kinds[] = {GroupKind::tensor,      GroupKind::pipeline, GroupKind::context,
                                                GroupKind::data,        GroupKind::gradient, GroupKind::model,
                                                GroupKind::embedding,   GroupKind::expert,   GroupKind::expert_gradient,
                                                GroupKind::expert_model};

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
/// Expert size N divides the gradient groups, in which a rank has the number r = context + C data, into groups of N
/// neighbours: expert rank r % N, expert-data rank r / N.
class ProcessGrid {
 public:
  /// `data_size` 0 means world_size / (tensor_size pipeline_size context_size). Throws ConfigError, with the factors
  /// and the nearest grids that fit, unless the sizes multiply to `world_size` and `expert_size` divides context_size x
  /// data_size.
  ProcessGrid(int world_size, int tensor_size, int pipeline_size, int context_size = 1, int data_size = 0,
              int expert_size = 1);

  int world_size() const { return tensor_size_ * context_size_ * data_size_ * pipeline_size_; }
  int tensor_size() const { return tensor_size_; }
  int context_size() const { return context_size_; }
  int data_size() const { return data_size_; }
  int pipeline_size() const { return pipeline_size_; }
  /// Ranks that hold the same parameters.
  int gradient_size() const { return context_size_ * data_size_; }
  /// Ranks over which the experts of a layer are divided, and those that hold the same experts.
  int expert_size() const { return expert_size_; }
  int expert_gradient_size() const { return gradient_size() / expert_size_; }

  GridPosition position(int rank) const;
  int rank(const GridPosition& position) const;
  /// Number of `rank` in its gradient group.
  int gradient_rank(int rank) const { return rank / tensor_size_ % gradient_size(); }
  int expert_rank(int rank) const { return gradient_rank(rank) % expert_size_; }
  int expert_gradient_rank(int rank) const { return gradient_rank(rank) / expert_size_; }

  /// Returns whether the grid has groups of this kind.
  bool has(GroupKind kind) const { return expert_size_ > 1 || kind < GroupKind::expert; }
  /// World ranks of the group of this kind that `rank` is in, in the group's order; empty if it is in none.
  std::vector<int> group(GroupKind kind, int rank) const;
  /// All groups of a kind, ordered by their first member.
  std::vector<std::vector<int>> groups(GroupKind kind) const;

  /// "rank 5: tensor 1 of 2, data 0 of 2, pipeline 1 of 2", with "context 0 of 2, " before the data if there are
  /// several context ranks, and "expert 0 of 2, " after it if there are several expert ranks.
  std::string describe(int rank) const;
  /// Drawing of the grid for the log: a row for each pipeline stage, a column for each replica. A cell has the ranks of
  /// its tensor and context groups. At most eight replicas and sixteen stages are drawn.
  std::string diagram() const;

 private:
  int tensor_size_;
  int context_size_;
  int data_size_;
  int pipeline_size_;
  int expert_size_;
};

}  // namespace trireme::parallel

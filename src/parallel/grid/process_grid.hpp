#pragma once

#include <string>
#include <vector>

namespace trireme::parallel {

/// The groups a rank belongs to.
enum class GroupKind {
  tensor,     ///< shares every layer of one stage of one replica
  pipeline,   ///< the stages of one replica, first to last
  data,       ///< holds the same parameters, sees different samples
  model,      ///< one replica: all that work on the same samples
  embedding,  ///< first and last stage, which share the tied embedding; no group for the ranks between
};
std::string to_string(GroupKind kind);

struct GridPosition {
  int tensor = 0;
  int data = 0;
  int pipeline = 0;
  friend bool operator==(const GridPosition&, const GridPosition&) = default;
};

/// The arrangement of ranks, as in Megatron-LM: rank = tensor + T (data + D pipeline), so that a tensor group, which
/// talks most, sits on neighbouring ranks and so within one node. Pure arithmetic, no communication.
class ProcessGrid {
 public:
  /// data_size 0 means what the world leaves: world_size / (tensor_size pipeline_size). ConfigError with the factors
  /// and the nearest grids that fit where it does not divide.
  ProcessGrid(int world_size, int tensor_size, int pipeline_size, int data_size = 0);

  int world_size() const { return tensor_size_ * data_size_ * pipeline_size_; }
  int tensor_size() const { return tensor_size_; }
  int data_size() const { return data_size_; }
  int pipeline_size() const { return pipeline_size_; }

  GridPosition position(int rank) const;
  int rank(const GridPosition& position) const;

  /// World ranks of the group of this kind that `rank` is in, in the group's order; empty where it is in none.
  std::vector<int> group(GroupKind kind, int rank) const;
  /// All groups of a kind, ordered by their first member.
  std::vector<std::vector<int>> groups(GroupKind kind) const;

  /// "rank 5: tensor 1 of 2, data 0 of 2, pipeline 1 of 2"
  std::string describe(int rank) const;
  /// A picture of the grid for the log: a row for each pipeline stage, a column for each replica, in each place the
  /// ranks of a tensor group. At most eight replicas and sixteen stages are drawn.
  std::string diagram() const;

 private:
  int tensor_size_;
  int data_size_;
  int pipeline_size_;
};

}  // namespace trireme::parallel

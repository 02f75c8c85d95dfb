#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

/// Gathers each matrix, divided into shards of its gradient group and boxes of its tensor ranks, on one rank, and
/// scatters the result. A bucket's matrices are taken in rounds of one for each rank of both groups, so that all ranks
/// work at once. A matrix that tensor ranks do not split is complete on each of them. Collective over both groups,
/// which make the same calls.
class WholeMatrices {
 public:
  /// Work on a piece of parameter i, flat, or on all of it, in the parameter's shape; in the accumulation type.
  using Action = std::function<void(std::size_t i, TensorView values)>;

  /// `parameters`, whose matrices are those for which `is_matrix` holds, must live longer.
  WholeMatrices(Backend& backend, const parallel::ParameterBuffer& parameters,
                std::vector<parallel::GradientGroup> groups, bool (*is_matrix)(const parallel::Parameter&));

  /// Elements of the largest matrix on any rank; 0 if there is none.
  std::int64_t max_elements() const { return max_elements_; }

  /// For each matrix of a bucket: `fill` sets this rank's piece, `transform` changes the full matrix on one rank, `use`
  /// reads this rank's piece of the result, which it may overwrite.
  void transform(std::size_t bucket, const Action& fill, const Action& transform, const Action& use);

 private:
  /// A matrix in its round.
  struct Matrix {
    std::size_t i = 0;
    int holder = 0;                     ///< rank of the gradient group that gathers the shards
    int owner = 0;                      ///< rank of the tensor group that gathers the boxes
    int dimension = -1;                 ///< along which tensor ranks split it; -1: they do not
    std::int64_t piece = 0, local = 0;  ///< places in the arrays of pieces and boxes
  };
  using Round = std::vector<Matrix>;

  const parallel::GradientGroup& group_of(std::size_t bucket) const {
    return groups_[static_cast<std::size_t>(parameters_.layout().buckets()[bucket].gradient_group)];
  }
  const parallel::GradientGroup& group_of(const Matrix& matrix) const {
    return group_of(parameters_.layout().bucket_of(matrix.i));
  }
  bool is_sharded(const Matrix& matrix) const { return parameters_.layout().home_of(matrix.i).shards > 1; }
  parallel::ShardRange range_of(const Matrix& matrix, int rank) const;
  TensorView piece_of(const Matrix& matrix) const;
  TensorView local_of(const Matrix& matrix) const;
  void exchange_shards(const Round& round, Communicator& holders, bool gathers);
  void exchange_boxes(const Round& round, const parallel::GradientGroup& group, bool gathers);
  /// Copies the boxes of all tensor ranks, one after another, into the full matrix, or back.
  void copy_boxes(const Matrix& matrix, bool gathers);

  Backend& backend_;
  const parallel::ParameterBuffer& parameters_;
  std::vector<parallel::GradientGroup> groups_;
  std::vector<std::vector<Round>> rounds_;  // by bucket
  std::int64_t max_elements_ = 0;
  Tensor pieces_, locals_, boxes_, whole_;
};

}  // namespace trireme::optim

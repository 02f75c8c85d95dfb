#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

/// Returns the place of each job, of 0 to places - 1: the largest job that is left goes to the place with the least
/// work (Graham 1969, doi:10.1137/0117039: at most 4/3 of the best possible). The first of equal jobs and places comes
/// first.
std::vector<int> places_by_work(std::span<const double> work, int places);

/// Gathers each matrix, divided into shards of its gradient group and boxes of its tensor ranks, on one rank, and
/// scatters the result. The matrices of a gradient group are divided over its ranks and tensor ranks by their work, and
/// taken in rounds, in which each rank has a batch of equal shape. A matrix that tensor ranks do not split is complete
/// on each of them. The division depends only on shapes. Collective over both groups, which make the same calls.
class WholeMatrices {
 public:
  /// Work on a piece of parameter i, flat.
  using Action = std::function<void(std::size_t i, TensorView values)>;
  /// Work on all of a batch, [matrices, rows, columns].
  using BatchAction = std::function<void(TensorView batch)>;

  /// `parameters` must live longer. `matrices_of` returns the matrices of a parameter, [count, rows, columns], or a
  /// shape of rank 0 for other parameters; pieces and batches are of type `dtype`.
  WholeMatrices(Backend& backend, const parallel::ParameterBuffer& parameters,
                std::vector<parallel::GradientGroup> groups, DType dtype,
                const std::function<Shape(const parallel::Parameter&)>& matrices_of);

  /// Shapes of this rank's batches.
  std::vector<Shape> batches() const;

  /// For each matrix: `fill` sets this rank's piece, `transform` changes the batch with the full matrix on one rank,
  /// `use` reads this rank's piece of the result.
  void transform(const Action& fill, const BatchAction& transform, const Action& use);

 private:
  /// Matrices of a parameter, in their round.
  struct Matrix {
    std::size_t i = 0;
    Shape shape;                        ///< [count, rows, columns]
    int holder = 0;                     ///< rank of the gradient group that gathers the shards
    int owner = 0;                      ///< rank of the tensor group that gathers the boxes
    int dimension = -1;                 ///< along which tensor ranks split it; -1: they do not
    std::int64_t piece = 0, local = 0;  ///< places in the arrays of pieces and boxes
    std::int64_t whole = 0;             ///< place in the array of full matrices, for the owner
  };
  /// Matrices of one gradient group, all of which tensor ranks split, or none.
  struct Round {
    std::size_t group = 0;
    bool split = false;
    std::vector<Matrix> matrices;
  };

  /// Adds the rounds of some matrices of a group, which tensor ranks split or not.
  void plan(std::size_t group, bool split, std::vector<Matrix> matrices);
  /// Sets the places of a round's matrices in the arrays, and makes room for them.
  void place(Round& round);
  bool is_sharded(const Matrix& matrix) const { return parameters_.layout().home_of(matrix.i).shards > 1; }
  const parallel::GradientGroup& group_of(const Round& round) const { return groups_[round.group]; }
  /// Returns whether this rank transforms a matrix.
  bool is_own(const Round& round, const Matrix& matrix) const {
    return matrix.holder == group_of(round).gradient.rank() &&
           (!round.split || matrix.owner == group_of(round).tensor.rank());
  }
  /// Shape of this rank's batch; no matrices if it has none.
  Shape batch_of(const Round& round) const;
  parallel::ShardRange range_of(const Matrix& matrix, int rank) const;
  TensorView piece_of(const Round& round, const Matrix& matrix) const;
  TensorView local_of(const Round& round, const Matrix& matrix) const;
  void exchange_shards(const Round& round, bool gathers);
  void exchange_boxes(const Round& round, bool gathers);
  /// Copies the boxes of all tensor ranks, one after another, into the full matrix, or back.
  void copy_boxes(const Round& round, const Matrix& matrix, bool gathers);

  Backend& backend_;
  const parallel::ParameterBuffer& parameters_;
  std::vector<parallel::GradientGroup> groups_;
  std::vector<Round> rounds_;
  std::int64_t max_pieces_ = 1, max_locals_ = 1, max_boxes_ = 1;
  Tensor pieces_, locals_, boxes_, whole_;
};

}  // namespace trireme::optim

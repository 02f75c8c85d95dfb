#include "src/optim/whole_matrices.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace trireme::optim {
namespace {

using parallel::Parameter;

/// Elements of a rank's batch beyond which it takes no further matrix: enough to fill a GPU with few, and little
/// memory.
constexpr std::int64_t batch_elements = 40'000'000;
/// Elements of a round's pieces where each rank has those of all ranks.
constexpr std::int64_t unsharded_elements = 320'000'000;

/// Dimension along which tensor ranks split a parameter; -1 if they do not.
int split_dimension(const Parameter& p) {
  for (int d = 0; d < p.shape.rank(); ++d) {
    if (p.box.extent[d] != p.shape[d]) return d;
  }
  return -1;
}

/// Multiply-adds of a step of Newton-Schulz: those of X X^T, of its square, and of a square and X.
double work_of(const Shape& matrices) {
  const auto count = static_cast<double>(matrices[0]);
  const auto [side, length] = std::minmax({static_cast<double>(matrices[1]), static_cast<double>(matrices[2])});
  return count * side * side * (2 * length + side);
}

}  // namespace

std::vector<int> places_by_work(std::span<const double> work, int places) {
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t job) { return work[job]; });
  std::vector<double> sums(static_cast<std::size_t>(places));
  std::vector<int> result(work.size());
  for (const std::size_t job : order) {
    const auto least = std::ranges::min_element(sums);
    *least += work[job];
    result[job] = static_cast<int>(least - sums.begin());
  }
  return result;
}

WholeMatrices::WholeMatrices(Backend& backend, const parallel::ParameterBuffer& parameters,
                             std::vector<parallel::GradientGroup> groups, DType dtype,
                             const std::function<Shape(const Parameter&)>& matrices_of)
    : backend_(backend), parameters_(parameters), groups_(std::move(groups)) {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    for (const bool split : {true, false}) {
      std::vector<Matrix> matrices;
      for (std::size_t i = 0; i < parameters.parameters().size(); ++i) {
        const Parameter& p = parameters.parameters()[i];
        const int dimension = split_dimension(p);
        if (static_cast<std::size_t>(p.gradient_group) != group || (dimension >= 0) != split) continue;
        if (const Shape shape = matrices_of(p); shape.rank() > 0) {
          matrices.push_back({.i = i, .shape = shape, .dimension = dimension});
        }
      }
      plan(group, split, std::move(matrices));
    }
  }
  const auto make = [&](std::int64_t elements) { return Tensor(backend, dtype, {elements}); };
  pieces_ = make(max_pieces_);
  locals_ = make(max_locals_);
  boxes_ = make(max_boxes_);
  whole_ = make(max_boxes_);
}

void WholeMatrices::plan(std::size_t group, bool split, std::vector<Matrix> matrices) {
  if (matrices.empty()) return;
  // Equal shapes follow one another, so that a rank's are few batches.
  const auto key = [](const Matrix& m) { return std::tuple(-work_of(m.shape), m.shape[1], m.shape[2]); };
  std::ranges::stable_sort(matrices, {}, key);
  const int holders = groups_[group].gradient.size(), places = holders * (split ? groups_[group].tensor.size() : 1);
  std::vector<double> work;
  for (const Matrix& matrix : matrices) work.push_back(work_of(matrix.shape));
  const std::vector<int> place_of = places_by_work(work, places);
  const std::int64_t limit =
      is_sharded(matrices.front()) ? batch_elements : std::min(batch_elements, unsharded_elements / holders);

  // The batch of each place that takes further matrices.
  struct Batch {
    std::size_t round = 0;
    Shape shape;
  };
  std::vector<Batch> batches(static_cast<std::size_t>(places));
  const std::size_t first = rounds_.size();
  for (std::size_t number = 0; number < matrices.size(); ++number) {
    Matrix& matrix = matrices[number];
    matrix.holder = place_of[number] % holders;
    matrix.owner = place_of[number] / holders;
    Batch& batch = batches[static_cast<std::size_t>(place_of[number])];
    const Shape& next = matrix.shape;
    const bool joins = batch.shape.rank() > 0 && batch.shape[1] == next[1] && batch.shape[2] == next[2] &&
                       batch.shape.numel() + next.numel() <= limit;
    if (joins) {
      batch.shape[0] += next[0];
    } else {
      batch.round += batch.shape.rank() > 0 ? 1 : 0;
      batch.shape = next;
    }
    if (first + batch.round == rounds_.size()) rounds_.push_back({.group = group, .split = split, .matrices = {}});
    rounds_[first + batch.round].matrices.push_back(matrix);
  }
  for (std::size_t round = first; round < rounds_.size(); ++round) place(rounds_[round]);
}

void WholeMatrices::place(Round& round) {
  std::int64_t pieces = 0, locals = 0, whole = 0;
  for (Matrix& matrix : round.matrices) {
    const Parameter& p = parameters_.parameters()[matrix.i];
    matrix.piece = std::exchange(pieces, pieces + parameters_.shard_range(matrix.i).count);
    matrix.local = locals;
    if (matrix.holder == group_of(round).gradient.rank()) locals += p.box.numel();
    matrix.whole = whole;
    if (is_own(round, matrix)) whole += p.shape.numel();
  }
  max_pieces_ = std::max(max_pieces_, pieces);
  if (group_of(round).gradient.size() > 1) max_locals_ = std::max(max_locals_, locals);
  if (round.split) max_boxes_ = std::max(max_boxes_, whole);
}

Shape WholeMatrices::batch_of(const Round& round) const {
  Shape batch{0, 0, 0};
  for (const Matrix& matrix : round.matrices) {
    if (is_own(round, matrix)) batch = {batch[0] + matrix.shape[0], matrix.shape[1], matrix.shape[2]};
  }
  return batch;
}

std::vector<Shape> WholeMatrices::batches() const {
  std::vector<Shape> shapes;
  for (const Round& round : rounds_) {
    if (const Shape batch = batch_of(round); batch[0] > 0) shapes.push_back(batch);
  }
  return shapes;
}

parallel::ShardRange WholeMatrices::range_of(const Matrix& matrix, int rank) const {
  return parameters_.layout().shard_range(matrix.i, parameters_.parameters()[matrix.i].stored_numel(),
                                          is_sharded(matrix) ? rank : 0);
}

TensorView WholeMatrices::piece_of(const Round& round, const Matrix& matrix) const {
  return pieces_.view().flat(matrix.piece, range_of(matrix, group_of(round).gradient.rank()).count);
}

TensorView WholeMatrices::local_of(const Round& round, const Matrix& matrix) const {
  // One rank's pieces are complete.
  const Tensor& locals = group_of(round).gradient.size() == 1 ? pieces_ : locals_;
  return locals.view().flat(matrix.local, parameters_.parameters()[matrix.i].box.numel());
}

void WholeMatrices::exchange_shards(const Round& round, bool gathers) {
  using enum Transfer::Direction;
  Communicator& holders = group_of(round).gradient;
  if (holders.size() == 1) return;
  Stream& stream = backend_.compute_stream();
  const int rank = holders.rank();
  std::vector<Transfer> transfers;
  for (const Matrix& matrix : round.matrices) {
    const TensorView piece = piece_of(round, matrix);
    // Without shards the holder has the complete box already.
    const bool is_sent = is_sharded(matrix) || !gathers;
    if (matrix.holder != rank) {
      if (piece.numel() > 0 && is_sent) transfers.push_back({gathers ? send : receive, matrix.holder, piece});
      continue;
    }
    for (int other = 0; other < holders.size(); ++other) {
      const parallel::ShardRange range = range_of(matrix, other);
      if (range.count == 0) continue;
      const TensorView part = local_of(round, matrix).flat(range.begin, range.count);
      if (other == rank) {
        backend_.elementwise().convert(stream, gathers ? piece : part, gathers ? part : piece);
      } else if (is_sent) {
        transfers.push_back({gathers ? receive : send, other, part});
      }
    }
  }
  holders.grouped_exchange(stream, transfers).wait(stream);
}

void WholeMatrices::exchange_boxes(const Round& round, bool gathers) {
  using enum Transfer::Direction;
  const parallel::GradientGroup& group = group_of(round);
  Stream& stream = backend_.compute_stream();
  const int rank = group.tensor.rank();
  std::vector<Transfer> transfers;
  for (const Matrix& matrix : round.matrices) {
    if (matrix.holder != group.gradient.rank()) continue;
    const TensorView local = local_of(round, matrix);
    if (matrix.owner != rank) {
      transfers.push_back({gathers ? send : receive, matrix.owner, local});
      continue;
    }
    for (int other = 0; other < group.tensor.size(); ++other) {
      const TensorView box = boxes_.view().flat(matrix.whole + other * local.numel(), local.numel());
      if (other == rank) {
        backend_.elementwise().convert(stream, gathers ? local : box, gathers ? box : local);
      } else {
        transfers.push_back({gathers ? receive : send, other, box});
      }
    }
  }
  group.tensor.grouped_exchange(stream, transfers).wait(stream);
}

void WholeMatrices::copy_boxes(const Round& round, const Matrix& matrix, bool gathers) {
  const Parameter& p = parameters_.parameters()[matrix.i];
  // The full matrix is [before, ranks, extent, after], the boxes are [ranks, before, extent, after].
  std::int64_t before = 1, after = 1;
  for (int d = 0; d < matrix.dimension; ++d) before *= p.shape[d];
  for (int d = matrix.dimension + 1; d < p.shape.rank(); ++d) after *= p.shape[d];
  const std::int64_t extent = p.box.extent[matrix.dimension], ranks = group_of(round).tensor.size();
  const HeadsShape shape = after == 1 ? HeadsShape{before, 1, ranks, extent} : HeadsShape{before, extent, ranks, after};
  const std::int64_t block = extent * after;
  const auto own = [&](const Tensor& array) { return array.view().flat(matrix.whole, p.shape.numel()); };
  const Heads boxes{own(boxes_), block, after, before * block}, whole{own(whole_), ranks * block, after, block};
  Stream& stream = backend_.compute_stream();
  backend_.attention().copy_heads(stream, shape, gathers ? boxes : whole, gathers ? whole : boxes);
}

void WholeMatrices::transform(const Action& fill, const BatchAction& transform, const Action& use) {
  for (const Round& round : rounds_) {
    const auto on_pieces = [&](const Action& action) {
      for (const Matrix& matrix : round.matrices) {
        if (const TensorView piece = piece_of(round, matrix); piece.numel() > 0) action(matrix.i, piece);
      }
    };
    on_pieces(fill);
    exchange_shards(round, true);
    const Shape shape = batch_of(round);
    if (!round.split) {
      const auto own = std::ranges::find_if(round.matrices, [&](const Matrix& m) { return is_own(round, m); });
      if (own != round.matrices.end()) {
        const Tensor& locals = group_of(round).gradient.size() == 1 ? pieces_ : locals_;
        const RepeatedProducts repeated(backend_.gemm(), group_of(round).tensor.size() > 1);
        transform(locals.view().flat(own->local, shape.numel()).reshape(shape));
      }
    } else {
      exchange_boxes(round, true);
      const auto copy_own = [&](bool gathers) {
        for (const Matrix& matrix : round.matrices) {
          if (is_own(round, matrix)) copy_boxes(round, matrix, gathers);
        }
      };
      copy_own(true);
      if (shape[0] > 0) transform(whole_.view().flat(0, shape.numel()).reshape(shape));
      copy_own(false);
      exchange_boxes(round, false);
    }
    exchange_shards(round, false);
    on_pieces(use);
  }
}

}  // namespace trireme::optim

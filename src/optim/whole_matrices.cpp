#include "src/optim/whole_matrices.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

namespace trireme::optim {
namespace {

using parallel::Parameter;

/// Dimension along which tensor ranks split a parameter; -1 if they do not.
int split_dimension(const Parameter& p) {
  for (int d = 0; d < p.shape.rank(); ++d) {
    if (p.box.extent[d] != p.shape[d]) return d;
  }
  return -1;
}

}  // namespace

WholeMatrices::WholeMatrices(Backend& backend, const parallel::ParameterBuffer& parameters,
                             std::vector<parallel::GradientGroup> groups, bool (*is_matrix)(const Parameter&))
    : backend_(backend),
      parameters_(parameters),
      groups_(std::move(groups)),
      rounds_(parameters.layout().buckets().size()) {
  std::int64_t max_pieces = 0, max_locals = 0, max_boxes = 0;
  for (std::size_t bucket = 0; bucket < rounds_.size(); ++bucket) {
    const parallel::GradientGroup& group = group_of(bucket);
    const int holders = group.gradient.size(), owners = group.tensor.size();
    int number = 0;
    std::int64_t pieces = 0, locals = 0;
    for (const std::size_t i : std::views::reverse(parameters.layout().buckets()[bucket].parameters)) {
      const Parameter& p = parameters.parameters()[i];
      if (!is_matrix(p)) continue;
      const int place = number++ % (holders * owners);
      if (place == 0) {
        rounds_[bucket].emplace_back();
        pieces = locals = 0;
      }
      const Matrix matrix{.i = i,
                          .holder = place % holders,
                          .owner = place / holders,
                          .dimension = split_dimension(p),
                          .piece = pieces,
                          .local = locals};
      pieces += parameters.shard_range(i).count;
      if (matrix.holder == group.gradient.rank()) locals += p.box.numel();
      if (matrix.dimension >= 0) max_boxes = std::max(max_boxes, p.shape.numel());
      max_elements_ = std::max(max_elements_, p.shape.numel());
      max_pieces = std::max(max_pieces, pieces);
      max_locals = std::max(max_locals, locals);
      rounds_[bucket].back().push_back(matrix);
    }
  }
  const DType type = accumulation_type(parameters.values().dtype());
  const auto make = [&](std::int64_t elements) { return Tensor(backend, type, {std::max<std::int64_t>(elements, 1)}); };
  pieces_ = make(max_pieces);
  locals_ = make(max_locals);
  boxes_ = make(max_boxes);
  whole_ = make(max_boxes);
}

parallel::ShardRange WholeMatrices::range_of(const Matrix& matrix, int rank) const {
  return parameters_.layout().shard_range(matrix.i, parameters_.parameters()[matrix.i].stored_numel(),
                                          is_sharded(matrix) ? rank : 0);
}

TensorView WholeMatrices::piece_of(const Matrix& matrix) const {
  return pieces_.view().flat(matrix.piece, range_of(matrix, group_of(matrix).gradient.rank()).count);
}

TensorView WholeMatrices::local_of(const Matrix& matrix) const {
  const Parameter& p = parameters_.parameters()[matrix.i];
  return locals_.view().flat(matrix.local, p.box.numel()).reshape(p.box.extent);
}

void WholeMatrices::exchange_shards(const Round& round, Communicator& holders, bool gathers) {
  using enum Transfer::Direction;
  const int rank = holders.rank();
  std::vector<Transfer> transfers;
  for (const Matrix& matrix : round) {
    const TensorView piece = piece_of(matrix);
    if (matrix.holder != rank) {
      // Without shards the holder has the complete box already.
      if (piece.numel() > 0 && (is_sharded(matrix) || !gathers)) {
        transfers.push_back({gathers ? send : receive, matrix.holder, piece});
      }
      continue;
    }
    const TensorView local = local_of(matrix);
    for (int other = 0; other < holders.size(); ++other) {
      const parallel::ShardRange range = range_of(matrix, other);
      if (range.count == 0) continue;
      const TensorView part = local.flat(range.begin, range.count);
      if (other == rank) {
        backend_.elementwise().convert(backend_.compute_stream(), gathers ? piece : part, gathers ? part : piece);
      } else if (is_sharded(matrix) || !gathers) {
        transfers.push_back({gathers ? receive : send, other, part});
      }
    }
  }
  Stream& stream = backend_.compute_stream();
  holders.grouped_exchange(stream, transfers).wait(stream);
}

void WholeMatrices::exchange_boxes(const Round& round, const parallel::GradientGroup& group, bool gathers) {
  using enum Transfer::Direction;
  const int rank = group.tensor.rank();
  std::vector<Transfer> transfers;
  for (const Matrix& matrix : round) {
    if (matrix.dimension < 0 || matrix.holder != group.gradient.rank()) continue;
    const TensorView local = local_of(matrix);
    if (matrix.owner != rank) {
      transfers.push_back({gathers ? send : receive, matrix.owner, local});
      continue;
    }
    for (int other = 0; other < group.tensor.size(); ++other) {
      const TensorView box = boxes_.view().flat(other * local.numel(), local.numel());
      if (other == rank) {
        backend_.elementwise().convert(backend_.compute_stream(), gathers ? local : box, gathers ? box : local);
      } else {
        transfers.push_back({gathers ? receive : send, other, box});
      }
    }
  }
  Stream& stream = backend_.compute_stream();
  group.tensor.grouped_exchange(stream, transfers).wait(stream);
}

void WholeMatrices::copy_boxes(const Matrix& matrix, bool gathers) {
  const Parameter& p = parameters_.parameters()[matrix.i];
  // The full matrix is [before, ranks, extent, after], the boxes are [ranks, before, extent, after].
  std::int64_t before = 1, after = 1;
  for (int d = 0; d < matrix.dimension; ++d) before *= p.shape[d];
  for (int d = matrix.dimension + 1; d < p.shape.rank(); ++d) after *= p.shape[d];
  const std::int64_t extent = p.box.extent[matrix.dimension], ranks = group_of(matrix).tensor.size();
  const HeadsShape shape = after == 1 ? HeadsShape{before, 1, ranks, extent} : HeadsShape{before, extent, ranks, after};
  const std::int64_t block = extent * after;
  const Heads boxes{boxes_, block, after, before * block}, whole{whole_, ranks * block, after, block};
  Stream& stream = backend_.compute_stream();
  backend_.attention().copy_heads(stream, shape, gathers ? boxes : whole, gathers ? whole : boxes);
}

void WholeMatrices::transform(std::size_t bucket, const Action& fill, const Action& transform, const Action& use) {
  const parallel::GradientGroup& group = group_of(bucket);
  for (const Round& round : rounds_[bucket]) {
    for (const Matrix& matrix : round) {
      if (const TensorView piece = piece_of(matrix); piece.numel() > 0) fill(matrix.i, piece);
    }
    exchange_shards(round, group.gradient, true);
    exchange_boxes(round, group, true);
    for (const Matrix& matrix : round) {
      if (matrix.holder != group.gradient.rank()) continue;
      if (matrix.dimension < 0) {
        transform(matrix.i, local_of(matrix));
      } else if (matrix.owner == group.tensor.rank()) {
        copy_boxes(matrix, true);
        const Shape& shape = parameters_.parameters()[matrix.i].shape;
        transform(matrix.i, whole_.view().flat(0, shape.numel()).reshape(shape));
        copy_boxes(matrix, false);
      }
    }
    exchange_boxes(round, group, false);
    exchange_shards(round, group.gradient, false);
    for (const Matrix& matrix : round) {
      if (const TensorView piece = piece_of(matrix); piece.numel() > 0) use(matrix.i, piece);
    }
  }
}

}  // namespace trireme::optim

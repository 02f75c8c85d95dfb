#include "src/parallel/expert/token_dispatcher.hpp"

#include <cmath>
#include <numeric>

#include "src/backend/fixed_indices.hpp"

namespace trireme::parallel {
namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

class AllGather final : public TokenDispatcher {
 public:
  AllGather(Backend& backend, Communicator* group, Arena& workspace, std::int64_t experts, double load, int splits)
      : TokenDispatcher(backend, group, workspace, experts, load, splits) {}

  Saved assign(ConstTensorView kept, TensorView weights, Arena& arena, const Room& room) const override {
    const std::int64_t n = kept.shape()[0] * ranks(), k = kept.shape()[1];
    const std::int64_t most = room.of_group > 0 ? local_ * room.of_group : n * k;
    Saved saved;
    saved.row_of = arena.allocate(DType::int32, {n, k});
    const TensorView slots = arena.allocate(DType::int32, {most}), tokens = arena.allocate(DType::int32, {most});
    saved.weights = weights;
    if (group_ != nullptr) {
      saved.weights = arena.allocate(weights.dtype(), {n, k});
      group_->all_gather(stream(), weights, saved.weights).wait(stream());
    }
    const ArenaScope scope(workspace_);
    const TensorView rows = workspace_.allocate(DType::int32, {local_});
    Transit choices = gather(kept);
    choices.arrival.wait(stream());
    backend_.experts().sort(stream(), choices.tokens, first_expert(), room.of_group, rows, saved.row_of, slots, tokens);
    saved.rows = room.of_group > 0 ? std::vector(static_cast<std::size_t>(local_), room.of_group)
                                   : read_rows(rows, n * k, first_expert());
    saved.slots = slots.rows(0, sum_of(saved.rows));
    saved.tokens = tokens.rows(0, sum_of(saved.rows));
    return saved;
  }

  void combine(const Saved& saved, ConstTensorView rows, TensorView y) const override {
    const ArenaScope scope(workspace_);
    const TensorView sum =
        group_ == nullptr ? y : workspace_.allocate(y.dtype(), {saved.row_of.shape()[0], y.shape()[1]});
    backend_.experts().sum_rows(stream(), rows, saved.row_of, sum);
    if (group_ != nullptr) group_->reduce_scatter(stream(), sum, y, ReduceOp::sum).wait(stream());
  }

  TensorView weight_gradients(const Saved&, TensorView of_slots) const override {
    if (group_ == nullptr) return of_slots;
    const TensorView own = workspace_.allocate(of_slots.dtype(), {of_slots.shape()[0] / ranks(), of_slots.shape()[1]});
    group_->reduce_scatter(stream(), of_slots, own, ReduceOp::sum).wait(stream());
    return own;
  }

 private:
  Transit send_tokens(const Saved&, ConstTensorView tokens) const override { return gather(tokens); }

  void order_rows(const Saved& saved, ConstTensorView tokens, TensorView rows) const override {
    backend_.embedding().lookup(stream(), saved.tokens, tokens, 0, rows);
  }

  /// Starts to gather a matrix of this rank's tokens over the group.
  Transit gather(ConstTensorView rows) const {
    if (group_ == nullptr) return {rows, {}};
    const TensorView all = workspace_.allocate(rows.dtype(), {rows.shape()[0] * ranks(), rows.shape()[1]});
    return {all, group_->all_gather(stream(), rows, all)};
  }
};

/// Sends each choice as a row, by expert: all rows for one place are neighbours, and go to each of its ranks. The
/// receiver orders them by expert.
class AllToAll final : public TokenDispatcher {
 public:
  AllToAll(Backend& backend, Communicator* group, Arena& workspace, std::int64_t experts, double load, int splits)
      : TokenDispatcher(backend, group, workspace, experts, load, splits) {}

  Saved assign(ConstTensorView kept, TensorView weights, Arena& arena, const Room& room) const override {
    const std::int64_t n = kept.shape()[0], k = kept.shape()[1],
                       most = room.of_rank > 0 ? experts_ * room.of_rank : n * k;
    Saved saved;
    saved.row_of = arena.allocate(DType::int32, {n, k});
    const TensorView slots = arena.allocate(DType::int32, {most}), tokens = arena.allocate(DType::int32, {most});
    const ArenaScope scope(workspace_);
    const TensorView own = workspace_.allocate(DType::int32, {experts_});
    backend_.experts().sort(stream(), kept, 0, room.of_rank, own, saved.row_of, slots, tokens);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks() * experts_),
                                     room.of_rank);  // by rank, then expert
    if (room.of_rank == 0) {
      const TensorView all = workspace_.allocate(DType::int32, {ranks() * experts_});
      group_->all_gather(stream(), own, all).wait(stream());
      counts = read_rows(all, n * k, 0);
    }
    count_rows(counts, saved);
    saved.tokens = tokens.rows(0, sum_of(saved.sent));
    set_order(counts, room, saved, arena);
    saved.slots = saved.arrivals;
    const std::int64_t sent = saved.tokens.numel();
    const TensorView sent_weights = workspace_.allocate(weights.dtype(), {sent, 1});
    backend_.embedding().lookup(stream(), slots.rows(0, sent), weights.reshape({n * k, 1}), 0, sent_weights);
    saved.weights = arena.allocate(weights.dtype(), {saved.arrivals.numel(), 1});
    send(saved, sent_weights, saved.weights).wait(stream());
    return saved;
  }

  void combine(const Saved& saved, ConstTensorView rows, TensorView y) const override {
    const ArenaScope scope(workspace_);
    const std::int64_t h = y.shape()[1];
    const TensorView returned = workspace_.allocate(y.dtype(), {saved.arrivals.numel(), h});
    backend_.embedding().lookup(stream(), saved.departures, rows, 0, returned);
    backend_.experts().sum_rows(stream(), send_back(saved, returned), saved.row_of, y);
  }

  TensorView weight_gradients(const Saved& saved, TensorView of_slots) const override {
    const Shape& shape = saved.row_of.shape();
    const TensorView own = workspace_.allocate(of_slots.dtype(), {shape.numel(), 1});
    const ArenaScope scope(workspace_);
    backend_.embedding().lookup(stream(), saved.row_of.reshape({shape.numel()}), send_back(saved, of_slots), 0, own);
    return own.reshape(shape);
  }

 private:
  Transit send_tokens(const Saved& saved, ConstTensorView tokens) const override {
    const std::int64_t h = tokens.shape()[1];
    const TensorView sent = workspace_.allocate(tokens.dtype(), {saved.tokens.numel(), h});
    const TensorView arrived = workspace_.allocate(tokens.dtype(), {saved.arrivals.numel(), h});
    backend_.embedding().lookup(stream(), saved.tokens, tokens, 0, sent);
    return {arrived, send(saved, sent, arrived)};
  }

  void order_rows(const Saved& saved, ConstTensorView tokens, TensorView rows) const override {
    backend_.embedding().lookup(stream(), saved.arrivals, tokens, 0, rows);
  }

  void count_rows(const std::vector<std::int64_t>& counts, Saved& saved) const {
    const auto mine = static_cast<std::int64_t>(group_->rank());
    saved.rows.assign(static_cast<std::size_t>(local_), 0);
    for (std::int64_t rank = 0; rank < ranks(); ++rank) {
      std::int64_t received = 0;
      for (std::int64_t i = 0; i < local_; ++i) {
        const std::int64_t here = counts[static_cast<std::size_t>(rank * experts_ + first_expert() + i)];
        received += here;
        saved.rows[static_cast<std::size_t>(i)] += here;
      }
      saved.received.push_back(received);
    }
    const auto own = counts.begin() + mine * experts_;
    for (std::int64_t place = 0; place < places(); ++place) {
      saved.sent.push_back(std::accumulate(own + place * local_, own + (place + 1) * local_, std::int64_t{0}));
    }
  }

  /// Sets the arrivals and departures. With `room` they are the same for all micro-batches, and stay on the device.
  void set_order(const std::vector<std::int64_t>& counts, const Room& room, Saved& saved, Arena& arena) const {
    const auto order = [&] { return order_by_expert(counts, saved); };
    if (room.of_rank > 0) {
      saved.arrivals = arrivals_.at(backend_, {room.of_rank, 0}, order);
      saved.departures = departures_.at(backend_, {room.of_rank, 0}, [&] { return inverse(order()); });
    } else {
      const std::vector<std::int32_t> arrivals = order();
      saved.arrivals = to_device(arrivals, arena);
      saved.departures = to_device(inverse(arrivals), arena);
    }
  }

  static std::vector<std::int32_t> inverse(const std::vector<std::int32_t>& order) {
    std::vector<std::int32_t> inverse(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
    }
    return inverse;
  }

  /// Numbers of the rows received, which are by rank and then expert, in the order by expert and then rank. A rehearsal
  /// has zeros.
  std::vector<std::int32_t> order_by_expert(const std::vector<std::int64_t>& counts, const Saved& saved) const {
    if (!backend_.supports(Capability::results)) {
      return std::vector<std::int32_t>(static_cast<std::size_t>(sum_of(saved.received)));
    }
    std::vector<std::int64_t> next(static_cast<std::size_t>(ranks()), 0);  // by rank: its first row not yet ordered
    std::exclusive_scan(saved.received.begin(), saved.received.end(), next.begin(), std::int64_t{0});
    std::vector<std::int32_t> order;
    for (std::int64_t i = 0; i < local_; ++i) {
      for (std::int64_t rank = 0; rank < ranks(); ++rank) {
        const std::int64_t count = counts[static_cast<std::size_t>(rank * experts_ + first_expert() + i)];
        for (std::int64_t j = 0; j < count; ++j) {
          order.push_back(static_cast<std::int32_t>(next[static_cast<std::size_t>(rank)]++));
        }
      }
    }
    return order;
  }

  TensorView to_device(const std::vector<std::int32_t>& numbers, Arena& arena) const {
    const TensorView device = arena.allocate(DType::int32, {std::ssize(numbers)});
    backend_.copy_from_host(stream(), ConstTensorView(numbers.data(), device.shape()), device);
    return device;
  }

  /// Consecutive rows of `data` for each rank of the group, or from it. `counts` are those of Saved::sent, whose rows
  /// the ranks of a place share or, with `apart`, have one copy after another; or those of Saved::received.
  std::vector<TensorView> parts_of(TensorView data, const std::vector<std::int64_t>& counts, bool apart = false) const {
    const bool by_place = std::ssize(counts) < ranks();
    std::vector<TensorView> parts;
    std::int64_t first = 0;
    for (std::int64_t rank = 0; rank < ranks(); ++rank) {
      const std::int64_t split = by_place ? rank % splits_ : 0;
      const std::int64_t count = counts[static_cast<std::size_t>(by_place ? rank / splits_ : rank)];
      parts.push_back(data.rows(first + (apart ? split * sum_of(counts) : 0), count));
      if (!by_place || split == splits_ - 1) first += count;
    }
    return parts;
  }

  /// Sends the rows `from`, by expert, to the ranks that hold their experts, and receives `to`, by rank.
  Work send(const Saved& saved, TensorView from, TensorView to) const {
    return exchange(parts_of(from, saved.sent), parts_of(to, saved.received));
  }

  /// Returns the rows `from`, by rank, to the ranks that sent them. Those that come back, summed over the ranks that
  /// split an expert, are in the work space, in the order in which they were sent.
  TensorView send_back(const Saved& saved, TensorView from) const {
    const std::int64_t sent = saved.tokens.numel();
    const TensorView back = workspace_.allocate(from.dtype(), {splits_ * sent, from.shape()[1]});
    exchange(parts_of(from, saved.received), parts_of(back, saved.sent, true)).wait(stream());
    const TensorView sum = back.rows(0, sent);
    for (std::int64_t split = 1; split < splits_; ++split) {
      backend_.elementwise().add(stream(), back.rows(split * sent, sent), sum);
    }
    return sum;
  }

  /// Sends from[r] to rank r, and receives to[r] from it.
  Work exchange(const std::vector<TensorView>& from, const std::vector<TensorView>& to) const {
    std::vector<Transfer> transfers;
    for (int rank = 0; rank < group_->size(); ++rank) {
      const TensorView own = from[static_cast<std::size_t>(rank)], other = to[static_cast<std::size_t>(rank)];
      if (rank == group_->rank()) {
        if (own.numel() > 0) backend_.elementwise().convert(stream(), own, other);
      } else {
        if (own.numel() > 0) transfers.push_back({Transfer::Direction::send, rank, own});
        if (other.numel() > 0) transfers.push_back({Transfer::Direction::receive, rank, other});
      }
    }
    return group_->grouped_exchange(stream(), transfers);
  }

  mutable FixedIndices arrivals_, departures_;  // by room
};

}  // namespace

std::unique_ptr<TokenDispatcher> TokenDispatcher::make(TokenDispatch route, Backend& backend, Communicator* group,
                                                       Arena& workspace, std::int64_t experts, double load,
                                                       int splits) {
  if (group != nullptr && route == TokenDispatch::all_to_all) {
    return std::make_unique<AllToAll>(backend, group, workspace, experts, load, splits);
  }
  return std::make_unique<AllGather>(backend, group, workspace, experts, load, splits);
}

TensorView TokenDispatcher::dispatch(const Saved& saved, ConstTensorView tokens,
                                     const std::function<void()>& meanwhile) const {
  const TensorView rows = workspace_.allocate(tokens.dtype(), {saved.slots.numel(), tokens.shape()[1]});
  const ArenaScope scope(workspace_);
  Transit transit = send_tokens(saved, tokens);
  if (meanwhile) meanwhile();
  transit.arrival.wait(stream());
  order_rows(saved, transit.tokens, rows);
  return rows;
}

std::vector<std::int64_t> TokenDispatcher::read_rows(ConstTensorView rows, std::int64_t all, std::int64_t first) const {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(rows.numel()));
  const auto size = static_cast<double>(places());
  const double load_elsewhere = places() == 1 ? 1 : (size - load_) / (size - 1);
  const auto rows_before = [&](std::int64_t expert) {
    const std::int64_t here = std::clamp<std::int64_t>(expert - first_expert(), 0, local_);
    const double shares = load_ * static_cast<double>(here) + load_elsewhere * static_cast<double>(expert - here);
    return std::llround(static_cast<double>(all) * shares / static_cast<double>(experts_));
  };
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::int64_t expert = (first + static_cast<std::int64_t>(i)) % experts_;
    numbers[i] = static_cast<std::int32_t>(rows_before(expert + 1) - rows_before(expert));
  }
  backend_.copy_to_host(stream(), rows, TensorView(numbers.data(), rows.shape()));
  stream().synchronize();
  return {numbers.begin(), numbers.end()};
}

}  // namespace trireme::parallel

#include "mpi/operations.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "mpi/reduction.hpp"

namespace trireme::mpi {
namespace {

// Large tensors are reduced in segments of this many bytes, to keep received data in cache until added. Measured with
// bench/collectives.
constexpr std::int64_t segment_bytes = std::int64_t{2} << 20;
// Segments in flight at a time. Without a waiting caller, ranks poll rarely: each poll should find several segments to
// continue.
constexpr std::int64_t window = 4;
// Up to this size every rank sends all its elements to every other: one step instead of two. Messages of 4 KiB and more
// are sent only after the receiver has posted its receive.
constexpr std::int64_t one_step_bytes = 2 << 10;
constexpr int one_step_ranks = 8;
// Among more ranks, small operations take steps of one message each (class Doubling): all-gathers of shards up to
// one_step_bytes, and all-reduces where the contributions of all ranks together have at most this many bytes.
constexpr std::int64_t doubling_bytes = 1 << 20;

/// Range of elements.
struct Range {
  std::int64_t begin;
  std::int64_t count;
};

/// Range of rank `index` when `count` elements are divided among `ranks`, in full cache lines as far as possible.
Range range_of(std::int64_t count, int ranks, int index) {
  constexpr std::int64_t line = 64;
  const std::int64_t width = ((count + ranks - 1) / ranks + line - 1) / line * line;
  const std::int64_t begin = std::min(count, width * index);
  return {begin, std::min(width, count - begin)};
}

/// The contributions of all ranks to one shard, in rank order: this rank's own, and those received into scratch memory.
class Contributions {
 public:
  Contributions(const Channel& channel, DType dtype, std::int64_t capacity)
      : channel_(channel),
        dtype_(dtype),
        slot_bytes_((static_cast<std::size_t>(capacity) * size_of(dtype) + 63) / 64 * 64),
        scratch_(channel.engine, std::max<std::size_t>(1, slot_bytes_ * static_cast<std::size_t>(channel.size))),
        sources_(static_cast<std::size_t>(channel.size)) {}

  void receive(Messages& messages, std::int64_t count, const std::byte* own) {
    for (int peer = 0; peer < channel_.size; ++peer) {
      std::byte* slot = scratch_.data() + static_cast<std::size_t>(peer) * slot_bytes_;
      sources_[static_cast<std::size_t>(peer)] = peer == channel_.rank ? own : slot;
      if (peer != channel_.rank) messages.receive(slot, static_cast<std::size_t>(count) * size_of(dtype_), peer);
    }
  }
  void reduce(ReduceOp op, std::byte* out, std::int64_t count) const {
    reduce_in_order(dtype_, op, sources_, out, count);
  }

 private:
  const Channel& channel_;
  DType dtype_;
  std::size_t slot_bytes_;
  ProgressEngine::Scratch scratch_;
  std::vector<const std::byte*> sources_;
};

/// Memory for one segment in flight: the contributions of other ranks, and the messages of both steps.
struct Lane {
  Lane(const Channel& channel, DType dtype, std::int64_t capacity)
      : contributions(channel, dtype, capacity), terms(channel.comm, channel.tag), sums(channel.comm, channel.tag) {}
  Contributions contributions;
  Messages terms;
  Messages sums;
};

/// The lanes for `segments` segments, whose shards have at most `capacity` elements. Segment i takes lane i modulo
/// their number.
std::deque<Lane> make_lanes(const Channel& channel, DType dtype, std::int64_t segments, std::int64_t capacity) {
  std::deque<Lane> lanes;
  for (std::int64_t i = 0; i < std::min(segments, window); ++i) lanes.emplace_back(channel, dtype, capacity);
  return lanes;
}

/// Visits the other ranks, starting after this one, to spread the load over receivers.
template <class Function>
void for_each_peer(const Channel& channel, Function function) {
  for (int step = 1; step < channel.size; ++step) function((channel.rank + step) % channel.size);
}

/// All-gathers the ranks' shards in ceil(log2 size) steps (Bruck et al. 1997, "Efficient algorithms for all-to-all
/// communications"). A step doubles what a rank holds: it sends one message and receives one.
class Doubling {
 public:
  Doubling(const Channel& channel, const std::byte* own, std::size_t shard_bytes)
      : channel_(channel),
        shard_bytes_(shard_bytes),
        shards_(channel.engine, shard_bytes * static_cast<std::size_t>(channel.size)) {
    std::memcpy(shards_.data(), own, shard_bytes);
  }
  bool complete() const { return held_ == channel_.size; }
  /// Begins the next step.
  void exchange(Messages& messages) {
    const int count = std::min(held_, channel_.size - held_);
    messages.receive(shards_.data() + bytes_of(held_), bytes_of(count), (channel_.rank + held_) % channel_.size);
    messages.send(shards_.data(), bytes_of(count), (channel_.rank - held_ + channel_.size) % channel_.size);
    held_ += count;
  }
  const std::byte* of_rank(int rank) const {
    return shards_.data() + bytes_of((rank - channel_.rank + channel_.size) % channel_.size);
  }

 private:
  std::size_t bytes_of(int shards) const { return static_cast<std::size_t>(shards) * shard_bytes_; }

  const Channel& channel_;
  std::size_t shard_bytes_;
  int held_ = 1;                    // shards of this rank and those that follow it, in a ring
  ProgressEngine::Scratch shards_;  // in this order
};

}  // namespace

Operation all_reduce(Channel channel, TensorView data, ReduceOp op) {
  const DType dtype = data.dtype();
  const auto item = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t numel = data.numel();

  if (numel * item <= one_step_bytes && channel.size <= one_step_ranks) {
    Messages messages(channel.comm, channel.tag);
    Contributions contributions(channel, dtype, numel);
    contributions.receive(messages, numel, data.data());
    for_each_peer(channel, [&](int peer) { messages.send(data.data(), data.size_bytes(), peer); });
    co_await messages;
    contributions.reduce(op, data.data(), numel);
    co_return;
  }
  if (numel * item <= one_step_bytes && op == ReduceOp::max && (dtype == DType::int64 || dtype == DType::int32)) {
    // The maximum of integers does not depend on their order, nor on how often each takes part. A step doubles the
    // ranks of which this one has the maximum, and sends one shard instead of theirs.
    Messages messages(channel.comm, channel.tag);
    ProgressEngine::Scratch received(channel.engine, data.size_bytes());
    for (int reach = 1; reach < channel.size; reach *= 2) {
      messages.receive(received.data(), data.size_bytes(), (channel.rank + reach) % channel.size);
      messages.send(data.data(), data.size_bytes(), (channel.rank - reach + channel.size) % channel.size);
      co_await messages;
      const std::array<const std::byte*, 2> both = {data.data(), received.data()};
      reduce_in_order(dtype, op, both, data.data(), numel);
    }
    co_return;
  }
  if (numel * item <= one_step_bytes && numel * item * channel.size <= doubling_bytes) {
    Messages messages(channel.comm, channel.tag);
    Doubling contributions(channel, data.data(), data.size_bytes());
    while (!contributions.complete()) {
      contributions.exchange(messages);
      co_await messages;
    }
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < channel.size; ++rank) sources.push_back(contributions.of_rank(rank));
    reduce_in_order(dtype, op, sources, data.data(), numel);
    co_return;
  }

  const std::int64_t segment = segment_bytes / item;
  const std::int64_t segments = (numel + segment - 1) / segment;
  std::deque<Lane> lanes =
      make_lanes(channel, dtype, segments, range_of(std::min(segment, numel), channel.size, 0).count);
  const auto lane_of = [&](std::int64_t s) -> Lane& { return lanes[static_cast<std::size_t>(s) % lanes.size()]; };
  // The shard of segment `s` that `rank` reduces.
  const auto shard = [&](std::int64_t s, int rank) {
    const Range within = range_of(std::min(segment, numel - s * segment), channel.size, rank);
    return data.flat(s * segment + within.begin, within.count);
  };
  // Messages between two ranks match by order: all ranks start the segments' steps in the same order.
  const auto exchange_terms = [&](std::int64_t s) {
    Lane& lane = lane_of(s);
    const TensorView own = shard(s, channel.rank);
    lane.contributions.receive(lane.terms, own.numel(), own.data());
    for_each_peer(channel,
                  [&](int peer) { lane.terms.send(shard(s, peer).data(), shard(s, peer).size_bytes(), peer); });
  };
  const auto exchange_sums = [&](std::int64_t s) {
    Messages& sums = lane_of(s).sums;
    const TensorView own = shard(s, channel.rank);
    for_each_peer(channel, [&](int peer) { sums.receive(shard(s, peer).data(), shard(s, peer).size_bytes(), peer); });
    for_each_peer(channel, [&](int peer) { sums.send(own.data(), own.size_bytes(), peer); });
  };

  for (std::int64_t s = 0; s < std::ssize(lanes); ++s) exchange_terms(s);
  for (std::int64_t s = 0; s < segments; ++s) {
    co_await lane_of(s).terms;
    lane_of(s).contributions.reduce(op, shard(s, channel.rank).data(), shard(s, channel.rank).numel());
    co_await lane_of(s).sums;  // sums of the lane's previous segment
    exchange_sums(s);
    if (s + std::ssize(lanes) < segments) exchange_terms(s + std::ssize(lanes));
  }
  for (Lane& lane : lanes) co_await lane.sums;
}

Operation reduce_scatter(Channel channel, ConstTensorView in, TensorView out, ReduceOp op) {
  const DType dtype = in.dtype();
  const auto item = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t shard_numel = out.numel();
  const std::int64_t segment = std::max<std::int64_t>(64, segment_bytes / item / channel.size);
  const std::int64_t segments = (shard_numel + segment - 1) / segment;
  std::deque<Lane> lanes = make_lanes(channel, dtype, segments, std::min(segment, shard_numel));
  const auto lane_of = [&](std::int64_t s) -> Lane& { return lanes[static_cast<std::size_t>(s) % lanes.size()]; };
  const auto count = [&](std::int64_t s) { return std::min(segment, shard_numel - s * segment); };
  const auto exchange_terms = [&](std::int64_t s) {
    Lane& lane = lane_of(s);
    const auto of_rank = [&](int rank) { return in.data() + (rank * shard_numel + s * segment) * item; };
    lane.contributions.receive(lane.terms, count(s), of_rank(channel.rank));
    for_each_peer(channel,
                  [&](int peer) { lane.terms.send(of_rank(peer), static_cast<std::size_t>(count(s) * item), peer); });
  };
  for (std::int64_t s = 0; s < std::ssize(lanes); ++s) exchange_terms(s);
  for (std::int64_t s = 0; s < segments; ++s) {
    co_await lane_of(s).terms;
    lane_of(s).contributions.reduce(op, out.data() + s * segment * item, count(s));
    if (s + std::ssize(lanes) < segments) exchange_terms(s + std::ssize(lanes));
  }
}

Operation all_gather(Channel channel, ConstTensorView in, TensorView out) {
  Messages messages(channel.comm, channel.tag);
  const std::size_t shard_bytes = in.size_bytes();
  const auto of_rank = [&](int rank) { return out.data() + static_cast<std::size_t>(rank) * shard_bytes; };
  if (shard_bytes <= static_cast<std::size_t>(one_step_bytes) && channel.size > one_step_ranks) {
    Doubling shards(channel, in.data(), shard_bytes);
    while (!shards.complete()) {
      shards.exchange(messages);
      co_await messages;
    }
    for (int rank = 0; rank < channel.size; ++rank) std::memcpy(of_rank(rank), shards.of_rank(rank), shard_bytes);
    co_return;
  }
  for_each_peer(channel, [&](int peer) { messages.receive(of_rank(peer), shard_bytes, peer); });
  for_each_peer(channel, [&](int peer) { messages.send(in.data(), shard_bytes, peer); });
  if (shard_bytes > 0 && in.data() != of_rank(channel.rank)) std::memcpy(of_rank(channel.rank), in.data(), shard_bytes);
  co_await messages;
}

Operation broadcast(Channel channel, TensorView data, int root) {
  Messages messages(channel.comm, channel.tag);
  messages.broadcast(data.data(), data.size_bytes(), root);
  co_await messages;
}

Operation barrier(Channel channel) {
  Messages messages(channel.comm, channel.tag);
  messages.barrier();
  co_await messages;
}

Operation completion(Messages messages) { co_await messages; }

}  // namespace trireme::mpi

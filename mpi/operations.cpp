#include "mpi/operations.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "mpi/reduction.hpp"

namespace trireme::mpi {
namespace {

// Large tensors are reduced in segments of this many bytes, so that what was received is still in the cache when it is
// added. Measured with bench/collectives.
constexpr std::int64_t segment_bytes = std::int64_t{2} << 20;
// Up to this size every rank sends all it has to every other: one step instead of two. Messages of 4 KiB and more are
// no longer sent before the receiver is known to be there.
constexpr std::int64_t one_step_bytes = 2 << 10;
constexpr int one_step_ranks = 8;

/// Range of elements.
struct Part {
  std::int64_t begin;
  std::int64_t count;
};

/// Part `index` of `count` elements divided among `parts`, in whole cache lines as far as possible.
Part part_of(std::int64_t count, int parts, int index) {
  constexpr std::int64_t line = 64;
  const std::int64_t width = ((count + parts - 1) / parts + line - 1) / line * line;
  const std::int64_t begin = std::min(count, width * index);
  return {begin, std::min(width, count - begin)};
}

/// The contributions of all ranks to one part, in rank order: this rank's own, and those received into scratch memory.
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

/// The other ranks, beginning behind this one, so that not all send to the same at once.
template <class Function>
void for_each_peer(const Channel& channel, Function function) {
  for (int step = 1; step < channel.size; ++step) function((channel.rank + step) % channel.size);
}

}  // namespace

Operation all_reduce(Channel channel, TensorView data, ReduceOp op) {
  Messages messages(channel.comm, channel.tag);
  const DType dtype = data.dtype();
  const auto item = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t numel = data.numel();

  if (numel * item <= one_step_bytes && channel.size <= one_step_ranks) {
    Contributions contributions(channel, dtype, numel);
    contributions.receive(messages, numel, data.data());
    for_each_peer(channel, [&](int peer) { messages.send(data.data(), data.size_bytes(), peer); });
    co_await messages;
    contributions.reduce(op, data.data(), numel);
    co_return;
  }

  const std::int64_t segment = segment_bytes / item;
  Contributions contributions(channel, dtype, part_of(std::min(segment, numel), channel.size, 0).count);
  for (std::int64_t begin = 0; begin < numel; begin += segment) {
    std::byte* base = data.data() + begin * item;
    const std::int64_t count = std::min(segment, numel - begin);
    const Part own = part_of(count, channel.size, channel.rank);
    std::byte* own_data = base + own.begin * item;
    contributions.receive(messages, own.count, own_data);
    for_each_peer(channel, [&](int peer) {
      const Part part = part_of(count, channel.size, peer);
      messages.send(base + part.begin * item, static_cast<std::size_t>(part.count * item), peer);
    });
    co_await messages;
    contributions.reduce(op, own_data, own.count);
    for_each_peer(channel, [&](int peer) {
      const Part part = part_of(count, channel.size, peer);
      messages.receive(base + part.begin * item, static_cast<std::size_t>(part.count * item), peer);
    });
    for_each_peer(channel,
                  [&](int peer) { messages.send(own_data, static_cast<std::size_t>(own.count * item), peer); });
    co_await messages;
  }
}

Operation reduce_scatter(Channel channel, ConstTensorView in, TensorView out, ReduceOp op) {
  Messages messages(channel.comm, channel.tag);
  const DType dtype = in.dtype();
  const auto item = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t part = out.numel();
  const std::int64_t segment = std::max<std::int64_t>(64, segment_bytes / item / channel.size);
  Contributions contributions(channel, dtype, std::min(segment, part));
  for (std::int64_t begin = 0; begin < part; begin += segment) {
    const std::int64_t count = std::min(segment, part - begin);
    const auto of_rank = [&](int rank) { return in.data() + (rank * part + begin) * item; };
    contributions.receive(messages, count, of_rank(channel.rank));
    for_each_peer(channel,
                  [&](int peer) { messages.send(of_rank(peer), static_cast<std::size_t>(count * item), peer); });
    co_await messages;
    contributions.reduce(op, out.data() + begin * item, count);
  }
}

Operation all_gather(Channel channel, ConstTensorView in, TensorView out) {
  Messages messages(channel.comm, channel.tag);
  const std::size_t part = in.size_bytes();
  const auto of_rank = [&](int rank) { return out.data() + static_cast<std::size_t>(rank) * part; };
  for_each_peer(channel, [&](int peer) { messages.receive(of_rank(peer), part, peer); });
  for_each_peer(channel, [&](int peer) { messages.send(in.data(), part, peer); });
  if (part > 0 && in.data() != of_rank(channel.rank)) std::memcpy(of_rank(channel.rank), in.data(), part);
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

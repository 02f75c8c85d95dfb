#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "src/tensor/memory.hpp"
#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme {

enum class ReduceOp { sum, max };

/// Line of the source that calls an operation, for records of communication.
using Caller = std::source_location;

/// End of the work that is on a stream, after which an operation begins, and its caller. Calls pass the stream; what
/// forwards an operation passes the point on, and so the first caller.
class StreamPoint {
 public:
  StreamPoint(Stream& stream, const Caller& caller = Caller::current())  // NOLINT(google-explicit-constructor)
      : stream_(&stream), caller_(caller) {}
  operator Stream&() const { return *stream_; }  // NOLINT(google-explicit-constructor)
  Stream* operator->() const { return stream_; }
  const Caller& caller() const { return caller_; }

 private:
  Stream* stream_;
  Caller caller_;
};

/// One message of a grouped exchange with one other rank.
struct Transfer {
  enum class Direction { send, receive };
  Direction direction = Direction::send;
  int peer = 0;
  TensorView data;  ///< read when sending, overwritten when receiving; must outlive the work
};

/// A communication in flight. Movable; the destructor waits, except during stack unwinding: then the adapter abandons
/// it.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() = 0;
    /// Makes later work on `stream` wait for the communication; on the CPU it blocks the caller.
    virtual void wait(Stream& stream) = 0;
  };

  Work() = default;  ///< already done
  explicit Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  /// Returns whether the operation is complete. Communication progresses without calls to this function.
  bool done() { return !state_ || state_->done(); }
  void wait(Stream& stream);

 private:
  std::unique_ptr<State> state_;
};

/// Time of a group's collectives.
enum class GroupUse {
  general,
  beside_products  ///< concurrent with products of the same rank, which soon waits for both: both must fit on the GPU
};

/// Collective operations over one group of ranks. Every operation is enqueued: it begins after the work already on
/// `stream`, and overlaps with later work. `Work::wait` orders a stream after it; `all_reduce(stream, x,
/// op).wait(stream)` blocks in the usual sense. All ranks of the group must make the same calls on one communicator in
/// the same order. Different communicators are independent. Sums are formed in the tensor's type (16-bit types: in
/// fp32, rounded once per step). Their order depends only on sizes, and results are bitwise identical on all ranks. A
/// failure throws an adapter-specific error, and the job ends.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Name of the group, for messages: "tensor", "data" ...
  virtual const std::string& name() const = 0;

  /// data = sum or maximum over ranks, in place. Any floating-point type, int64, int32.
  [[nodiscard]] virtual Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) = 0;
  /// out = this rank's shard of the sum or maximum; in [size * k], out [k]. Shard r goes to rank r.
  [[nodiscard]] virtual Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) = 0;
  /// out = the ranks' inputs concatenated in rank order; in [k], out [size * k]. Any type. `in` may be this rank's own
  /// shard of `out`.
  [[nodiscard]] virtual Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) = 0;
  /// data of rank `root` on every rank. Any type.
  [[nodiscard]] virtual Work broadcast(StreamPoint stream, TensorView data, int root) = 0;
  /// Sends and receives as one group, which cannot deadlock in any order. Messages between two ranks arrive in order.
  /// Returns one Work per transfer, in order. On GPUs only between neighbours of the ring of ranks.
  [[nodiscard]] virtual std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) = 0;
  /// Sends and receives between any ranks as one operation of the group. A rank without transfers may omit the call;
  /// otherwise it is ordered like the collectives of this communicator. Messages between two ranks arrive in order.
  [[nodiscard]] virtual Work grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers);
  /// Blocks the host until every rank arrives.
  virtual void barrier(const Caller& caller = Caller::current()) = 0;

  /// Memory for tensors of this group's operations: that of `memory`, or some that the group reads and writes faster.
  /// All ranks of the group allocate it in the same order and with equal sizes, and free it before the group ends.
  virtual Allocator& buffers(Allocator& memory) { return memory; }

  /// Creates a communicator of the ranks with equal `colour`, ordered by `key`; null for a negative colour. Collective
  /// over this group.
  virtual std::unique_ptr<Communicator> split(int colour, int key, const std::string& name,
                                              GroupUse use = GroupUse::general) = 0;
};

/// An error thrown by every rank of a group together, with the same text: one rank prints it, and all exit cleanly.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

/// Runs `function` on every rank of `comm` (host memory). If it throws on any, all throw a CollectiveError with the
/// exit code and message of the first such rank. Use it for operations that may fail on one rank alone, such as file
/// access. In a group of one the error propagates unchanged.
void collectively(Communicator& comm, const std::function<void()>& function, const Caller& caller = Caller::current());

/// Gathers the texts of all ranks, in rank order, on every rank. `comm` works on host memory.
std::vector<std::string> all_gather_text(Communicator& comm, const std::string& text,
                                         const Caller& caller = Caller::current());

/// Gathers the texts of all ranks, in rank order, on rank `root`; returns nothing on the others, which saves memory.
/// `comm` works on host memory.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text, int root,
                                     const Caller& caller = Caller::current());

/// Gathers the distinct non-empty texts of all ranks, in order of first occurrence, on rank `root`; returns nothing on
/// the others. Only the first rank with a text sends it. `comm` works on host memory.
std::vector<std::string> gather_distinct_text(Communicator& comm, const std::string& text, int root,
                                              const Caller& caller = Caller::current());

/// Broadcasts the text of rank `root`. `comm` works on host memory.
std::string broadcast_text(Communicator& comm, const std::string& text, int root,
                           const Caller& caller = Caller::current());

/// Throws CollectiveError (ExitCode::usage), naming the differing ranks and the first differing line, unless all ranks
/// pass the same text. `what` names the text: "the configuration". `comm` works on host memory.
void check_same_everywhere(Communicator& comm, const std::string& what, const std::string& text,
                           const Caller& caller = Caller::current());

}  // namespace trireme

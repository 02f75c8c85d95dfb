#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "src/comm/forwarding_communicator.hpp"
#include "src/comm/self_communicator.hpp"

// Communication that ends late, for tests of overlapped work.

namespace trireme::test {

/// Duration of an operation: a latency, and a time for every byte that a rank sends.
struct Link {
  double latency_s = 0;
  double seconds_per_byte = 0;
};

/// Rank 0 of a group whose other ranks do not exist. Sums are this rank's own contribution; shards of other ranks are
/// left as they are. Takes no time.
class LonelyCommunicator final : public ForwardingCommunicator {
 public:
  explicit LonelyCommunicator(int size) : ForwardingCommunicator(self_), size_(size) {}
  int size() const override { return size_; }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return ForwardingCommunicator::reduce_scatter(stream, in.flat(0, out.numel()), out, op);
  }
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override {
    return ForwardingCommunicator::all_gather(stream, in, out.flat(0, in.numel()));
  }

 private:
  SelfCommunicator self_;
  int size_;
};

/// Moment at which the wrapped operation starts.
enum class OperationStart {
  at_call,
  at_wait  ///< a result that is used without a wait is the old one; all ranks must wait in the same order
};

/// Communicator whose collectives end at the time that a model gives: they pass one link, one after another. The time
/// passes without work.
class SlowCommunicator final : public ForwardingCommunicator {
 public:
  SlowCommunicator(std::unique_ptr<Communicator> inner, Link link, OperationStart start = OperationStart::at_call)
      : ForwardingCommunicator(*inner), inner_(std::move(inner)), link_(link), start_(start) {}

  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override {
    return slow(2 * sent(data.size_bytes()), [=, this] { return inner_->all_reduce(stream, data, op); });
  }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return slow(sent(in.size_bytes()), [=, this] { return inner_->reduce_scatter(stream, in, out, op); });
  }
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override {
    return slow(sent(out.size_bytes()), [=, this] { return inner_->all_gather(stream, in, out); });
  }
  Work grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    double bytes = 0;
    for (const Transfer& one : transfers) {
      if (one.direction == Transfer::Direction::send) bytes += static_cast<double>(one.data.size_bytes());
    }
    const std::vector<Transfer> kept(transfers.begin(), transfers.end());
    return slow(bytes, [=, this] { return inner_->grouped_exchange(stream, kept); });
  }

 private:
  using Clock = std::chrono::steady_clock;

  class State final : public Work::State {
   public:
    State(std::function<Work()> start, OperationStart moment, Clock::time_point end)
        : start_(std::move(start)), end_(end) {
      if (moment == OperationStart::at_call) begin();
    }
    bool done() override { return start_ == nullptr && inner_.done() && Clock::now() >= end_; }
    void wait(Stream& stream) override {
      if (start_ != nullptr) begin();
      inner_.wait(stream);
      if (Clock::now() < end_) std::this_thread::sleep_until(end_);
    }

   private:
    void begin() { inner_ = std::exchange(start_, nullptr)(); }

    std::function<Work()> start_;  // null after the start
    Work inner_;
    Clock::time_point end_;
  };

  /// Bytes of `size_bytes` that a rank sends in a reduce-scatter or an all-gather.
  double sent(std::size_t size_bytes) const { return static_cast<double>(size_bytes) * (size() - 1) / size(); }
  Work slow(double bytes, std::function<Work()> start) {
    const std::chrono::duration<double> duration(link_.latency_s + bytes * link_.seconds_per_byte);
    free_ = std::max(free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(duration);
    return Work(std::make_unique<State>(std::move(start), start_, free_));
  }

  std::unique_ptr<Communicator> inner_;
  Link link_;
  OperationStart start_;
  Clock::time_point free_{};
};

}  // namespace trireme::test

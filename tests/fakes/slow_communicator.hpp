#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "src/comm/self_communicator.hpp"
#include "tests/fakes/forwarding_communicator.hpp"

// Communication that takes a time given by a model, for tests and benchmarks of what runs beside it.

namespace trireme::test {

/// A link that takes a latency for every operation and a time for every byte that a rank sends.
struct Link {
  double latency_s = 0;
  double seconds_per_byte = 0;
};

/// A group of `size` ranks of which this is rank 0 and the others do not exist: sums are this rank's own contribution,
/// and what others would bring is left as it is. Takes no time.
class LonelyCommunicator final : public ForwardingCommunicator {
 public:
  explicit LonelyCommunicator(int size) : ForwardingCommunicator(self_), size_(size) {}
  int size() const override { return size_; }
  Work reduce_scatter(Stream& stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return ForwardingCommunicator::reduce_scatter(stream, in.flat(0, out.numel()), out, op);
  }
  Work all_gather(Stream& stream, ConstTensorView in, TensorView out) override {
    return ForwardingCommunicator::all_gather(stream, in, out.flat(0, in.numel()));
  }

 private:
  SelfCommunicator self_;
  int size_;
};

/// Communicator whose collectives end when a model says so: they pass one link, one after another. The time passes
/// without work. Records when operations start and are waited for.
class SlowCommunicator final : public ForwardingCommunicator {
 public:
  using Clock = std::chrono::steady_clock;
  /// The start of operation `operation`, or a wait for it: when it came and when it was over.
  struct Call {
    bool is_wait = false;
    int operation = 0;
    Clock::time_point begin;
    Clock::time_point end;
    double sent_bytes = 0;  ///< by a rank, where the operation starts
  };

  SlowCommunicator(std::unique_ptr<Communicator> inner, Link link)
      : ForwardingCommunicator(*inner), inner_(std::move(inner)), link_(link) {}

  /// Sets the link of the following operations.
  void set_link(const Link& link) { link_ = link; }
  double duration_s(double sent_bytes) const { return link_.latency_s + sent_bytes * link_.seconds_per_byte; }
  /// Returns the calls made since the last call of this function.
  std::vector<Call> take_calls() { return std::exchange(calls_, {}); }

  Work all_reduce(Stream& stream, TensorView data, ReduceOp op) override {
    return slow(2 * sent(data.size_bytes()), [&] { return ForwardingCommunicator::all_reduce(stream, data, op); });
  }
  Work reduce_scatter(Stream& stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return slow(sent(in.size_bytes()), [&] { return ForwardingCommunicator::reduce_scatter(stream, in, out, op); });
  }
  Work all_gather(Stream& stream, ConstTensorView in, TensorView out) override {
    return slow(sent(out.size_bytes()), [&] { return ForwardingCommunicator::all_gather(stream, in, out); });
  }

 private:
  class State final : public Work::State {
   public:
    State(SlowCommunicator& owner, Work inner, int operation, Clock::time_point end)
        : owner_(owner), inner_(std::move(inner)), operation_(operation), end_(end) {}
    bool done() override { return inner_.done() && Clock::now() >= end_; }
    void wait(Stream& stream) override {
      const Clock::time_point begin = Clock::now();
      inner_.wait(stream);
      if (Clock::now() < end_) std::this_thread::sleep_until(end_);
      owner_.calls_.push_back({true, operation_, begin, Clock::now(), 0});
    }

   private:
    SlowCommunicator& owner_;
    Work inner_;
    int operation_;
    Clock::time_point end_;
  };

  /// Bytes of `size_bytes` that a rank sends in a reduce-scatter or an all-gather.
  double sent(std::size_t size_bytes) const { return static_cast<double>(size_bytes) * (size() - 1) / size(); }
  template <class Start>
  Work slow(double bytes, Start&& start) {
    const Clock::time_point begin = Clock::now();
    const std::chrono::duration<double> duration(duration_s(bytes));
    free_ = std::max(free_, begin) + std::chrono::duration_cast<Clock::duration>(duration);
    Work inner = start();
    calls_.push_back({false, operations_, begin, Clock::now(), bytes});
    return Work(std::make_unique<State>(*this, std::move(inner), operations_++, free_));
  }

  std::unique_ptr<Communicator> inner_;
  Link link_;
  Clock::time_point free_{};
  int operations_ = 0;
  std::vector<Call> calls_;
};

}  // namespace trireme::test

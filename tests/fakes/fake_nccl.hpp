#pragma once

#include <nccl.h>

#include <functional>
#include <utility>

/// NCCL for tests without a GPU: a rank of a group is alone in its process, and its collectives do what they do in a
/// group of one, late, on the stream of the fake CUDA runtime. Calls return ncclInProgress first, as those of
/// communicators that do not block.
namespace fake_nccl {

/// Forgets failures.
void reset();
/// The next call of this function returns `status`.
void fail_next(const char* function, ncclResult_t status);
/// From now on every communicator reports this error when it is asked.
void break_communicators(ncclResult_t status);
/// From now on what is enqueued has a peer that never comes: it ends with its communicator alone.
void lose_peers();
/// Communicators that were neither destroyed nor aborted; those that were aborted so far.
int live();
int aborted();

/// Pending call of a non-blocking communicator: one at a time. It takes effect after the communicator was polled
/// several times and `done` returns true.
class CallUnderWay {
 public:
  /// ncclInvalidArgument where another call is under way, else ncclInProgress.
  ncclResult_t begin(
      std::function<void()> effect = [] {}, std::function<bool()> done = [] { return true; }) {
    if (is_) return ncclInvalidArgument;
    is_ = true;
    asks_left_ = 2;
    effect_ = std::move(effect);
    done_ = std::move(done);
    return ncclInProgress;
  }
  ncclResult_t ask() {
    if (!is_) return ncclSuccess;
    if (asks_left_ > 0) --asks_left_;
    if (asks_left_ > 0 || !done_()) return ncclInProgress;
    is_ = false;
    effect_();
    return ncclSuccess;
  }

 private:
  bool is_ = false;
  int asks_left_ = 0;
  std::function<void()> effect_;
  std::function<bool()> done_;
};

}  // namespace fake_nccl

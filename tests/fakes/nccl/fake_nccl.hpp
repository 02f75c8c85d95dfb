#pragma once

#include <nccl.h>

#include <cstddef>
#include <functional>
#include <memory>

/// NCCL for tests without a GPU. What is enqueued runs late, on its stream of the fake CUDA runtime. Calls block, as
/// those of blocking communicators. A broken rule (nccl_rules.hpp) is an error that names it: of the call, or, if found
/// later, of all communicators. A program is linked with one kind of ranks: fake_nccl_alone.cpp or fake_nccl_mpi.cpp.
namespace fake_nccl {

/// Forgets failures and held calls.
void reset();
/// Makes the next call of this function return `status`.
void fail_next(const char* function, ncclResult_t status);
/// Holds up all calls of this function until their communicator is aborted.
void hold_calls(const char* function);
/// Makes every communicator report this error from now on.
void break_communicators(ncclResult_t status);
/// Gives every operation enqueued from now on a peer that never joins: it ends when its communicator is aborted.
void lose_peers();
/// Number of communicators that were neither destroyed nor aborted.
int live();
/// Number of threads within a call.
int callers();
/// Number of collectives since `reset` whose buffers their communicator has registered.
int registered_collectives();
/// Number of communicators that were aborted so far.
int aborted();

/// Ranks of a group and their connections. A transfer reads and writes host memory until its `Done` returns true.
class Ranks {
 public:
  using Done = std::function<bool()>;
  enum class Channel { greeting, data, call_of_sender, call_of_receiver };

  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns null for a rank without a colour. Collective.
  virtual std::unique_ptr<Ranks> split(int colour, int key) = 0;
  /// Releases the group's resources. Collective.
  virtual void close() = 0;
  /// all = the inputs of all ranks, of `bytes` each, in rank order.
  virtual Done all_gather(const std::byte* mine, std::byte* all, std::size_t bytes) = 0;
  virtual Done send(const std::byte* from, std::size_t bytes, int peer, Channel channel) = 0;
  virtual Done receive(std::byte* to, std::size_t bytes, int peer, Channel channel) = 0;
};
/// Group of `size` ranks of which this is `rank`. Collective.
std::unique_ptr<Ranks> join_ranks(int rank, int size);

}  // namespace fake_nccl

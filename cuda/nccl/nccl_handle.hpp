#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>

#include "cuda/runtime/memory.hpp"

namespace trireme::cuda {

/// One NCCL communicator, with the stream its collectives run on and the names of those under way. Its calls do not
/// block: the host asks until they have taken effect, and NCCL's errors show while anything waits for the GPU. An error
/// gives all communicators of the GPU up (ncclCommAbort), so that their kernels end.
class NcclHandle {
 public:
  /// Takes over `comm`, once its making has come to its end.
  NcclHandle(std::shared_ptr<Device> device, ncclComm_t comm, std::string name);
  /// Collective on the orderly path; while an exception unwinds, the communicator is given up.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  Device& device() const { return *device_; }
  std::shared_ptr<Device> shared_device() const { return device_; }
  ncclComm_t handle() const { return comm_; }
  CudaStream& stream() { return stream_; }

  /// Throws NcclError where the communicator was given up before.
  void check_alive() const;
  /// Blocks until a call that was begun has taken effect; throws NcclError where it failed or takes too long.
  void settle(ncclResult_t status, const char* call);
  /// Throws NcclError where NCCL has found an error since.
  void poll();
  /// Keeps the name of what was just enqueued until it is over, unless it was recorded as a part of a graph. Returns
  /// the event after it.
  std::shared_ptr<Event> enqueued(std::string operation);

 private:
  struct Operation {
    std::uint64_t number;
    std::string text;
    std::shared_ptr<Event> end;
  };
  /// The oldest operation that is not over, for messages; empty where there is none.
  std::string under_way();
  /// Begins to abort the communicator: what it has under way ends, wherever the other ranks are.
  void abandon();
  [[noreturn]] void give_up(const std::string& what, const std::string& reason);

  std::shared_ptr<Device> device_;
  ncclComm_t comm_;
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  CudaStream stream_;
  std::deque<Operation> operations_;
  std::uint64_t operations_begun_ = 0;
  Device::Watch watch_;
  std::future<ncclResult_t> aborting_;
  std::chrono::steady_clock::time_point aborted_since_;
};

/// Waits until a communicator that is being made is there: `comm` may be null meanwhile. Throws NcclError.
void wait_for_communicator(const Device& device, ncclResult_t status, const ncclComm_t* comm, const char* call);

}  // namespace trireme::cuda

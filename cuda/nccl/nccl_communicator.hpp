#pragma once

#include <optional>
#include <vector>

#include "cuda/nccl/registered_memory.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::cuda {

/// A p2p communicator is a communicator of two neighbours of a ring of ranks, for the messages of one direction.
/// Messages between other neighbours, or in the other direction, never wait for it. With one communicator for all, a
/// receive that is posted early would block the sends that its own message waits for. P2p communicators are created by
/// splits over all ranks of the ring.
struct P2pSplit {
  int colour = -1;     ///< the p2p communicator this rank belongs to in this split; -1: none
  int key = 0;         ///< 0 for the sender, 1 for the receiver
  int peer = 0;        ///< rank in the ring
  bool sends = false;  ///< this rank sends to the peer
};

/// Returns the splits by which `rank` creates every p2p communicator of a ring of `size` >= 2 ranks: the same number on
/// every rank.
std::vector<P2pSplit> p2p_splits(int rank, int size);

/// NCCL collectives on GPU memory, one GPU per rank. Each group has its own stream: an operation begins after the work
/// on the caller's stream, and overlaps with work enqueued there later. An error ends the next wait with an
/// NcclPeerError that names the collective, the group and the rank.
///
/// A grouped exchange is one operation on the group's communicator, between any ranks (ncclGroupStart to ncclGroupEnd).
///
/// Other exchanges go between neighbours of the ring of ranks. Each direction of each pair has its own communicator and
/// stream (see P2pSplit), created at the group's first exchange. Every rank must therefore reach its first exchange
/// without waiting for another rank's.
///
/// A group of one rank has no NCCL communicator: its collectives copy on the caller's stream. A job on one GPU thus
/// needs no network interface.
///
/// Destruction is collective: all ranks destroy groups in the same order.
class NcclCommunicator final : public Communicator {
 public:
  /// A communicator of the ranks of `host`, which works on host memory and serves this one alone. Collective over
  /// `host`. Throws EnvironmentError if ranks share a GPU.
  static std::unique_ptr<Communicator> make(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory,
                                            std::unique_ptr<Communicator> host);
  ~NcclCommunicator() override;

  int rank() const override { return handle_->rank(); }
  int size() const override { return handle_->size(); }
  const std::string& name() const override { return handle_->name(); }
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override;
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override;
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override;
  Work broadcast(StreamPoint stream, TensorView data, int root) override;
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override;
  Work grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) override;
  void barrier(const Caller& caller = Caller::current()) override;
  /// RegisteredMemory, if NCCL can register it.
  Allocator& buffers(Allocator& memory) override;
  std::unique_ptr<Communicator> split(int colour, int key, const std::string& name, GroupUse use) override;

 private:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<NcclHandle> group,
                   std::shared_ptr<DeviceMemory> memory, GroupUse use);
  /// Makes the group's stream wait for the work on `stream`.
  void begin(Stream& stream);
  /// Enqueues an operation on the group's stream.
  Work enqueue(const char* call, std::string operation,
               const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& function);
  /// Splits this group by colour; null without a colour. `blocks` limits a kernel's blocks, for which multiprocessors
  /// are reserved; 0: NCCL's default, and none reserved. Collective.
  std::shared_ptr<NcclHandle> split_handle(int colour, int key, const std::string& name, int blocks);
  void make_p2p_communicators();
  /// On the p2p communicator with the peer, after `before`.
  Work transfer(const Event& before, const Transfer& transfer);

  std::unique_ptr<Communicator> host_;  // communicator of the same ranks on the host
  std::shared_ptr<NcclHandle> handle_;
  Device::Watch collectives_;
  std::shared_ptr<DeviceMemory> memory_;
  std::optional<RegisteredMemory> buffers_;
  GroupUse use_;
  Buffer token_;  // operand of barriers, and of the p2p communicators' first operations
  struct P2pCommunicator {
    int peer;
    bool sends;  // this rank
    std::shared_ptr<NcclHandle> handle;
  };
  std::vector<P2pCommunicator> p2p_communicators_;  // in the order in which all ranks make theirs
};

}  // namespace trireme::cuda

// Ranks of the fake NCCL that are MPI ranks, for runs on grids. Each has a GPU of the fake CUDA runtime.
#include <mpi.h>

#include "tests/fakes/nccl/fake_nccl.hpp"

namespace fake_nccl {
namespace {

Ranks::Done completion(MPI_Request request) {
  return [request]() mutable {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  };
}

class MpiRanks final : public Ranks {
 public:
  explicit MpiRanks(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Ranks> split(int colour, int key) override {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_split(comm_, colour == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : colour, key, &comm);
    return comm == MPI_COMM_NULL ? nullptr : std::make_unique<MpiRanks>(comm);
  }
  void close() override {
    MPI_Barrier(comm_);  // NCCL may wait for the entire group here, too
    MPI_Comm_free(&comm_);
  }
  Done all_gather(const std::byte* mine, std::byte* all, std::size_t bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(bytes);
    MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_, &request);
    return completion(request);
  }
  /// Ends after the receiver has begun, as NCCL's does for large messages.
  Done send(const std::byte* from, std::size_t bytes, int peer, Channel channel) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Issend(from, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(channel), comm_, &request);
    return completion(request);
  }
  Done receive(std::byte* to, std::size_t bytes, int peer, Channel channel) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(channel), comm_, &request);
    return completion(request);
  }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
};

}  // namespace

std::unique_ptr<Ranks> join_ranks(int, int size) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(size == 1 ? MPI_COMM_SELF : MPI_COMM_WORLD, &comm);
  return std::make_unique<MpiRanks>(comm);
}

}  // namespace fake_nccl

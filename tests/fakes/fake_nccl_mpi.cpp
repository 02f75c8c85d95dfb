// NCCL among MPI ranks, each with a GPU of the fake CUDA runtime: for whole runs on grids with a GPU a rank. Operations
// run late, on their stream, and beside those of other streams; what they move goes through host memory and MPI.
#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "src/tensor/dtype.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/fake_nccl.hpp"

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  fake_nccl::CallUnderWay call = {};
  bool connected[2] = {false, false};                   // for receives and sends, of a group of two
  std::shared_ptr<int> used = std::make_shared<int>();  // by what is enqueued, and by graphs
};

namespace {

using Bytes = std::vector<std::byte>;

struct Message {
  Bytes mine, others;
  MPI_Request request = MPI_REQUEST_NULL;
};

std::function<bool()> is_done(const std::shared_ptr<Message>& message) {
  return [message] {
    int done = 0;
    MPI_Test(&message->request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  };
}

/// Every rank sees what all have at `from`, one after another.
ncclResult_t gather(const char* function, ncclComm_t comm, cudaStream_t stream, const void* from, std::size_t bytes,
                    std::function<void(const std::byte* all)> use) {
  auto message = std::make_shared<Message>();
  const auto start = [=] {
    message->mine.resize(bytes);
    std::memcpy(message->mine.data(), from, bytes);
    message->others.resize(bytes * static_cast<std::size_t>(comm->size));
    MPI_Iallgather(message->mine.data(), static_cast<int>(bytes), MPI_BYTE, message->others.data(),
                   static_cast<int>(bytes), MPI_BYTE, comm->mpi, &message->request);
  };
  return comm->call.begin([=] {
    fake_cuda::enqueue_until(stream, function, start, is_done(message),
                             [=, used = comm->used] { use(message->others.data()); });
  });
}

/// A message of a group of two. The first of each direction waits, as a call under way, for the peer's host: both are
/// connected then.
ncclResult_t pass(const char* function, ncclComm_t comm, cudaStream_t stream, bool sends, int peer,
                  std::function<void(Message&)> start, std::function<void(Message&)> finish) {
  auto message = std::make_shared<Message>();
  const auto enqueue = [=] {
    fake_cuda::enqueue_until(
        stream, function, [=] { start(*message); }, is_done(message), [=, used = comm->used] { finish(*message); });
  };
  if (std::exchange(comm->connected[sends], true)) return comm->call.begin(enqueue);
  auto greeting = std::make_shared<Message>();
  if (sends) {
    MPI_Issend(nullptr, 0, MPI_BYTE, peer, 1, comm->mpi, &greeting->request);
  } else {
    MPI_Irecv(nullptr, 0, MPI_BYTE, peer, 1, comm->mpi, &greeting->request);
  }
  return comm->call.begin(enqueue, is_done(greeting));
}

/// out[i] = sum or maximum over ranks of element first + i of their `count`.
template <class T, class Wide>
void combine(const std::byte* all, int ranks, std::size_t count, std::size_t first, std::size_t part, ncclRedOp_t op,
             void* out) {
  const auto* in = reinterpret_cast<const T*>(all);
  for (std::size_t i = 0; i < part; ++i) {
    Wide sum = static_cast<Wide>(in[first + i]);
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(ranks); ++rank) {
      const auto term = static_cast<Wide>(in[rank * count + first + i]);
      sum = op == ncclSum ? sum + term : std::max(sum, term);
    }
    static_cast<T*>(out)[i] = T(sum);
  }
}

ncclResult_t reduce(const char* function, ncclComm_t comm, cudaStream_t stream, const void* from, void* to,
                    std::size_t count, std::size_t first, std::size_t part, ncclDataType_t type, ncclRedOp_t op) {
  const auto run = [&]<class T, class Wide>() {
    return gather(function, comm, stream, from, count * sizeof(T),
                  [=](const std::byte* all) { combine<T, Wide>(all, comm->size, count, first, part, op, to); });
  };
  switch (type) {
    case ncclFloat64:
      return run.operator()<double, double>();
    case ncclFloat32:
      return run.operator()<float, float>();
    case ncclBfloat16:
      return run.operator()<trireme::bf16, float>();
    case ncclFloat16:
      return run.operator()<trireme::fp16, float>();
    case ncclInt32:
      return run.operator()<std::int32_t, std::int32_t>();
    default:
      return ncclInvalidArgument;
  }
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof id->internal);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId, int rank, ncclConfig_t*) {
  *comm = new ncclComm{MPI_COMM_NULL, rank, size};
  MPI_Comm_dup(size == 1 ? MPI_COMM_SELF : MPI_COMM_WORLD, &(*comm)->mpi);
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* part, ncclConfig_t*) {
  *part = nullptr;
  const ncclResult_t status = comm->call.begin([=] {
    MPI_Comm mpi = MPI_COMM_NULL;
    MPI_Comm_split(comm->mpi, colour == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : colour, key, &mpi);
    if (mpi == MPI_COMM_NULL) return;
    *part = new ncclComm{mpi};
    MPI_Comm_rank(mpi, &(*part)->rank);
    MPI_Comm_size(mpi, &(*part)->size);
  });
  // As NCCL does, though it has only begun.
  return status == ncclInProgress ? ncclSuccess : status;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* status) {
  *status = comm->call.ask();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  *size = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->call.begin(); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->used.use_count() > 1) {
    std::fputs("ncclCommDestroy would wait for ever: a graph still has the communicator\n", stderr);
    std::abort();
  }
  MPI_Barrier(comm->mpi);  // as NCCL's may wait for all of the group
  MPI_Comm_free(&comm->mpi);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return reduce("ncclAllReduce", comm, stream, from, to, count, 0, count, type, op);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t part, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const auto size = static_cast<std::size_t>(comm->size), rank = static_cast<std::size_t>(comm->rank);
  return reduce("ncclReduceScatter", comm, stream, from, to, size * part, rank * part, part, type, op);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t all_bytes = count * static_cast<std::size_t>(comm->size);
  return gather("ncclAllGather", comm, stream, from, count,
                [=](const std::byte* all) { std::memcpy(to, all, all_bytes); });
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return gather("ncclBroadcast", comm, stream, from, count,
                [=](const std::byte* all) { std::memcpy(to, all + count * static_cast<std::size_t>(root), count); });
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const auto start = [=](Message& message) {
    message.mine.resize(count);
    std::memcpy(message.mine.data(), from, count);
    // As NCCL does for what is large: it ends when the receiver has begun.
    MPI_Issend(message.mine.data(), static_cast<int>(count), MPI_BYTE, peer, 0, comm->mpi, &message.request);
  };
  return pass("ncclSend", comm, stream, true, peer, start, [](Message&) {});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  const auto start = [=](Message& message) {
    message.others.resize(count);
    MPI_Irecv(message.others.data(), static_cast<int>(count), MPI_BYTE, peer, 0, comm->mpi, &message.request);
  };
  return pass("ncclRecv", comm, stream, false, peer, start,
              [=](Message& message) { std::memcpy(to, message.others.data(), count); });
}

}  // extern "C"

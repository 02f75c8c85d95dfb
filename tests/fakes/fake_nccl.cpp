#include "tests/fakes/fake_nccl.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/fakes/fake_cuda.hpp"

struct ncclComm {
  int rank = 0;
  int size = 1;
  fake_nccl::CallUnderWay call = {};
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
};

namespace {

struct State {
  std::map<std::string, ncclResult_t> failures;
  ncclResult_t broken = ncclSuccess;
  bool peers_lost = false;
  std::atomic<int> live = 0;  // groups are aborted by threads of their own
  std::atomic<int> aborted = 0;
};
State& state() {
  static State the_state;
  return the_state;
}

ncclResult_t begin(
    const char* function, ncclComm_t comm, std::function<void()> effect = [] {}) {
  if (const auto it = state().failures.find(function); it != state().failures.end()) {
    const ncclResult_t status = it->second;
    state().failures.erase(it);
    return status;
  }
  return comm->call.begin(std::move(effect));
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

ncclResult_t move(const char* function, ncclComm_t comm, cudaStream_t stream, const void* from, void* to,
                  std::size_t bytes) {
  return begin(function, comm, [=] {
    const std::string name = fmt::format("{} {} bytes", function, bytes);
    const auto run = [=] {
      if (from != nullptr && to != nullptr && from != to) std::memcpy(to, from, bytes);
    };
    if (!state().peers_lost) return fake_cuda::enqueue(stream, name, run);
    fake_cuda::enqueue_until(
        stream, name, [] {}, [ended = comm->ended] { return ended->load(); }, [] {});
  });
}

}  // namespace

namespace fake_nccl {
void reset() {
  state().failures.clear();
  state().broken = ncclSuccess;
  state().peers_lost = false;
}
void lose_peers() { state().peers_lost = true; }
void fail_next(const char* function, ncclResult_t status) { state().failures[function] = status; }
void break_communicators(ncclResult_t status) { state().broken = status; }
int live() { return state().live; }
int aborted() { return state().aborted; }
}  // namespace fake_nccl

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof id->internal);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "unhandled system error";
}
const char* ncclGetLastError(ncclComm_t) { return "socket closed by peer"; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId, int rank, ncclConfig_t* config) {
  *comm = new ncclComm{rank, size};
  ++state().live;
  return config->blocking == 0 ? begin("ncclCommInitRankConfig", *comm) : ncclInvalidArgument;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* part, ncclConfig_t*) {
  fake_cuda::note(fmt::format("ncclCommSplit colour {} key {}", colour, key));
  *part = nullptr;
  const ncclResult_t status = begin("ncclCommSplit", comm, [=] {
    if (colour == NCCL_SPLIT_NOCOLOR) return;
    // Every group of a test but the p2p communicators is of one rank; a p2p communicator's key is its rank.
    *part = new ncclComm{comm->size == 1 ? 0 : key, comm->size == 1 ? 1 : 2};
    ++state().live;
  });
  // As NCCL does, though it has only begun.
  return status == ncclInProgress ? ncclSuccess : status;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* status) {
  *status = state().broken != ncclSuccess ? state().broken : comm->call.ask();
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
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return begin("ncclCommFinalize", comm); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  --state().live;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  *comm->ended = true;
  delete comm;
  --state().live;
  ++state().aborted;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return move("ncclAllReduce", comm, stream, from, to, count * size_of(type));
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return move("ncclReduceScatter", comm, stream, from, to, count * size_of(type));
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return move("ncclAllGather", comm, stream, from, to, count * size_of(type));
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int, ncclComm_t comm,
                           cudaStream_t stream) {
  return move("ncclBroadcast", comm, stream, from, to, count * size_of(type));
}
ncclResult_t ncclSend(const void*, std::size_t count, ncclDataType_t type, int, ncclComm_t comm, cudaStream_t stream) {
  return move("ncclSend", comm, stream, nullptr, nullptr, count * size_of(type));
}
ncclResult_t ncclRecv(void*, std::size_t count, ncclDataType_t type, int, ncclComm_t comm, cudaStream_t stream) {
  return move("ncclRecv", comm, stream, nullptr, nullptr, count * size_of(type));
}

}  // extern "C"

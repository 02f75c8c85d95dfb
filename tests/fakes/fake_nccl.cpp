#include "tests/fakes/fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/tensor/dtype.hpp"
#include "tests/fakes/fake_cuda.hpp"

using fake_nccl::Ranks;

struct ncclComm {
  std::shared_ptr<Ranks> ranks;      // shared with enqueued work and graphs
  int number;                        // from 1 on, in the order in which they are made
  int blocks;                        // maximum for a kernel
  bool greeted[2] = {false, false};  // receives and sends of a group of two
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
};

namespace {

struct State {
  std::map<std::string, ncclResult_t> failures;
  std::string held;                                // a function
  std::atomic<ncclResult_t> broken = ncclSuccess;  // watchdogs look at it
  bool peers_lost = false;
  int made = 0;
  std::atomic<int> live = 0;  // groups are aborted by threads of their own
  std::atomic<int> aborted = 0;
};
State& state() {
  static State the_state;
  return the_state;
}

ncclComm_t new_communicator(std::unique_ptr<Ranks> ranks, const ncclConfig_t& config) {
  ++state().live;
  // User guide 2.30, ncclConfig_t: "maxCTAs [...] The default value is 32."
  constexpr int default_blocks = 32;
  const int blocks = config.maxCTAs == NCCL_CONFIG_UNDEF_INT ? default_blocks : config.maxCTAs;
  return new ncclComm{std::move(ranks), ++state().made, blocks};
}
void end(ncclComm_t comm) {
  *comm->ended = true;
  delete comm;
  --state().live;
}

/// A call that blocks until `done`, and then takes effect; unless a test made it fail, or the communicator is aborted.
ncclResult_t call(
    const char* function, ncclComm_t comm, const std::function<void()>& effect = [] {},
    const Ranks::Done& done = [] { return true; }) {
  if (const auto it = state().failures.find(function); it != state().failures.end()) {
    const ncclResult_t status = it->second;
    state().failures.erase(it);
    return status;
  }
  const auto ended = comm->ended;  // a communicator that is aborted is gone
  const bool held = state().held == function;
  while (held || !done()) {
    if (*ended) return ncclInternalError;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  effect();
  return ncclSuccess;
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

/// Copies of what an operation sends and receives, while it runs.
struct Message {
  std::vector<std::byte> mine, others;
  Ranks::Done done;
};

/// Returns the effect of a call of `comm`: it enqueues an operation that `start` begins and `finish` ends.
std::function<void()> enqueuing(const char* function, std::size_t bytes, ncclComm_t comm, cudaStream_t stream,
                                std::function<Ranks::Done(Ranks&, Message&)> start,
                                std::function<void(const Message&)> finish) {
  const std::string name = fmt::format("{} {} bytes", function, bytes);
  const fake_cuda::Demand demand = fake_cuda::collective_demand(comm->number, comm->blocks, bytes);
  return [=, ranks = comm->ranks, ended = comm->ended] {
    if (state().peers_lost) {
      return fake_cuda::enqueue_until(
          stream, name, [] {}, [=] { return ended->load(); }, [] {});
    }
    auto message = std::make_shared<Message>();
    fake_cuda::enqueue_until(
        stream, name, [=] { message->done = start(*ranks, *message); }, [=] { return message->done(); },
        [=, used = ranks] { finish(*message); }, demand);
  };
}

/// Every rank sees what all have at `from`, one after another. `moved` bytes are named in the log.
ncclResult_t gather(const char* function, std::size_t moved, ncclComm_t comm, cudaStream_t stream, const void* from,
                    std::size_t bytes, std::function<void(const std::byte* all)> use) {
  const auto start = [=](Ranks& ranks, Message& message) {
    message.mine.resize(bytes);
    std::memcpy(message.mine.data(), from, bytes);
    message.others.resize(bytes * static_cast<std::size_t>(ranks.size()));
    return ranks.all_gather(message.mine.data(), message.others.data(), bytes);
  };
  return call(function, comm,
              enqueuing(function, moved, comm, stream, start, [=](const Message& m) { use(m.others.data()); }));
}

/// A message of a group of two. The first of each direction waits, as a call under way, for the peer's host: both are
/// connected then.
ncclResult_t pass(const char* function, std::size_t bytes, ncclComm_t comm, cudaStream_t stream, bool sends, int peer,
                  std::function<Ranks::Done(Ranks&, Message&)> start, std::function<void(const Message&)> finish) {
  auto enqueue = enqueuing(function, bytes, comm, stream, std::move(start), std::move(finish));
  if (std::exchange(comm->greeted[sends], true)) return call(function, comm, std::move(enqueue));
  constexpr auto greeting = Ranks::Channel::greeting;
  return call(function, comm, enqueue,
              sends ? comm->ranks->send(nullptr, 0, peer, greeting) : comm->ranks->receive(nullptr, 0, peer, greeting));
}

/// out[i] = sum or maximum over ranks of element first + i of their `count`.
template <class T, class Wide>
void combine(const std::byte* all, int ranks, std::size_t count, std::size_t first, std::size_t shard, ncclRedOp_t op,
             void* out) {
  const auto* in = reinterpret_cast<const T*>(all);
  for (std::size_t i = 0; i < shard; ++i) {
    Wide sum = static_cast<Wide>(in[first + i]);
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(ranks); ++rank) {
      const auto term = static_cast<Wide>(in[rank * count + first + i]);
      sum = op == ncclSum ? sum + term : std::max(sum, term);
    }
    static_cast<T*>(out)[i] = T(sum);
  }
}

ncclResult_t reduce(const char* function, ncclComm_t comm, cudaStream_t stream, const void* from, void* to,
                    std::size_t count, std::size_t first, std::size_t shard, ncclDataType_t type, ncclRedOp_t op) {
  const int ranks = comm->ranks->size();
  const auto run = [&]<class T, class Wide>() {
    return gather(function, shard * sizeof(T), comm, stream, from, count * sizeof(T),
                  [=](const std::byte* all) { combine<T, Wide>(all, ranks, count, first, shard, op, to); });
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
    case ncclInt64:
      return run.operator()<std::int64_t, std::int64_t>();
    case ncclInt32:
      return run.operator()<std::int32_t, std::int32_t>();
    default:
      return ncclInvalidArgument;
  }
}

}  // namespace

namespace fake_nccl {
void reset() {
  state().failures.clear();
  state().held.clear();
  state().broken = ncclSuccess;
  state().peers_lost = false;
}
void lose_peers() { state().peers_lost = true; }
void fail_next(const char* function, ncclResult_t status) { state().failures[function] = status; }
void hold_calls(const char* function) { state().held = function; }
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
  *comm = new_communicator(fake_nccl::join_ranks(rank, size), *config);
  return config->blocking == 1 ? call("ncclCommInitRankConfig", *comm) : ncclInvalidArgument;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* shard, ncclConfig_t* config) {
  fake_cuda::note(fmt::format("ncclCommSplit colour {} key {}, {} blocks", colour, key, config->maxCTAs));
  *shard = nullptr;
  return call("ncclCommSplit", comm, [=] {
    if (auto ranks = comm->ranks->split(colour, key)) *shard = new_communicator(std::move(ranks), *config);
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* status) {
  *status = state().broken;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->ranks->rank();
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  *size = comm->ranks->size();
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return call("ncclCommFinalize", comm); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->ranks.use_count() > 1) {
    std::fputs("ncclCommDestroy would wait for ever: a graph still has the communicator\n", stderr);
    std::abort();
  }
  comm->ranks->close();
  end(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  end(comm);
  ++state().aborted;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return reduce("ncclAllReduce", comm, stream, from, to, count, 0, count, type, op);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t shard, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const auto size = static_cast<std::size_t>(comm->ranks->size()), rank = static_cast<std::size_t>(comm->ranks->rank());
  return reduce("ncclReduceScatter", comm, stream, from, to, size * shard, rank * shard, shard, type, op);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type), all_bytes = bytes * static_cast<std::size_t>(comm->ranks->size());
  return gather("ncclAllGather", bytes, comm, stream, from, bytes,
                [=](const std::byte* all) { std::memcpy(to, all, all_bytes); });
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return gather("ncclBroadcast", bytes, comm, stream, from, bytes,
                [=](const std::byte* all) { std::memcpy(to, all + bytes * static_cast<std::size_t>(root), bytes); });
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const auto start = [=](Ranks& ranks, Message& message) {
    message.mine.resize(bytes);
    std::memcpy(message.mine.data(), from, bytes);
    return ranks.send(message.mine.data(), bytes, peer, Ranks::Channel::data);
  };
  return pass("ncclSend", bytes, comm, stream, true, peer, start, [](const Message&) {});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const auto start = [=](Ranks& ranks, Message& message) {
    message.others.resize(bytes);
    return ranks.receive(message.others.data(), bytes, peer, Ranks::Channel::data);
  };
  return pass("ncclRecv", bytes, comm, stream, false, peer, start,
              [=](const Message& message) { std::memcpy(to, message.others.data(), bytes); });
}

}  // extern "C"

#include "tests/fakes/nccl/fake_nccl.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/fake_streams.hpp"
#include "tests/fakes/nccl/arithmetic.hpp"
#include "tests/fakes/nccl/operations.hpp"
#include "tests/fakes/nccl/registrations.hpp"
#include "tests/fakes/nccl/rules.hpp"

using fake_nccl::Message;
using fake_nccl::Operation;
using fake_nccl::Part;
using fake_nccl::Parts;
using fake_nccl::Ranks;
using fake_nccl::Running;

struct ncclComm {
  std::shared_ptr<Ranks> ranks;          // shared with enqueued work and graphs
  int number;                            // greater than 0, the same on all ranks
  int blocks;                            // maximum for a kernel
  int collectives = 0;                   // so far
  std::set<std::pair<int, bool>> met{};  // peers of earlier messages, and whether these were sent
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<int> outstanding = std::make_shared<int>(0);  // operations
  // NCCL's own, as its sources of 2.26 to 2.30 have them: the first waits for each operation.
  cudaStream_t ordered = fake_cuda::make_stream(0), of_host = fake_cuda::make_stream(0);
};

namespace {

/// Messages between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  Parts parts;
  ncclResult_t status = ncclSuccess;
};

struct State {
  std::map<std::string, ncclResult_t> failures;
  std::string held;                                // a function
  std::atomic<ncclResult_t> broken = ncclSuccess;  // polled by watchdogs
  bool peers_lost = false;
  int world_rank = 0;
  ncclComm_t world = nullptr;           // the latest
  std::vector<fake_nccl::Call> issued;  // collectives since it was made, without recorded ones
  int made = 0;
  std::mutex mutex;  // groups are aborted by separate threads
  std::set<ncclComm_t> live;
  Group group;
  fake_nccl::Registrations registrations;
  int registered_collectives = 0;
  std::atomic<int> aborted = 0;
  std::string broken_rule;                         // for ncclGetLastError; empty: none
  std::vector<std::shared_ptr<Running>> given_up;  // other ranks may still write to their messages
};
State& state() {
  static State the_state;
  return the_state;
}

ncclComm_t new_communicator(std::unique_ptr<Ranks> ranks, const ncclConfig_t& config) {
  constexpr int max_ranks = 1024;
  const int number = fake_nccl::number_of_first(*ranks, ++state().made * max_ranks + state().world_rank);
  const std::lock_guard lock(state().mutex);
  // User guide 2.30, ncclConfig_t: "maxCTAs [...] The default value is 32."
  constexpr int default_blocks = 32;
  const int blocks = config.maxCTAs == NCCL_CONFIG_UNDEF_INT ? default_blocks : config.maxCTAs;
  return *state().live.insert(new ncclComm{std::move(ranks), number, blocks}).first;
}
void end(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  *comm->ended = true;
  state().registrations.forget(comm);
  state().live.erase(comm);
  delete comm;
}

/// An argument is refused, and nothing else happens ("Error handling and communicator abort").
ncclResult_t refuse_argument(const char* function, const std::string& rule) {
  state().broken_rule = fmt::format("{}: {}", function, rule);
  return ncclInvalidArgument;
}
/// A call breaks a rule: every communicator reports it from now on.
ncclResult_t refuse_usage(const char* function, const std::string& rule) {
  state().broken_rule = fmt::format("{}: {}", function, rule);
  return state().broken = ncclInvalidUsage;
}
/// "Destroying a communicator": it is no longer accessed after its end.
bool is_live(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  return state().live.contains(comm);
}
#define FAKE_LIVE(comm) \
  if (!is_live(comm)) return refuse_usage(__func__, "the communicator has ended, or never began")

/// A call that blocks until `done`, and then takes effect; unless a test made it fail, or the communicator is aborted.
ncclResult_t call(
    const char* function, ncclComm_t comm, const std::function<void()>& effect = [] {},
    const Ranks::Done& done = [] { return true; }) {
  const fake_nccl::Caller caller;
  if (!caller.is_alone()) return refuse_usage(function, "two threads call at once");
  if (const auto it = state().failures.find(function); it != state().failures.end()) {
    const ncclResult_t status = it->second;
    state().failures.erase(it);
    return status;
  }
  const auto ended = comm->ended;  // a communicator that is aborted is gone
  const bool held = state().held == function;
  while (held || !done()) {
    if (*ended) return ncclInternalError;
    if (!held) fake_cuda::run_next();  // the GPU works while the host waits for others
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  effect();
  return ncclSuccess;
}

/// Returns the effect of a call of `comm`: it enqueues `parts` as one operation.
std::function<void()> enqueuing(const char* function, Parts parts, ncclComm_t comm, cudaStream_t stream) {
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  const std::string name = fmt::format("{} {} bytes", function, bytes);
  const fake_cuda::Demand demand = fake_cuda::collective_demand(comm->blocks, bytes);
  const bool captured = stream->capture != nullptr;
  const auto running = std::make_shared<Running>(Running{std::move(parts)});
  // NCCL's ncclLaunchFinish. In a hardware queue the event waits for the operation, and all later work for the event.
  const auto record_end = [=, ordered = comm->ordered] {
    if (captured) return;
    const auto passed = std::make_shared<bool>(false);
    fake_cuda::push(stream, {"record", [] { return true; }, [passed] { *passed = true; }});
    fake_cuda::push(ordered, {"wait", [passed] { return *passed; }, [] {}});
  };
  return [=, ranks = comm->ranks, ended = comm->ended, outstanding = comm->outstanding] {
    if (state().peers_lost) {
      fake_cuda::enqueue_until(
          stream, name, [] {}, [=] { return ended->load(); }, [] {});
      return record_end();
    }
    if (!captured) ++*outstanding;
    // After a broken rule an operation ends with its communicator, without a result.
    const auto is_given_up = [=] { return state().broken != ncclSuccess && ended->load(); };
    const auto begin = [=] {
      if (captured) ++*outstanding;
      if (!is_given_up()) running->begin(*ranks, captured);
    };
    fake_cuda::enqueue_until(
        stream, name, begin, [=] { return is_given_up() || running->done(*ranks, refuse_usage); },
        [=, used = ranks] {
          --*outstanding;
          if (is_given_up()) {
            state().given_up.push_back(running);
          } else {
            running->finish();
          }
        },
        demand);
    record_end();
  };
}

/// Gives every rank the contents of all ranks at `from`, in rank order. `moved` bytes are named in the log.
ncclResult_t gather(const Operation& operation, std::size_t moved, ncclComm_t comm, cudaStream_t stream,
                    const fake_nccl::Buffers& buffers, std::function<void(const std::byte* all)> use) {
  if (state().group.depth > 0) return refuse_usage(operation.function, "this fake has no groups of collectives");
  const std::string problem = fake_nccl::problem_of(buffers, comm->ranks->rank());
  if (!problem.empty()) return refuse_argument(operation.function, problem);
  const fake_nccl::Registrations& registrations = state().registrations;
  if (registrations.has(comm, buffers.from, buffers.from_bytes) &&
      registrations.has(comm, buffers.to, buffers.to_bytes))
    ++state().registered_collectives;
  if (stream->capture == nullptr) state().issued.push_back({comm->number, comm->collectives++});
  const auto start = [=](Ranks& ranks, Message& message) {
    const std::size_t bytes = buffers.from_bytes;
    message.mine.resize(bytes);
    std::memcpy(message.mine.data(), buffers.from, bytes);
    message.others.resize(bytes * static_cast<std::size_t>(ranks.size()));
    return ranks.all_gather(message.mine.data(), message.others.data(), bytes);
  };
  const auto finish = [=](const Message& m) { use(m.others.data()); };
  return call(operation.function, comm,
              enqueuing(operation.function, {{operation, moved, start, finish}}, comm, stream));
}

/// Enqueues messages as one operation. The first with a peer in each direction waits, as a call under way, for the
/// peer's host: both are connected then.
ncclResult_t pass(const char* function, Parts messages, ncclComm_t comm, cudaStream_t stream) {
  std::vector<Ranks::Done> greetings;
  for (const auto& [operation, bytes, start, finish] : messages) {
    if (!comm->met.emplace(operation.peer, operation.sends).second) continue;
    constexpr auto greeting = Ranks::Channel::greeting;
    greetings.push_back(operation.sends ? comm->ranks->send(nullptr, 0, operation.peer, greeting)
                                        : comm->ranks->receive(nullptr, 0, operation.peer, greeting));
  }
  return call(function, comm, enqueuing(function, std::move(messages), comm, stream),
              [greetings]() mutable { return fake_nccl::poll(greetings); });
}

/// Passes a message, or adds it to the group.
ncclResult_t add_message(Part message, const void* data, ncclComm_t comm, cudaStream_t stream) {
  const Operation& operation = message.operation;
  const int peer = operation.peer;
  Group& group = state().group;
  std::string problem = fake_nccl::problem_of({data, message.bytes, data, message.bytes}, 0);
  if (peer < 0 || peer >= comm->ranks->size()) problem = "there is no such peer";
  if (!problem.empty()) return group.status = refuse_argument(operation.function, problem);
  if (group.depth == 0) return pass(operation.function, {std::move(message)}, comm, stream);
  if (!group.parts.empty() && (group.comm != comm || group.stream != stream)) {
    return refuse_usage(operation.function, "this fake has no groups of several communicators or streams");
  }
  group.comm = comm;
  group.stream = stream;
  return group.status = call(operation.function, comm, [&] { group.parts.push_back(std::move(message)); });
}

ncclResult_t reduce(const char* function, ncclComm_t comm, cudaStream_t stream, const void* from, void* to,
                    std::size_t count, std::size_t first, std::size_t shard, ncclDataType_t type, ncclRedOp_t op) {
  const int ranks = comm->ranks->size();
  const std::size_t element = fake_nccl::size_of(type);
  return gather({function, shard, type, fake_nccl::name_of(op)}, shard * element, comm, stream,
                {from, count * element, to, shard * element},
                [=](const std::byte* all) { fake_nccl::combine(type, all, ranks, count, first, shard, op, to); });
}

}  // namespace

namespace fake_nccl {
void reset() {
  state().failures.clear();
  state().held.clear();
  state().broken = ncclSuccess;
  state().peers_lost = false;
  state().registered_collectives = 0;
  state().broken_rule.clear();
}
int registered_collectives() { return state().registered_collectives; }
void lose_peers() { state().peers_lost = true; }
void fail_next(const char* function, ncclResult_t status) { state().failures[function] = status; }
void hold_calls(const char* function) { state().held = function; }
void break_communicators(ncclResult_t status) { state().broken = status; }
int live() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(state().live.size());
}
int callers() { return Caller::count(); }
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
  return result == ncclRemoteError       ? "remote process exited or there was a network error"
         : result == ncclInvalidArgument ? "invalid argument"
         : result == ncclInvalidUsage    ? "invalid usage"
                                         : "unhandled system error";
}
const char* ncclGetLastError(ncclComm_t) {
  return state().broken_rule.empty() ? "socket closed by peer" : state().broken_rule.c_str();
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  ncclUniqueId made;
  ncclGetUniqueId(&made);
  // "Creating a Communicator".
  if (std::memcmp(&id, &made, sizeof id) != 0) return refuse_argument(__func__, "ncclGetUniqueId did not make the id");
  if (rank < 0 || rank >= size) return refuse_argument(__func__, "the rank is not between 0 and n-1");
  if (const std::string problem = fake_nccl::problem_of(*config); !problem.empty()) {
    return refuse_argument(__func__, problem);
  }
  state().world_rank = rank;
  state().issued.clear();
  *comm = state().world = new_communicator(fake_nccl::join_ranks(rank, size), *config);
  return config->blocking == 1 ? call("ncclCommInitRankConfig", *comm) : ncclInvalidArgument;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* shard, ncclConfig_t* config) {
  FAKE_LIVE(comm);
  if (const std::string problem = fake_nccl::problem_of(*config); !problem.empty()) {
    return refuse_argument(__func__, problem);
  }
  // "ncclCommSplit": "there should not be any outstanding NCCL operations on the comm".
  if (*comm->outstanding > 0) return refuse_usage(__func__, "an operation of the communicator is outstanding");
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
  FAKE_LIVE(comm);
  *rank = comm->ranks->rank();
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  FAKE_LIVE(comm);
  *size = comm->ranks->size();
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  if (cudaMalloc(data, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  state().registrations.add_memory(*data, bytes);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  if (fake_cuda::pending() > 0) return refuse_usage(__func__, "work of the GPU may still use the memory");
  const std::string problem = state().registrations.remove_memory(data);
  if (!problem.empty()) return refuse_usage(__func__, problem);
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  FAKE_LIVE(comm);
  const std::string problem = state().registrations.problem_of(data, bytes, false);
  if (!problem.empty()) return refuse_argument(__func__, problem);
  return call("ncclCommRegister", comm,
              [=] { *handle = reinterpret_cast<void*>(state().registrations.add(comm, data, bytes)); });
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  FAKE_LIVE(comm);
  const std::string problem = state().registrations.remove(comm, reinterpret_cast<std::uintptr_t>(handle));
  return problem.empty() ? call("ncclCommDeregister", comm) : refuse_usage(__func__, problem);
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes, ncclWindow_t* window, int) {
  FAKE_LIVE(comm);
  const std::string problem = state().registrations.problem_of(data, bytes, true);
  if (!problem.empty()) return refuse_argument(__func__, problem);
  // A collective call: all ranks register as many bytes.
  const auto sizes = std::make_shared<std::vector<std::size_t>>(static_cast<std::size_t>(comm->ranks->size()) + 1);
  sizes->back() = bytes;
  const Ranks::Done done = [=, gathered = Ranks::Done()]() mutable {
    if (*comm->outstanding > 0) return false;
    if (!gathered) {
      gathered = comm->ranks->all_gather(reinterpret_cast<const std::byte*>(&sizes->back()),
                                         reinterpret_cast<std::byte*>(sizes->data()), sizeof bytes);
    }
    return gathered();
  };
  const ncclResult_t status = call(
      "ncclCommWindowRegister", comm,
      [=] { *window = reinterpret_cast<ncclWindow_t>(state().registrations.add(comm, data, bytes)); }, done);
  for (const std::size_t size : *sizes) {
    if (status == ncclSuccess && size != bytes) return refuse_usage(__func__, "ranks register windows of other sizes");
  }
  return status;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  FAKE_LIVE(comm);
  const std::string problem = state().registrations.remove(comm, reinterpret_cast<std::uintptr_t>(window));
  return problem.empty() ? call("ncclCommWindowDeregister", comm) : refuse_usage(__func__, problem);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  FAKE_LIVE(comm);
  if (state().registrations.has_any(comm)) return refuse_usage(__func__, "a buffer is still registered");
  if (comm == state().world) fake_nccl::abort_unless_ordered(*comm->ranks, std::exchange(state().issued, {}));
  return call("ncclCommFinalize", comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  FAKE_LIVE(comm);
  if (comm->ranks.use_count() > 1) {
    std::fputs("ncclCommDestroy would wait indefinitely: a graph still uses the communicator\n", stderr);
    std::abort();
  }
  comm->ranks->close();
  end(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  FAKE_LIVE(comm);
  end(comm);
  ++state().aborted;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  FAKE_LIVE(comm);
  return reduce("ncclAllReduce", comm, stream, from, to, count, 0, count, type, op);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t shard, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  FAKE_LIVE(comm);
  const auto size = static_cast<std::size_t>(comm->ranks->size()), rank = static_cast<std::size_t>(comm->ranks->rank());
  return reduce("ncclReduceScatter", comm, stream, from, to, size * shard, rank * shard, shard, type, op);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  FAKE_LIVE(comm);
  const std::size_t bytes = count * fake_nccl::size_of(type),
                    all_bytes = bytes * static_cast<std::size_t>(comm->ranks->size());
  return gather({"ncclAllGather", count, type}, bytes, comm, stream, {from, bytes, to, all_bytes},
                [=](const std::byte* all) { std::memcpy(to, all, all_bytes); });
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  FAKE_LIVE(comm);
  const std::size_t bytes = count * fake_nccl::size_of(type);
  if (root < 0 || root >= comm->ranks->size()) return refuse_argument(__func__, "there is no such root");
  return gather({"ncclBroadcast", count, type, fmt::format(", root {}", root)}, bytes, comm, stream,
                {from, bytes, to, bytes},
                [=](const std::byte* all) { std::memcpy(to, all + bytes * static_cast<std::size_t>(root), bytes); });
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  FAKE_LIVE(comm);
  const std::size_t bytes = count * fake_nccl::size_of(type);
  const Operation operation{"ncclSend", count, type, "", peer, true};
  const auto start = [=](Ranks& ranks, Message& message) {
    message.mine.resize(bytes);
    std::memcpy(message.mine.data(), from, bytes);
    return ranks.send(message.mine.data(), bytes, peer, Ranks::Channel::data);
  };
  return add_message({operation, bytes, start, [](const Message&) {}}, from, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  FAKE_LIVE(comm);
  const std::size_t bytes = count * fake_nccl::size_of(type);
  const Operation operation{"ncclRecv", count, type, "", peer};
  const auto start = [=](Ranks& ranks, Message& message) {
    message.others.resize(bytes);
    return ranks.receive(message.others.data(), bytes, peer, Ranks::Channel::data);
  };
  const auto finish = [=](const Message& message) { std::memcpy(to, message.others.data(), bytes); };
  return add_message({operation, bytes, start, finish}, to, comm, stream);
}
ncclResult_t ncclGroupStart() {
  if (state().group.depth++ == 0) state().group.status = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  // "Group Calls": every start has its end; an outer group contains the inner ones.
  if (state().group.depth == 0) return refuse_usage(__func__, "no group has begun");
  if (--state().group.depth > 0) return ncclSuccess;
  Group group = std::exchange(state().group, {});
  if (group.status != ncclSuccess || group.parts.empty()) return group.status;
  FAKE_LIVE(group.comm);
  return pass(__func__, std::move(group.parts), group.comm, group.stream);
}

}  // extern "C"

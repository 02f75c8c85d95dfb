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
#include "tests/fakes/nccl/rules.hpp"

using fake_nccl::CallText;
using fake_nccl::Ranks;

struct ncclComm {
  std::shared_ptr<Ranks> ranks;              // shared with enqueued work and graphs
  int number;                                // greater than 0, the same on all ranks
  int blocks;                                // maximum for a kernel
  int collectives = 0;                       // so far
  std::set<std::pair<int, bool>> greeted{};  // peers, and whether this rank sends to them
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<int> outstanding = std::make_shared<int>(0);  // operations
};

namespace {

/// A message between ncclGroupStart and ncclGroupEnd.
struct GroupedMessage {
  ncclComm_t comm;
  cudaStream_t stream;
  std::byte* data;
  std::size_t bytes;
  int peer;
  bool sends;
  CallText text;
};

struct State {
  std::map<std::string, ncclResult_t> failures;
  std::string held;                                // a function
  std::atomic<ncclResult_t> broken = ncclSuccess;  // watchdogs look at it
  bool peers_lost = false;
  int world_rank = 0;
  ncclComm_t world = nullptr;           // the latest
  std::vector<fake_nccl::Call> issued;  // collectives since it was made, without recorded ones
  int made = 0;
  std::mutex mutex;  // groups are aborted by threads of their own
  std::set<ncclComm_t> live;
  std::atomic<int> aborted = 0;
  std::string broken_rule;  // for ncclGetLastError; empty: none
  bool grouping = false;    // between ncclGroupStart and ncclGroupEnd
  std::vector<GroupedMessage> grouped;
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

/// Copies of what an operation sends and receives, while it runs.
struct Message {
  std::vector<std::byte> mine, others;
  std::vector<CallText> calls;  // by rank
  Ranks::Done done;
};
using Start = std::function<Ranks::Done(Ranks&, Message&)>;

/// An operation as the ranks must agree on it; `peer` -1: all of them.
struct Operation {
  const char* function;
  std::size_t count;
  ncclDataType_t type;
  std::string operand = "";
  int peer = -1;
};

/// Returns `next`, to begin after the ranks have found that they make the same call. Otherwise it never begins.
Start after_agreement(const Operation& operation, bool captured, Start next) {
  const bool all = operation.peer < 0;
  const CallText mine = fake_nccl::call_text(all ? operation.function : "a message", operation.count, operation.type,
                                             operation.operand, captured);
  return [=](Ranks& ranks, Message& message) -> Ranks::Done {
    message.calls.assign(static_cast<std::size_t>(ranks.size()) + 1, CallText{});
    const auto bytes_of = [&](int rank) {
      return reinterpret_cast<std::byte*>(message.calls[static_cast<std::size_t>(rank)].data());
    };
    message.calls.back() = mine;
    const std::byte* const sent = bytes_of(ranks.size());
    std::vector<Ranks::Done> exchange;
    if (all) {
      exchange.push_back(ranks.all_gather(sent, bytes_of(0), sizeof mine));
    } else {
      message.calls[static_cast<std::size_t>(ranks.rank())] = mine;
      exchange.push_back(ranks.send(sent, sizeof mine, operation.peer, Ranks::Channel::call));
      exchange.push_back(ranks.receive(bytes_of(operation.peer), sizeof mine, operation.peer, Ranks::Channel::call));
    }
    return [=, &ranks, &message, begun = Ranks::Done()]() mutable {
      if (begun) return begun();
      std::erase_if(exchange, [](Ranks::Done& done) { return done(); });
      if (!exchange.empty()) return false;
      message.calls.resize(static_cast<std::size_t>(ranks.size()));
      if (const std::string problem = fake_nccl::problem_of(message.calls); !problem.empty()) {
        refuse_usage(operation.function, problem);
        return false;
      }
      begun = next(ranks, message);
      return begun();
    };
  };
}

/// Returns the effect of a call of `comm`: it enqueues an operation that `start` begins and `finish` ends.
/// `start` finds whether the ranks agree.
std::function<void()> enqueuing(const Operation& operation, std::size_t bytes, ncclComm_t comm, cudaStream_t stream,
                                Start start, std::function<void(const Message&)> finish) {
  const std::string name = fmt::format("{} {} bytes", operation.function, bytes);
  const fake_cuda::Demand demand = fake_cuda::collective_demand(comm->number, comm->blocks, bytes);
  const bool captured = stream->capture != nullptr;
  return [=, ranks = comm->ranks, ended = comm->ended, outstanding = comm->outstanding, start = std::move(start)] {
    if (state().peers_lost) {
      return fake_cuda::enqueue_until(
          stream, name, [] {}, [=] { return ended->load(); }, [] {});
    }
    if (!captured) ++*outstanding;
    auto message = std::make_shared<Message>();
    const auto begin = [=] {
      if (captured) ++*outstanding;
      message->done = start(*ranks, *message);
    };
    // After a broken rule an operation ends with its communicator, without a result.
    const auto is_given_up = [=] { return state().broken != ncclSuccess && ended->load(); };
    fake_cuda::enqueue_until(
        stream, name, begin, [=] { return is_given_up() || message->done(); },
        [=, used = ranks] {
          --*outstanding;
          if (!is_given_up()) finish(*message);
        },
        demand);
  };
}

/// Every rank sees what all have at `from`, one after another. `moved` bytes are named in the log.
ncclResult_t gather(const Operation& operation, std::size_t moved, ncclComm_t comm, cudaStream_t stream,
                    const fake_nccl::Buffers& buffers, std::function<void(const std::byte* all)> use) {
  const std::string problem = fake_nccl::problem_of(buffers, comm->ranks->rank());
  if (!problem.empty()) return refuse_argument(operation.function, problem);
  if (stream->capture == nullptr) state().issued.push_back({comm->number, comm->collectives++});
  const auto start = [=](Ranks& ranks, Message& message) {
    const std::size_t bytes = buffers.from_bytes;
    message.mine.resize(bytes);
    std::memcpy(message.mine.data(), buffers.from, bytes);
    message.others.resize(bytes * static_cast<std::size_t>(ranks.size()));
    return ranks.all_gather(message.mine.data(), message.others.data(), bytes);
  };
  return call(operation.function, comm,
              enqueuing(operation, moved, comm, stream, after_agreement(operation, stream->capture != nullptr, start),
                        [=](const Message& m) { use(m.others.data()); }));
}

/// Returns what a call waits for that sends to a peer, or receives from it, for the first time: the peer's host, which
/// connects too.
Ranks::Done connection(ncclComm_t comm, int peer, bool sends) {
  if (!comm->greeted.insert({peer, sends}).second) return [] { return true; };
  constexpr auto greeting = Ranks::Channel::greeting;
  return sends ? comm->ranks->send(nullptr, 0, peer, greeting) : comm->ranks->receive(nullptr, 0, peer, greeting);
}

/// A message between two ranks.
ncclResult_t pass(const Operation& operation, const void* data, std::size_t bytes, ncclComm_t comm, cudaStream_t stream,
                  bool sends, Start start, std::function<void(const Message&)> finish) {
  const int peer = operation.peer;
  if (peer < 0 || peer >= comm->ranks->size()) return refuse_argument(operation.function, "there is no such peer");
  const std::string problem = fake_nccl::problem_of({data, bytes, data, bytes}, 0);
  if (!problem.empty()) return refuse_argument(operation.function, problem);
  const bool captured = stream->capture != nullptr;
  if (state().grouping) {
    auto* const bytes_of_message = static_cast<std::byte*>(const_cast<void*>(data));
    state().grouped.push_back({comm, stream, bytes_of_message, bytes, peer, sends,
                               fake_nccl::call_text("a message", operation.count, operation.type, "", captured)});
    return ncclSuccess;
  }
  auto enqueue = enqueuing(operation, bytes, comm, stream, after_agreement(operation, captured, std::move(start)),
                           std::move(finish));
  return call(operation.function, comm, enqueue, connection(comm, peer, sends));
}

/// All messages of a group as one operation, in which none waits for another. Each brings its call, which the receiver
/// compares with its own.
ncclResult_t pass_group(const std::vector<GroupedMessage>& messages) {
  ncclComm* const comm = messages.front().comm;
  cudaStream_t const stream = messages.front().stream;
  auto memory = std::make_shared<std::vector<std::vector<std::byte>>>(messages.size());
  std::size_t bytes = 0;
  std::vector<Ranks::Done> connections;
  for (const GroupedMessage& message : messages) {
    if (message.comm != comm || message.stream != stream) {
      return refuse_usage("ncclGroupEnd", "the fake has groups of one communicator and stream alone");
    }
    bytes += message.bytes;
    connections.push_back(connection(comm, message.peer, message.sends));
  }
  const auto all_of = [](std::vector<Ranks::Done> parts) -> Ranks::Done {
    return [parts = std::move(parts)]() mutable {
      std::erase_if(parts, [](Ranks::Done& done) { return done(); });
      return parts.empty();
    };
  };
  const auto start = [=](Ranks& ranks, Message&) {
    std::vector<Ranks::Done> parts;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const GroupedMessage& message = messages[i];
      std::vector<std::byte>& own = (*memory)[i];
      own.resize(sizeof message.text + message.bytes);
      if (message.sends) {
        std::memcpy(own.data(), message.text.data(), sizeof message.text);
        std::memcpy(own.data() + sizeof message.text, message.data, message.bytes);
      }
      parts.push_back(message.sends ? ranks.send(own.data(), own.size(), message.peer, Ranks::Channel::data)
                                    : ranks.receive(own.data(), own.size(), message.peer, Ranks::Channel::data));
    }
    return all_of(std::move(parts));
  };
  const auto finish = [=](const Message&) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const GroupedMessage& message = messages[i];
      if (message.sends) continue;
      const std::vector<std::byte>& own = (*memory)[i];
      CallText theirs;
      std::memcpy(theirs.data(), own.data(), sizeof theirs);
      if (const std::string problem = fake_nccl::problem_of({message.text, theirs}); !problem.empty()) {
        refuse_usage("ncclGroupEnd", problem);
      }
      std::memcpy(message.data, own.data() + sizeof theirs, message.bytes);
    }
  };
  return call("ncclGroupEnd", comm,
              enqueuing({"a group of messages", 0, ncclUint8}, bytes, comm, stream, start, finish),
              all_of(std::move(connections)));
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
  state().grouping = false;
  state().grouped.clear();
  state().broken_rule.clear();
}
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
  switch (result) {
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "unhandled system error";
  }
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
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  FAKE_LIVE(comm);
  if (comm == state().world) fake_nccl::abort_unless_ordered(*comm->ranks, std::exchange(state().issued, {}));
  return call("ncclCommFinalize", comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  FAKE_LIVE(comm);
  if (comm->ranks.use_count() > 1) {
    std::fputs("ncclCommDestroy would wait for ever: a graph still has the communicator\n", stderr);
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
ncclResult_t ncclGroupStart() {
  state().grouping = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  state().grouping = false;
  const std::vector<GroupedMessage> messages = std::exchange(state().grouped, {});
  return messages.empty() ? ncclSuccess : pass_group(messages);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  FAKE_LIVE(comm);
  const std::size_t bytes = count * fake_nccl::size_of(type);
  const auto start = [=](Ranks& ranks, Message& message) {
    message.mine.resize(bytes);
    std::memcpy(message.mine.data(), from, bytes);
    return ranks.send(message.mine.data(), bytes, peer, Ranks::Channel::data);
  };
  return pass({"ncclSend", count, type, "", peer}, from, bytes, comm, stream, true, start, [](const Message&) {});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  FAKE_LIVE(comm);
  const std::size_t bytes = count * fake_nccl::size_of(type);
  const auto start = [=](Ranks& ranks, Message& message) {
    message.others.resize(bytes);
    return ranks.receive(message.others.data(), bytes, peer, Ranks::Channel::data);
  };
  return pass({"ncclRecv", count, type, "", peer}, to, bytes, comm, stream, false, start,
              [=](const Message& message) { std::memcpy(to, message.others.data(), bytes); });
}

}  // extern "C"

#include "cuda/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

#include "cuda/nccl/gpu_table.hpp"
#include "cuda/runtime/stream.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/comm/self_communicator.hpp"

namespace trireme::cuda {
namespace {

class NcclWork final : public Work::State {
 public:
  /// `room` is released with the work, at the wait for it.
  NcclWork(std::shared_ptr<NcclHandle> group, std::string operation, Multiprocessors::Token room = nullptr)
      : handle_(std::move(group)), operation_(handle_->enqueued(std::move(operation))), room_(std::move(room)) {}
  bool done() override {
    handle_->poll();
    handle_->check_alive();
    return operation_->end->done();
  }
  void wait(Stream& stream) override {
    handle_->poll();
    handle_->check_alive();
    stream.wait(*operation_->end);
  }

 private:
  std::shared_ptr<NcclHandle> handle_;
  std::shared_ptr<NcclHandle::Operation> operation_;
  Multiprocessors::Token room_;
};

ncclDataType_t nccl_type(DType dtype) {
  constexpr std::pair<DType, ncclDataType_t> types[] = {{DType::fp64, ncclFloat64},  {DType::fp32, ncclFloat32},
                                                        {DType::bf16, ncclBfloat16}, {DType::fp16, ncclFloat16},
                                                        {DType::int64, ncclInt64},   {DType::int32, ncclInt32}};
  for (const auto& [known, type] : types) {
    if (known == dtype) return type;
  }
  throw ShapeError("a reduction over ranks is of floating-point numbers, int64 or int32, not {}", name_of(dtype));
}

ncclRedOp_t nccl_operation(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : ncclMax; }

/// Thread blocks of a p2p communicator, which occupy multiprocessors during a wait for a message. NCCL's default takes
/// up to 32 of a GPU's 132 multiprocessors. Between machines the network is slower than two blocks. To be measured.
constexpr int p2p_blocks_within_machine = 8, p2p_blocks_between_machines = 2;

/// Thread blocks of a group whose collectives run concurrently with products, which leave them room (Multiprocessors).
/// NCCL's default is up to 32. To be measured.
constexpr int blocks_beside_products = 16;

std::unique_ptr<Communicator> make_self_communicator(const std::string& name) {
  return std::make_unique<SelfCommunicator>(
      name, [](Stream& stream, ConstTensorView in, TensorView out) { copy(cuda_stream(stream), in, out); });
}

/// Calls block, and return to the host when they are enqueued. `blocks` > 0 limits the blocks of kernels. It also
/// disables clusters: by default four blocks start together, on neighbouring multiprocessors, and those left free by a
/// product may be scattered (user guide 2.30, ncclConfig_t: cgaClusterSize "default value is 4 since sm90"). NCCL takes
/// a name, for its own log, from version 2.27 on; NCCL may keep the pointer.
template <class Config = ncclConfig_t>
Config configuration(const std::string& name, int blocks = 0) {
  Config config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  if (blocks > 0) {
    config.maxCTAs = blocks;
    config.cgaClusterSize = 0;
  }
  if constexpr (requires { config.commName; }) {
    static std::set<std::string> names;
    config.commName = names.insert(name).first->c_str();
  }
  return config;
}

/// Sets an NCCL environment variable to 0. Rank 0 warns if the user has set another value.
void switch_off(const Communicator& host, const char* variable, const char* reason) {
  if (const char* set = std::getenv(variable); set != nullptr && std::string_view(set) != "0" && host.rank() == 0) {
    log::warn("ignoring {}={}: {}, and messages must not", variable, set, reason);
  }
  setenv(variable, "0", 1);
}

void check_shard(const char* what, const Communicator& comm, ConstTensorView whole, ConstTensorView shard) {
  TRIREME_CHECK(whole.numel() == shard.numel() * comm.size() && whole.dtype() == shard.dtype(), ShapeError,
                "{} over {} ranks of {}: {} {} is not {} times {} {}", what, comm.size(), comm.name(),
                name_of(whole.dtype()), to_string(whole.shape()), comm.size(), name_of(shard.dtype()),
                to_string(shard.shape()));
}

std::string describe(const char* what, ConstTensorView data) {
  return fmt::format("{} of {} {}", what, data.numel(), name_of(data.dtype()));
}

/// Enqueues a message of a p2p communicator.
void pass(NcclHandle& p2p, bool sends, std::byte* data, std::size_t bytes) {
  const int other = 1 - p2p.rank();
  p2p.run(sends ? "ncclSend" : "ncclRecv", [&] {
    return sends ? ncclSend(data, bytes, ncclUint8, other, p2p.handle(), p2p.stream().handle())
                 : ncclRecv(data, bytes, ncclUint8, other, p2p.handle(), p2p.stream().handle());
  });
}

std::size_t count(ConstTensorView tensor) { return static_cast<std::size_t>(tensor.numel()); }

}  // namespace

std::vector<P2pSplit> p2p_splits(int rank, int size) {
  // Edge e joins ranks e and e + 1. The edges of a class are disjoint, so one split creates a p2p communicator for
  // each: two classes if the ring is even, a third for the last edge if it is odd. Two ranks have one edge.
  const auto class_of = [size](int edge) { return size % 2 == 1 && edge == size - 1 ? 2 : edge % 2; };
  const int classes = size == 2 ? 1 : 2 + size % 2;
  std::vector<P2pSplit> splits;
  for (int edge_class = 0; edge_class < classes; ++edge_class) {
    for (const bool forward : {true, false}) {
      P2pSplit split;
      for (const int edge : {rank, (rank + size - 1) % size}) {
        if (class_of(edge) != edge_class || (size == 2 && edge != 0)) continue;
        const bool at_start = edge == rank;
        split.colour = edge;
        split.sends = at_start == forward;
        split.key = split.sends ? 0 : 1;
        split.peer = at_start ? (rank + 1) % size : edge;
      }
      splits.push_back(split);
    }
  }
  return splits;
}

std::unique_ptr<Communicator> NcclCommunicator::make(std::shared_ptr<Device> device,
                                                     std::shared_ptr<DeviceMemory> memory,
                                                     std::unique_ptr<Communicator> host_ranks) {
  Communicator& host = *host_ranks;
  if (host.size() == 1) return make_self_communicator(host.name());
  check_one_rank_a_gpu(host, *device);
  // p2p communicators must not wait for each other, nor for groups.
  switch_off(host, "NCCL_COMM_SPLIT_SHARE_RESOURCES", "groups that share resources wait for one another");
  switch_off(host, "NCCL_LAUNCH_ORDER_IMPLICIT", "operations of different groups begin in the order of the calls then");
  ncclUniqueId id{};
  collectively(host, [&] {
    if (host.rank() != 0) return;
    const ncclResult_t status = ncclGetUniqueId(&id);
    TRIREME_CHECK(status == ncclSuccess, NcclError, "ncclGetUniqueId failed: {}; {}", ncclGetErrorString(status),
                  to_string(device->location()));
  });
  const std::string bytes = broadcast_text(host, std::string(id.internal, sizeof id.internal), 0);
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  auto watchdog = std::make_shared<CallWatchdog>();
  const ncclComm_t comm = make_nccl_world(*device, *watchdog, host.rank(), host.size(), id, configuration(host.name()));
  auto group = std::make_shared<NcclHandle>(std::move(device), std::move(watchdog), comm, host.name());
  return std::unique_ptr<Communicator>(
      new NcclCommunicator(std::move(host_ranks), std::move(group), std::move(memory), GroupUse::general));
}

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<NcclHandle> group,
                                   std::shared_ptr<DeviceMemory> memory, GroupUse use)
    : host_(std::move(host)),
      handle_(std::move(group)),
      collectives_(handle_->device().watch(
          {.check = [] {},
           .collectives = [handle = handle_.get()] { return cudaStreamQuery(handle->stream().handle()); }})),
      memory_(std::move(memory)),
      use_(use),
      token_(memory_->allocate(2 * sizeof(std::int32_t))) {}

NcclCommunicator::~NcclCommunicator() {
  // Destroying a p2p communicator waits for the other rank: both destroy theirs in the same order.
  for (P2pCommunicator& p2p : p2p_communicators_) p2p.handle.reset();
}

void NcclCommunicator::begin(Stream& stream) {
  handle_->check_alive();
  handle_->begin_after(*stream.record());
}

Work NcclCommunicator::enqueue(const char* call, std::string operation,
                               const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& function) {
  handle_->run(call, [&] { return function(handle_->handle(), handle_->stream().handle()); });
  Multiprocessors::Token room;
  if (use_ == GroupUse::beside_products) room = handle_->device().multiprocessors().begin_collective();
  return Work(std::make_unique<NcclWork>(handle_, std::move(operation), std::move(room)));
}

Work NcclCommunicator::all_reduce(StreamPoint stream, TensorView data, ReduceOp op) {
  const ncclDataType_t type = nccl_type(data.dtype());
  if (data.numel() == 0) return {};
  begin(stream);
  return enqueue("ncclAllReduce", describe("all-reduce", data), [&](ncclComm_t comm, cudaStream_t on) {
    return ncclAllReduce(data.data(), data.data(), count(data), type, nccl_operation(op), comm, on);
  });
}

Work NcclCommunicator::reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) {
  check_shard("reduce-scatter", *this, in, out);
  const ncclDataType_t type = nccl_type(in.dtype());
  if (out.numel() == 0) return {};
  begin(stream);
  return enqueue("ncclReduceScatter", describe("reduce-scatter", in), [&](ncclComm_t comm, cudaStream_t on) {
    return ncclReduceScatter(in.data(), out.data(), count(out), type, nccl_operation(op), comm, on);
  });
}

Work NcclCommunicator::all_gather(StreamPoint stream, ConstTensorView in, TensorView out) {
  check_shard("all-gather", *this, out, in);
  if (in.numel() == 0) return {};
  begin(stream);
  // As bytes: data of any type is moved, not reduced.
  return enqueue("ncclAllGather", describe("all-gather", out), [&](ncclComm_t comm, cudaStream_t on) {
    return ncclAllGather(in.data(), out.data(), in.size_bytes(), ncclUint8, comm, on);
  });
}

Work NcclCommunicator::broadcast(StreamPoint stream, TensorView data, int root) {
  TRIREME_CHECK(root >= 0 && root < size(), ShapeError, "broadcast from rank {} of {}, which has {}", root, name(),
                size());
  if (data.numel() == 0) return {};
  begin(stream);
  return enqueue("ncclBroadcast", describe("broadcast", data), [&](ncclComm_t comm, cudaStream_t on) {
    return ncclBroadcast(data.data(), data.data(), data.size_bytes(), ncclUint8, root, comm, on);
  });
}

std::vector<Work> NcclCommunicator::exchange(StreamPoint stream, std::span<const Transfer> transfers) {
  if (transfers.empty()) return {};
  handle_->check_alive();
  if (p2p_communicators_.empty()) make_p2p_communicators();
  const std::unique_ptr<Event> before = stream->record();
  std::vector<Work> works(transfers.size());
  // Receives first: an earlier send that this one waits for may wait for a receive that the peer posts here.
  for (const bool sends : {false, true}) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (sends == (transfers[i].direction == Transfer::Direction::send)) works[i] = transfer(*before, transfers[i]);
    }
  }
  return works;
}

Work NcclCommunicator::grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) {
  std::size_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.data.size_bytes();
  if (bytes == 0) return {};
  begin(stream);
  std::string operation = fmt::format("exchange of {} messages, {} bytes in all", transfers.size(), bytes);
  return enqueue("ncclGroupEnd", std::move(operation), [&](ncclComm_t comm, cudaStream_t on) {
    ncclResult_t status = ncclGroupStart();
    for (const Transfer& transfer : transfers) {
      const TensorView& data = transfer.data;
      if (status != ncclSuccess || data.numel() == 0) continue;
      status = transfer.direction == Transfer::Direction::send
                   ? ncclSend(data.data(), data.size_bytes(), ncclUint8, transfer.peer, comm, on)
                   : ncclRecv(data.data(), data.size_bytes(), ncclUint8, transfer.peer, comm, on);
    }
    const ncclResult_t end = ncclGroupEnd();  // also after an error: the thread would stay in the group
    return status != ncclSuccess ? status : end;
  });
}

Work NcclCommunicator::transfer(const Event& before, const Transfer& transfer) {
  const bool sends = transfer.direction == Transfer::Direction::send;
  const auto found = std::ranges::find_if(
      p2p_communicators_, [&](const P2pCommunicator& p2p) { return p2p.peer == transfer.peer && p2p.sends == sends; });
  TRIREME_CHECK(
      found != p2p_communicators_.end(), ShapeError,
      "rank {} of {} has an exchange with rank {}: NCCL's exchanges go between neighbours of the ring; others "
      "are grouped_exchange",
      rank(), name(), transfer.peer);
  const std::shared_ptr<NcclHandle>& p2p = found->handle;
  p2p->check_alive();
  p2p->begin_after(before);
  const TensorView& data = transfer.data;
  pass(*p2p, sends, data.data(), data.size_bytes());
  return Work(std::make_unique<NcclWork>(p2p, describe(sends ? "send" : "receive", data)));
}

void NcclCommunicator::make_p2p_communicators() {
  const std::vector<std::string> machines = all_gather_text(*host_, machine_name(handle_->device().location()));
  const auto machine_of = [&](int rank) { return machines[static_cast<std::size_t>(rank)]; };
  for (const P2pSplit& split : p2p_splits(rank(), size())) {
    const int from = split.sends ? rank() : split.peer, to = split.sends ? split.peer : rank();
    const int blocks = machine_of(from) == machine_of(to) ? p2p_blocks_within_machine : p2p_blocks_between_machines;
    auto p2p = split_handle(split.colour, split.key, fmt::format("{} {} to {}", name(), from, to), blocks);
    if (p2p == nullptr) continue;
    // NCCL connects two ranks at their first message, where each host waits for the other. So they connect here, where
    // both have no earlier message to start.
    std::byte* const sent = token_.data() + sizeof(std::int32_t);
    pass(*p2p, split.sends, split.sends ? sent : sent + 1, 1);
    p2p_communicators_.push_back({split.peer, split.sends, std::move(p2p)});
  }
}

void NcclCommunicator::barrier(const Caller&) {
  ImmediateStream host;
  all_reduce(host, TensorView(token_.data(), DType::int32, {1}), ReduceOp::max).wait(host);
}

Allocator& NcclCommunicator::buffers(Allocator& memory) {
  const BufferRegistration registration = buffer_registration();
  if (registration == BufferRegistration::none) {
    log::warn("the buffers of the group {} are not registered: this NCCL is older than 2.26", name());
    return memory;
  }
  if (!buffers_) {
    log::info("the buffers of the group {} are registered with NCCL{}", name(),
              registration == BufferRegistration::window ? ", as windows if the GPUs have symmetric memory" : "");
    buffers_.emplace(handle_, memory_);
  }
  return *buffers_;
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key, const std::string& name, GroupUse use) {
  std::unique_ptr<Communicator> host = host_->split(colour, key, name);
  const bool alone = host != nullptr && host->size() == 1;
  const int blocks = use == GroupUse::beside_products ? blocks_beside_products : 0;
  std::shared_ptr<NcclHandle> group = split_handle(alone ? -1 : colour, key, name, blocks);
  if (host == nullptr) return nullptr;
  if (alone) return make_self_communicator(name);
  return std::unique_ptr<Communicator>(new NcclCommunicator(std::move(host), std::move(group), memory_, use));
}

std::shared_ptr<NcclHandle> NcclCommunicator::split_handle(int colour, int key, const std::string& name, int blocks) {
  ncclConfig_t config = configuration(name, blocks);
  ncclComm_t group = nullptr;
  handle_->run("ncclCommSplit", [&] {
    return ncclCommSplit(handle_->handle(), colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, &group, &config);
  });
  if (colour < 0) return nullptr;
  return std::make_shared<NcclHandle>(handle_->shared_device(), handle_->watchdog(), group, name, blocks);
}

}  // namespace trireme::cuda

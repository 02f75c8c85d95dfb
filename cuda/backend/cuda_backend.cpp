#include "cuda/backend/cuda_backend.hpp"

#include <cuda_profiler_api.h>
#include <fmt/ranges.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string_view>
#include <utility>

#include "cuda/cublaslt/product.hpp"
#include "cuda/kernels/epilogue.hpp"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/gemm.hpp"
#include "cuda/nccl/algorithms.hpp"
#include "cuda/nccl/nccl_communicator.hpp"
#include "cuda/nccl/staged_communicator.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/stream.hpp"
#include "src/backend/profiled_device.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "src/base/text.hpp"
#include "src/comm/device_communicators.hpp"

namespace trireme::cuda {
namespace {

DeviceLocation location_of(const BackendOptions& options) {
  DeviceLocation location{options.world_rank, "", 0, ""};
  location.host = node_name();
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (is_of_machine(status)) {
    throw_machine_error(fmt::format("the GPUs of {} cannot be used: {}", location.host, reason_of(status)),
                        location.host);
  }
  TRIREME_CHECK(status == cudaSuccess && count > 0, BackendUnavailable, "no GPU is visible on {}: {}", location.host,
                status == cudaSuccess ? "CUDA counts none" : reason_of(status));
  location.device = choose_device(options.local_rank, count);
  return location;
}

/// Returns whether attention has its kernels by warp groups. TRIREME_WARP_GROUPS=off leaves them out, for a GPU on
/// which one of them hangs.
bool has_warp_groups(const Device& device) {
  const char* set = std::getenv("TRIREME_WARP_GROUPS");
  return device.compute_capability() == 90 && (set == nullptr || std::string_view(set) != "off");
}

/// Returns whether kernels built for one entry of the list of architectures run on a GPU of this compute capability.
bool runs_on(std::string_view entry, int capability) {
  std::size_t digits = 0;
  int built = 0;
  for (; digits < entry.size() && entry[digits] >= '0' && entry[digits] <= '9'; ++digits) {
    built = 10 * built + entry[digits] - '0';
  }
  if (digits == 0) return true;  // "native" or "all": the CUDA runtime decides
  const std::string_view rest = entry.substr(digits);
  const bool this_one_alone = rest.starts_with('a');
  const bool has_ptx = !rest.ends_with("-real");
  const bool has_binary = !rest.ends_with("-virtual");
  if (this_one_alone) return built == capability;
  if (has_ptx && capability >= built) return true;
  return has_binary && built / 10 == capability / 10 && built <= capability;
}

class CudaBackend final : public Backend, public DeviceCommunicators, public GraphRecorder, public ProfiledDevice {
 public:
  CudaBackend(const BackendOptions& options, const std::string& built_for)
      : device_(std::make_shared<Device>(location_of(options),
                                         options.check_launches ? LaunchChecks::immediate : LaunchChecks::deferred)),
        memory_(std::make_shared<DeviceMemory>(device_)),
        pinned_(std::make_shared<PinnedMemory>(device_)),
        stream_(device_),
        deterministic_(options.deterministic),
        kernels_{.gemm = make_gemm(device_, memory_, std::make_unique<EventTimer>(),
                                   {options.allow_reduced_precision, options.deterministic, options.algorithm_cache}),
                 .norm = make_norm(scratch()),
                 .attention = make_attention(scratch(), device_->shared_bytes_of_block(), has_warp_groups(*device_)),
                 .elementwise = make_elementwise(scratch()),
                 .embedding = make_embedding(),
                 .cross_entropy = make_cross_entropy(device_->shared_bytes_of_block()),
                 .optimizer = make_optimizer(),
                 .reduce = make_reduce(scratch()),
                 .rotary = make_rotary(),
                 .experts = make_experts(scratch())} {
    const std::string problem = architecture_problem(built_for, device_->compute_capability());
    TRIREME_CHECK(problem.empty(), BackendUnavailable, "{}; {}", problem, to_string(device_->location()));
    device_->set_max_wait(options.max_wait_s);
  }
  ~CudaBackend() override {
    // Their memory is reused or freed immediately after release.
    for (const Uploading& upload : uploading_) {
      try {
        upload.end->synchronize();
      } catch (const Error&) {
        // No one reads the results after this point.
      }
    }
  }
  CudaBackend& operator=(CudaBackend&&) = delete;

  std::string name() const override { return "cuda"; }
  std::string description() const override { return device_->description(); }
  std::string device_identity() const override { return device_->uuid(); }
  bool supports(Capability capability) const override {
    switch (capability) {
      case Capability::fp64_training:
        return false;
      case Capability::fp8:
      case Capability::fp8_copies:
        return device_->compute_capability() >= 89;
      case Capability::fp8_blocks:  // cuBLASLt has them for Hopper alone
        return device_->compute_capability() == 90 && Products::has_block_scales();
      case Capability::repeatable:
        return deterministic_;
      default:
        return true;
    }
  }

  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStream>(device_); }
  std::unique_ptr<Stream> make_background_stream() override {
    return std::make_unique<CudaStream>(device_, CudaStream::Priority::low);
  }

  bool memory_is_host() const override { return false; }
  Allocator& host_memory() override { return *pinned_; }
  bool is_in_host_memory(ConstTensorView tensor) const override { return pinned_->owns(tensor.data()); }
  void release_host_memory() override { pinned_->release(); }

  void copy_from_host(Stream& stream, ConstTensorView host, TensorView device) override {
    CudaStream& on = cuda_stream(stream);
    if (host.size_bytes() == 0 || pinned_->owns(host.data())) return copy(on, host, device);
    for_each_segment(host, device, [&](ConstTensorView from, TensorView to) {
      while (!uploading_.empty() && uploading_.front().end->done()) uploading_.pop_front();
      Buffer staging = pinned_->allocate(from.size_bytes());
      std::memcpy(staging.data(), from.data(), from.size_bytes());
      copy(on, ConstTensorView(staging.data(), from.dtype(), from.shape()), to);
      uploading_.push_back({std::move(staging), on.record()});
    });
  }
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override {
    CudaStream& on = cuda_stream(stream);
    if (host.size_bytes() == 0 || pinned_->owns(host.data())) return copy(on, device, host);
    for_each_segment(device, host, [&](ConstTensorView from, TensorView to) {
      const Buffer staging = pinned_->allocate(from.size_bytes());
      copy(on, from, TensorView(staging.data(), from.dtype(), from.shape()));
      on.synchronize();
      std::memcpy(to.data(), staging.data(), to.size_bytes());
    });
  }

  Buffer allocate(std::size_t size_bytes) override { return memory_->allocate(size_bytes); }
  std::size_t allocated_bytes() const override { return memory_->allocated_bytes(); }
  std::size_t peak_allocated_bytes() const override { return memory_->peak_allocated_bytes(); }
  std::size_t device_memory_bytes() const override { return memory_->info().total; }
  std::size_t free_memory_bytes() const override { return memory_->info().free; }
  std::size_t kernel_memory_bytes(const KernelExtents& extents) const override {
    // The pool caches the memory of trial products (TrialOperands), partial sums and routers.
    const std::size_t gradient = static_cast<std::size_t>(extents.weight_gradient) * sizeof(float);
    const std::size_t trial = deterministic_ ? 0 : device_->l2_bytes() + gradient;
    const std::size_t streams = 1 + (extents.groups < 2 ? 0 : std::min<std::size_t>(extents.groups, group_streams));
    return streams * workspace_bytes + trial + column_sums_bytes(extents.summed_rows, extents.summed_columns) +
           static_cast<std::size_t>(extents.fp8_bytes + extents.mask_bytes) +
           route_scratch_bytes(extents.balanced_tokens) + limit_load_scratch_bytes(extents.limited_choices);
  }

  std::unique_ptr<Communicator> make_world(std::unique_ptr<Communicator> host, DeviceTransport transport) override {
    if (transport == DeviceTransport::staged) {
      return std::make_unique<StagedCommunicator>(device_, pinned_, std::move(host));
    }
    if (deterministic_) forbid_unordered_sums();
    return NcclCommunicator::make(device_, memory_, std::move(host));
  }

  std::unique_ptr<Graph> record(const std::function<void()>& enqueue) override {
    return CudaGraph::record(device_, stream_, enqueue);
  }
  void copy_within(Stream& stream, ConstTensorView from, TensorView to) override {
    copy(cuda_stream(stream), from, to);
  }
  std::size_t launches() const override { return device_->launches(); }

  // No-ops without a profiler such as Nsight Systems. NVTX loads the library of a profiler itself.
  void start_profiler() override { device_->check(cudaProfilerStart(), "cudaProfilerStart"); }
  void stop_profiler() override { device_->check(cudaProfilerStop(), "cudaProfilerStop"); }
  void begin_range(const char* name) override { nvtxRangePushA(name); }
  void end_range() override { nvtxRangePop(); }

 private:
  const KernelFamilies& kernels() const override { return kernels_; }

  /// Pinned memory whose copy to the GPU is in flight.
  struct Uploading {
    Buffer staging;
    std::unique_ptr<Event> end;
  };

  /// Calls function(from, to) for segments of two tensors of one type and size, each small enough for a buffer of
  /// pinned memory.
  template <class Function>
  static void for_each_segment(ConstTensorView from, TensorView to, Function&& function) {
    TRIREME_CHECK(from.dtype() == to.dtype() && from.numel() == to.numel(), ShapeError, "copy of {} {} to {} {}",
                  name_of(from.dtype()), to_string(from.shape()), name_of(to.dtype()), to_string(to.shape()));
    constexpr std::int64_t segment_bytes = std::int64_t{8} << 20;
    const std::int64_t segment = segment_bytes / static_cast<std::int64_t>(size_of(from.dtype()));
    for (std::int64_t begin = 0; begin < from.numel(); begin += segment) {
      const std::int64_t count = std::min(segment, from.numel() - begin);
      function(from.flat(begin, count), to.flat(begin, count));
    }
  }

  Scratch scratch() const {
    return [memory = memory_](Stream& stream, std::size_t size_bytes) {
      return memory->allocate_on(cuda_stream(stream), size_bytes);
    };
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<DeviceMemory> memory_;
  std::shared_ptr<PinnedMemory> pinned_;
  CudaStream stream_;
  bool deterministic_;
  std::deque<Uploading> uploading_;
  KernelFamilies kernels_;
};

}  // namespace

std::string architecture_problem(const std::string& built_for, int capability) {
  const std::vector<std::string_view> entries = split(built_for, ',');
  if (std::ranges::any_of(entries, [&](std::string_view entry) { return runs_on(entry, capability); })) return "";
  return fmt::format(
      "this build has kernels for the architectures {}, and the GPU has compute capability {}.{}: build with "
      "-D TRIREME_CUDA_ARCHITECTURES={}-real",
      fmt::join(entries, ", "), capability / 10, capability % 10, capability);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, const std::string& built_for) {
  return std::make_unique<CudaBackend>(options, built_for);
}

}  // namespace trireme::cuda

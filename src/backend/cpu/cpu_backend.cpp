#include "src/backend/cpu/cpu_backend.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "src/base/machine.hpp"

namespace trireme::cpu {
namespace {

/// Count of allocated bytes, shared with buffers, which may outlive the backend.
struct MemoryCount {
  std::atomic<std::size_t> now{0};
  std::atomic<std::size_t> peak{0};
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads)
      : pool_(threads),
        kernels_{.gemm = make_gemm(pool_),
                 .norm = make_norm(pool_),
                 .attention = make_attention(pool_),
                 .elementwise = make_elementwise(pool_),
                 .embedding = make_embedding(pool_),
                 .cross_entropy = make_cross_entropy(pool_),
                 .optimizer = make_optimizer(pool_),
                 .reduce = make_reduce(pool_),
                 .rotary = make_rotary(pool_),
                 .experts = make_experts(pool_)} {}

  std::string name() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("{} thread{}", pool_.threads(), pool_.threads() == 1 ? "" : "s");
  }
  bool supports(Capability capability) const override {
    return capability == Capability::fp64_training || capability == Capability::fp8 ||
           capability == Capability::fp8_blocks || capability == Capability::results ||
           capability == Capability::repeatable;
  }

  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }

  bool memory_is_host() const override { return true; }
  Allocator& host_memory() override { return *this; }
  void copy_from_host(Stream&, ConstTensorView host, TensorView device) override { copy(host, device); }
  void copy_to_host(Stream&, ConstTensorView device, TensorView host) override { copy(device, host); }
  void copy_within(Stream&, ConstTensorView from, TensorView to) override { copy(from, to); }

  Buffer allocate(std::size_t size_bytes) override {
    constexpr std::size_t line = 64, huge_page = std::size_t{2} << 20;
    const std::size_t rounded = std::max(line, (size_bytes + line - 1) / line * line);
    // Requests huge pages for large buffers: matrices read by columns miss the TLB less.
    const std::size_t alignment = rounded < 2 * huge_page ? line : huge_page;
    auto* data = static_cast<std::byte*>(::operator new (rounded, std::align_val_t{alignment}, std::nothrow));
    TRIREME_CHECK(
        data != nullptr, EnvironmentError,
        "no memory left for {} MiB on this rank, which holds {} MiB: use fewer ranks a machine, more tensor or "
        "pipeline ranks, or a smaller micro-batch",
        rounded >> 20, memory_->now >> 20);
    // If the system declines, the buffer works, but is slower.
    if (alignment == huge_page) madvise(data, rounded / huge_page * huge_page, MADV_HUGEPAGE);
    const std::size_t now = memory_->now += rounded;
    std::size_t peak = memory_->peak;
    while (now > peak && !memory_->peak.compare_exchange_weak(peak, now)) {
    }
    return {data, size_bytes, [memory = memory_, rounded, alignment](std::byte* pointer) {
              ::operator delete (pointer, std::align_val_t{alignment});
              memory->now -= rounded;
            }};
  }
  std::size_t allocated_bytes() const override { return memory_->now; }
  std::size_t peak_allocated_bytes() const override { return memory_->peak; }
  std::size_t device_memory_bytes() const override { return machine_memory_bytes(); }

 private:
  const KernelFamilies& kernels() const override { return kernels_; }

  static void copy(ConstTensorView from, TensorView to) {
    TRIREME_CHECK(from.dtype() == to.dtype() && from.numel() == to.numel(), ShapeError, "copy of {} {} to {} {}",
                  name_of(from.dtype()), to_string(from.shape()), name_of(to.dtype()), to_string(to.shape()));
    if (from.size_bytes() > 0) std::memcpy(to.data(), from.data(), from.size_bytes());
  }

  std::shared_ptr<MemoryCount> memory_ = std::make_shared<MemoryCount>();
  ThreadPool pool_;
  ImmediateStream stream_;
  KernelFamilies kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace trireme::cpu

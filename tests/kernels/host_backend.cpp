#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "cuda/kernels/families.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/forwarding_backend.hpp"
#include "tests/support/gpu/fibers.hpp"
#include "tests/support/test_backend.hpp"

namespace trireme::test {
namespace {

/// The hand-written CUDA kernels on the host layer; products and copies are the CPU backend's. While there is one,
/// kernels are given none but its memory.
class HostBackend final : public ForwardingBackend {
 public:
  explicit HostBackend(std::unique_ptr<Backend> cpu = cpu::make_backend(1))
      : ForwardingBackend(*cpu), cpu_(std::move(cpu)) {
    ++backends;
    gpu::host::set_memory(is_allocated);
  }
  ~HostBackend() override {
    if (--backends == 0) gpu::host::set_memory({});
  }
  std::string name() const override { return "cuda"; }
  std::string description() const override { return "kernels on the host"; }

  /// Allocates exactly the size, so that AddressSanitizer finds accesses beyond it, and fills it with NaN.
  Buffer allocate(std::size_t size_bytes) override { return poisoned(size_bytes); }
  std::size_t allocated_bytes() const override { return 0; }
  std::size_t peak_allocated_bytes() const override { return 0; }

 private:
  const KernelFamilies& kernels() const override { return kernels_; }

  static Buffer poisoned(std::size_t size_bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, size_bytes) != 0) throw std::bad_alloc();
    if (size_bytes > 0) std::memset(memory, 0xff, size_bytes);
    allocations()[static_cast<std::byte*>(memory)] = size_bytes;
    return {static_cast<std::byte*>(memory), size_bytes, [](std::byte* data) {
              allocations().erase(data);
              std::free(data);
            }};
  }
  /// Sizes by address, of all backends.
  static std::map<const void*, std::size_t>& allocations() {
    static std::map<const void*, std::size_t> all;
    return all;
  }
  static bool is_allocated(const void* pointer) {
    const auto behind = allocations().upper_bound(pointer);
    if (behind == allocations().begin()) return false;
    const auto& [begin, size_bytes] = *std::prev(behind);
    return static_cast<const std::byte*>(pointer) <= static_cast<const std::byte*>(begin) + size_bytes;
  }
  static Buffer scratch(Stream&, std::size_t size_bytes) { return poisoned(size_bytes); }

  static inline int backends = 0;
  std::unique_ptr<Backend> cpu_;
  ThreadPool pool_{1};
  KernelFamilies kernels_{.gemm = cpu::make_gemm(pool_),
                          .norm = cuda::make_norm(scratch),
                          .attention = cuda::make_attention(scratch, gpu::host::max_shared_bytes, true),
                          .elementwise = cuda::make_elementwise(scratch),
                          .embedding = cuda::make_embedding(),
                          .cross_entropy = cuda::make_cross_entropy(gpu::host::max_shared_bytes),
                          .optimizer = cuda::make_optimizer(),
                          .reduce = cuda::make_reduce(scratch),
                          .rotary = cuda::make_rotary(),
                          .experts = cuda::make_experts(scratch)};
};

}  // namespace

bool has_fp64_kernels() { return true; }

std::unique_ptr<Backend> make_backend(int variant) {
  gpu::host::set_order(static_cast<unsigned>(variant - 1));
  return std::make_unique<HostBackend>();
}

}  // namespace trireme::test

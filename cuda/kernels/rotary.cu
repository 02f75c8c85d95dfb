#include "src/backend/kernels/rotary.hpp"

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/vec8.cuh"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

/// Samples of a row that share its position.
constexpr std::int64_t samples_of_block(const RotaryHeads& x) { return x.position_ids == nullptr ? x.batch : 1; }

/// One block processes the samples of one row that share its position. Its sines and cosines, in dynamic shared memory,
/// are shared by all their heads. A thread processes eight pairs of channels at a time.
template <class T>
__global__ void __launch_bounds__(block_threads)
    rotate_kernel(RotaryEmbedding rotary, RotaryHeads x, double sign, T* data) {
  using A = Accumulation<T>;
  const int pairs = static_cast<int>(rotary.channels / 2), vec8s = static_cast<int>(vec8s_of(pairs));
  const std::int64_t samples = samples_of_block(x), row = blockIdx.x * samples / x.batch;
  const std::int64_t first_sample = blockIdx.x * samples % x.batch;
  A* cosines = gpu::dynamic_shared<A>();
  A* sines = cosines + pairs;
  for (int pair = threadIdx.x; pair < pairs; pair += block_threads) {
    const double exponent = -2 * static_cast<double>(pair) / static_cast<double>(rotary.channels);
    const double angle =
        static_cast<double>(x.position(row, first_sample)) * rotary.scaled(pair, std::pow(rotary.base, exponent));
    cosines[pair] = static_cast<A>(rotary.magnitude * std::cos(angle));
    sines[pair] = static_cast<A>(sign * rotary.magnitude * std::sin(angle));
  }
  __syncthreads();
  const int heads = static_cast<int>(x.heads), items = static_cast<int>(samples) * heads * vec8s;
  for (int item = threadIdx.x; item < items; item += block_threads) {
    const Vec8 range = vec8_at(item % vec8s, pairs);
    const std::int64_t head = item / vec8s % heads, sample = first_sample + item / vec8s / heads;
    T* first =
        data + row * x.data.position_stride + sample * x.data.sample_stride + head * x.data.head_stride + range.begin;
    T* second = first + pairs;
    const PackedVec8 of_first(first, range.size), of_second(second, range.size);
    A a[8], b[8];
    of_first.unpack(a);
    of_second.unpack(b);
    for (int c = 0; c < 8; ++c) {
      if (c >= range.size) continue;
      const A cosine = cosines[range.begin + c], sine = sines[range.begin + c], before = a[c];
      a[c] = before * cosine - b[c] * sine;
      b[c] = b[c] * cosine + before * sine;
    }
    store(a, range.size, first);
    store(b, range.size, second);
  }
}

class CudaRotary final : public RotaryKernels {
 public:
  void rotate(Stream& stream, const RotaryEmbedding& rotary, const RotaryHeads& x, Rotation rotation) override {
    check_rotate(rotary, x);
    if (x.batch == 0) return;
    dispatch_gpu(x.data.data.dtype(), [&]<class T>() {
      const std::size_t shared_bytes = static_cast<std::size_t>(rotary.channels) * sizeof(Accumulation<T>);
      gpu::launch(stream, {"rotate", x.rows * (x.batch / samples_of_block(x)), block_threads, shared_bytes},
                  rotate_kernel<T>, rotary, x, rotation == Rotation::forward ? 1.0 : -1.0,
                  x.data.data.template as<T>());
    });
  }
};

}  // namespace

std::unique_ptr<RotaryKernels> make_rotary() { return std::make_unique<CudaRotary>(); }

}  // namespace trireme::cuda

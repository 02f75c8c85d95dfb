#include "src/backend/kernels/rotary.hpp"

#include "cuda/kernels/eight.cuh"
#include "cuda/kernels/families.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

/// A thread for each pair of channels of a row: one sine and cosine for all samples and heads.
template <class T>
__global__ void __launch_bounds__(block_threads)
    rotate_kernel(RotaryEmbedding rotary, RotaryHeads x, double sign, T* data) {
  using A = Accumulation<T>;
  const std::int64_t pairs = rotary.channels / 2;
  const std::int64_t row = global_thread() / pairs, pair = global_thread() % pairs;
  if (row >= x.rows) return;
  const double exponent = -2 * static_cast<double>(pair) / static_cast<double>(rotary.channels);
  const double angle = static_cast<double>(x.positions[row]) * std::pow(rotary.base, exponent);
  const A cosine = static_cast<A>(std::cos(angle)), sine = static_cast<A>(sign * std::sin(angle));
  for (std::int64_t sample = 0; sample < x.batch; ++sample) {
    for (std::int64_t head = 0; head < x.heads; ++head) {
      T* first = data + row * x.data.position_stride + sample * x.data.sample_stride + head * x.data.head_stride + pair;
      T* second = first + pairs;
      const A a = gpu::widen(*first), b = gpu::widen(*second);
      *first = gpu::narrow<T>(a * cosine - b * sine);
      *second = gpu::narrow<T>(b * cosine + a * sine);
    }
  }
}

class CudaRotary final : public RotaryKernels {
 public:
  void rotate(Stream& stream, const RotaryEmbedding& rotary, const RotaryHeads& x, Rotation rotation) override {
    check_rotate(rotary, x);
    dispatch_float(x.data.data.dtype(), [&]<class T>() {
      gpu::launch(stream, {"rotate", blocks_for(x.rows * rotary.channels / 2), block_threads}, rotate_kernel<T>, rotary,
                  x, rotation == Rotation::forward ? 1.0 : -1.0, x.data.data.template as<T>());
    });
  }
};

}  // namespace

std::unique_ptr<RotaryKernels> make_rotary() { return std::make_unique<CudaRotary>(); }

}  // namespace trireme::cuda

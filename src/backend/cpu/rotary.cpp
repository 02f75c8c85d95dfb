#include "src/backend/kernels/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <utility>
#include <vector>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// The turns of all channels by the positions first step, (first + 1) step ... (count of them), [count, pairs].
std::vector<std::complex<double>> turns(const RotaryEmbedding& rotary, std::int64_t first, std::int64_t count,
                                        std::int64_t step) {
  const std::int64_t pairs = rotary.channels / 2;
  std::vector<std::complex<double>> table(static_cast<std::size_t>(count * pairs));
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double frequency =
        rotary.scaled(i, std::pow(rotary.base, -2 * static_cast<double>(i) / static_cast<double>(rotary.channels)));
    for (std::int64_t k = 0; k < count; ++k) {
      table[static_cast<std::size_t>(k * pairs + i)] =
          std::polar(1.0, static_cast<double>((first + k) * step) * frequency);
    }
  }
  return table;
}

/// The smallest and largest position of the rows.
std::pair<std::int64_t, std::int64_t> ends_of(const RotaryHeads& x) {
  if (x.position_ids != nullptr) {
    const auto [least, greatest] = std::minmax_element(x.position_ids, x.position_ids + x.rows * x.batch);
    return {*least, *greatest};
  }
  // Positions ascend in each of the two pieces.
  const std::int64_t split = std::min(x.rows, x.positions.split);
  return std::minmax(
      {x.positions[0], x.positions[split - 1], x.positions[x.rows - 1], x.positions[std::min(split, x.rows - 1)]});
}

/// One head: x and y are its two halves.
template <class A>
void rotate_head(const A* cosine, const A* sine, std::int64_t pairs, const A* x, const A* y, A* to_x, A* to_y) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const A first = x[i], second = y[i];
    to_x[i] = first * cosine[i] - second * sine[i];
    to_y[i] = second * cosine[i] + first * sine[i];
  }
}

class CpuRotary final : public RotaryKernels {
 public:
  explicit CpuRotary(ThreadPool& pool) : pool_(pool) {}

  void rotate(Stream&, const RotaryEmbedding& rotary, const RotaryHeads& x, Rotation rotation) override {
    check_rotate(rotary, x);
    if (x.rows == 0 || x.batch == 0) return;
    // The turn by a position is the product of those by its multiple of `block` and by the rest: a few sines suffice
    // for many positions, and are the same for every split of a sequence.
    constexpr std::int64_t block = 64;
    const std::int64_t pairs = rotary.channels / 2;
    const auto ends = ends_of(x);
    const std::int64_t first_block = ends.first / block;
    const std::int64_t blocks = ends.second / block - first_block + 1;
    const std::int64_t first_rest = blocks == 1 ? ends.first % block : 0;
    const std::int64_t rests = blocks == 1 ? ends.second - ends.first + 1 : block;
    const std::vector<std::complex<double>> coarse = turns(rotary, first_block, blocks, block);
    const std::vector<std::complex<double>> fine = turns(rotary, first_rest, rests, 1);
    const double magnitude = rotary.magnitude, sign = rotation == Rotation::forward ? magnitude : -magnitude;
    dispatch_float(x.data.data.dtype(), [&]<class T, class A>() {
      T* data = x.data.data.template as<T>();
      pool_.parallel_ranges(x.rows, 16, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(static_cast<std::size_t>(4 * pairs));
        A* cosine = buffer.data();
        A* sine = cosine + pairs;
        std::int64_t turned = -1;  // position of the sines and cosines
        for (std::int64_t row = begin; row < end; ++row) {
          for (std::int64_t sample = 0; sample < x.batch; ++sample) {
            const std::int64_t position = x.position(row, sample);
            const std::complex<double>* a = coarse.data() + (position / block - first_block) * pairs;
            const std::complex<double>* b = fine.data() + (position % block - first_rest) * pairs;
            for (std::int64_t i = 0; position != turned && i < pairs; ++i) {
              cosine[i] = static_cast<A>(magnitude * (a[i].real() * b[i].real() - a[i].imag() * b[i].imag()));
              sine[i] = static_cast<A>(sign * (a[i].imag() * b[i].real() + a[i].real() * b[i].imag()));
            }
            turned = position;
            for (std::int64_t head = 0; head < x.heads; ++head) {
              T* first =
                  data + row * x.data.position_stride + sample * x.data.sample_stride + head * x.data.head_stride;
              T* second = first + pairs;
              A* to_first = row_out(first, sine + pairs);
              A* to_second = row_out(second, sine + 2 * pairs);
              rotate_head(cosine, sine, pairs, row_in(first, pairs, to_first), row_in(second, pairs, to_second),
                          to_first, to_second);
              finish_row(to_first, pairs, first);
              finish_row(to_second, pairs, second);
            }
          }
        }
      });
    });
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<RotaryKernels> make_rotary(ThreadPool& pool) { return std::make_unique<CpuRotary>(pool); }

}  // namespace trireme::cpu

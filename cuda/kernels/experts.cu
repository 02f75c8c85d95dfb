#include "src/backend/kernels/experts.hpp"

#include <bit>

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/expert_checks.hpp"

namespace trireme::cuda {
namespace {

// limit_load and sort have one block per expert, which reads all of `experts`, mostly from the L2 cache. The order of
// rows thus needs no atomics. The other kernels stream through rows. Memory traffic: cuda/README.md.

/// Entries that a block scans together, and their number per lane.
constexpr int search_window = 4096, search_rounds = search_window / block_threads;

struct WarpCounts {
  int of[warps];
};

/// Calls found(i, rank) for each i in [0, n) with values[i] == wanted: `rank` such i are lower. Returns their number.
/// All threads call it.
template <class V, class Found>
__device__ std::int64_t find_equal(const V* values, std::int64_t n, V wanted, const Found& found) {
  auto& of_warp = gpu::shared<WarpCounts>().of;
  const int warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
  std::int64_t before = 0;
  for (std::int64_t base = 0; base < n; base += search_window) {
    const std::int64_t begin = base + warp * search_rounds * warp_threads + lane;
    V value[search_rounds];
#pragma unroll
    for (int round = 0; round < search_rounds; ++round) {
      const std::int64_t i = begin + round * warp_threads;
      value[round] = i < n ? values[i] : V{};
    }
    unsigned equal[search_rounds];
    int count = 0;
#pragma unroll
    for (int round = 0; round < search_rounds; ++round) {
      equal[round] = __ballot_sync(all_lanes, begin + round * warp_threads < n && value[round] == wanted);
      count += __popc(equal[round]);
    }
    if (lane == 0) of_warp[warp] = count;
    __syncthreads();
    std::int64_t rank = before;
    for (int other = 0; other < warps; ++other) {
      if (other < warp) rank += of_warp[other];
      before += of_warp[other];
    }
#pragma unroll
    for (int round = 0; round < search_rounds; ++round) {
      if ((equal[round] >> lane & 1U) != 0) {
        found(begin + round * warp_threads, rank + __popc(equal[round] & ((1U << lane) - 1)));
      }
      rank += __popc(equal[round]);
    }
    __syncthreads();
  }
  return before;
}

/// Number of i in [0, n) for which counts(i) holds, for all threads; all threads call it.
template <class Counts>
__device__ int count_in_block(std::int64_t n, const Counts& counts) {
  int count = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < n; i += block_threads) count += counts(i) ? 1 : 0;
  return block_combine<Plus<int>>(count);
}

/// Has the order of the numbers.
__device__ std::uint32_t ordered_bits(float value) {
  constexpr std::uint32_t sign = std::uint32_t{1} << 31;
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0F);  // +0 for both zeros
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

/// One block per expert. `keys` and `slots`, of n elements as `experts`, hold the entries of one expert after another.
template <class A>
__global__ void __launch_bounds__(block_threads)
    limit_load_kernel(std::int64_t n, const std::int32_t* experts, const A* weights, std::int64_t capacity,
                      bool by_position, std::uint32_t* keys, std::int32_t* slots, std::int32_t* kept) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t begin = count_in_block(n, [&](std::int64_t i) { return experts[i] < expert; });
  keys += begin;
  slots += begin;
  const std::int64_t count = find_equal(experts, n, expert, [&](std::int64_t slot, std::int64_t rank) {
    keys[rank] = by_position ? 0 : ordered_bits(compared_weight(weights[slot]));
    slots[rank] = static_cast<std::int32_t>(slot);
  });
  // The largest number that `capacity` keys are not below, by its bits from the highest. Below the capacity it is 0.
  std::uint32_t least = 0;
  for (int bit = by_position ? -1 : 31; bit >= 0; --bit) {
    const std::uint32_t raised = least | std::uint32_t{1} << bit;
    if (count_in_block(count, [&](std::int64_t i) { return keys[i] >= raised; }) >= capacity) least = raised;
  }
  const std::int64_t above = count_in_block(count, [&](std::int64_t i) { return keys[i] > least; });
  for (std::int64_t i = threadIdx.x; i < count; i += block_threads) kept[slots[i]] = keys[i] > least ? expert : -1;
  __syncthreads();
  find_equal(keys, count, least, [&](std::int64_t i, std::int64_t rank) {
    if (rank < capacity - above) kept[slots[i]] = expert;
  });
}

/// One block per expert from `first` on.
__global__ void __launch_bounds__(block_threads)
    count_rows_kernel(std::int64_t n, const std::int32_t* experts, std::int32_t first, std::int32_t* rows_of_expert) {
  const std::int32_t expert = first + static_cast<std::int32_t>(blockIdx.x);
  const int count = count_in_block(n, [&](std::int64_t i) { return experts[i] == expert; });
  if (threadIdx.x == 0) rows_of_expert[blockIdx.x] = count;
}

/// One block per expert; the others write -1, one thread per entry. `room` 0: none, and as many rows as n.
__global__ void __launch_bounds__(block_threads)
    place_rows_kernel(std::int64_t n, std::int64_t per_token, const std::int32_t* experts, std::int32_t first,
                      std::int32_t count, std::int32_t room, const std::int32_t* rows_of_expert, std::int32_t* row_of,
                      std::int32_t* slot_of, std::int32_t* token_of) {
  const auto local = static_cast<std::int32_t>(blockIdx.x);
  int before = 0;
  if (room > 0) {
    before = std::min(local, count) * room;
  } else {
    for (std::int32_t other = threadIdx.x; other < std::min(local, count); other += block_threads) {
      before += rows_of_expert[other];
    }
    before = block_combine<Plus<int>>(before);
  }
  if (local < count) {
    find_equal(experts, n, first + local, [&](std::int64_t slot, std::int64_t rank) {
      const std::int64_t row = before + rank;
      row_of[slot] = static_cast<std::int32_t>(row);
      slot_of[row] = static_cast<std::int32_t>(slot);
      token_of[row] = static_cast<std::int32_t>(slot / per_token);
    });
    return;
  }
  const std::int64_t i = std::int64_t{local - count} * block_threads + threadIdx.x;
  if (i < n && (experts[i] < first || experts[i] >= first + count)) row_of[i] = -1;
  const bool is_row = i < (room > 0 ? before : n);
  if (is_row && (room > 0 ? i % room >= rows_of_expert[i / room] : i >= before)) slot_of[i] = token_of[i] = -1;
}

/// One block per expert, and a last one for the sums. counts and sums may be null.
template <class A>
__global__ void __launch_bounds__(block_threads)
    add_load_kernel(std::int64_t n, std::int32_t experts, const std::int32_t* chosen, const std::int32_t* kept,
                    std::int64_t size, const A* counts, const A* sums, A balance_factor, const A* token_sums,
                    A token_factor, A* load) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  if (expert < experts) {
    const int all = count_in_block(n, [&](std::int64_t i) { return chosen[i] == expert; });
    const int own = count_in_block(n, [&](std::int64_t i) { return kept[i] == expert; });
    if (threadIdx.x != 0) return;
    load[expert] += static_cast<A>(all);
    load[experts + expert] += static_cast<A>(own);
    return;
  }
  A product = 0;
  if (counts != nullptr) {
    for (std::int64_t i = threadIdx.x; i < size; i += block_threads) product += counts[i] * sums[i];
    product = block_combine<Plus<A>>(product);
  }
  if (threadIdx.x != 0) return;
  load[2 * experts] += balance_factor * product;
  for (int i = 0; i < 2; ++i) load[2 * experts + 1 + i] += token_factor * token_sums[i];
}

/// One thread per eight columns of a token.
template <class T>
__global__ void __launch_bounds__(block_threads)
    jitter_kernel(std::int64_t rows, std::int64_t batch, std::int64_t h, RouterJitter noise, const T* x, T* y) {
  using A = Accumulation<T>;
  const std::int64_t row = global_thread() / vec8s_of(h), vec8 = global_thread() % vec8s_of(h);
  if (row >= rows) return;
  const Vec8 columns = vec8_at(vec8, h);
  A value[8];
  load(x + row * h + columns.begin, columns.size, value);
  const Dropout& random = noise.random;
  const auto words = dropout_words(random.key, random.samples[row % batch], random.positions[row / batch], vec8);
  for (int c = 0; c < 8; ++c) value[c] *= noise.factor<A>(Dropout::bits_of_column(words, c));
  store(value, columns.size, y + row * h + columns.begin);
}

/// One thread per eight columns of a token. Several rows are in flight.
template <class T>
__global__ void __launch_bounds__(block_threads)
    sum_rows_kernel(std::int64_t n, int per_token, std::int64_t h, const T* y, const std::int32_t* row_of, T* x) {
  using A = Accumulation<T>;
  constexpr int at_once = 4;
  const std::int64_t token = global_thread() / vec8s_of(h);
  if (token >= n) return;
  const Vec8 columns = vec8_at(global_thread() % vec8s_of(h), h);
  A total[8]{};
  for (int first = 0; first < per_token; first += at_once) {
    std::int32_t row[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) row[i] = first + i < per_token ? row_of[token * per_token + first + i] : -1;
    PackedVec8<T> term[at_once];  // 0 for absent rows
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (row[i] >= 0) term[i].load(y + row[i] * h + columns.begin, columns.size);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      A value[8];
      term[i].unpack(value);
      for (int c = 0; c < 8; ++c) total[c] += value[c];
    }
  }
  store(total, columns.size, x + token * h + columns.begin);
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    scale_rows_kernel(std::int64_t rows, std::int64_t f, const T* x, const Accumulation<T>* weights,
                      const std::int32_t* slot_of, T* y) {
  const std::int64_t row = global_thread() / vec8s_of(f);
  if (row >= rows) return;
  const Vec8 columns = vec8_at(global_thread() % vec8s_of(f), f);
  const PackedVec8<T> packed = load_vec8(x, f, row, columns.begin / 8);
  const std::int32_t slot = slot_of[row];
  const Accumulation<T> weight = slot < 0 ? Accumulation<T>{0} : weights[slot];
  Accumulation<T> value[8];
  packed.unpack(value);
  for (int c = 0; c < 8; ++c) value[c] *= weight;
  store(value, columns.size, y + row * f + columns.begin);
}

/// One warp per row. dx may be dy.
template <class T>
__global__ void __launch_bounds__(block_threads)
    scale_rows_backward_kernel(std::int64_t rows, std::int64_t f, const T* dy, const T* x,
                               const Accumulation<T>* weights, const std::int32_t* slot_of, T* dx,
                               Accumulation<T>* dweights) {
  using A = Accumulation<T>;
  constexpr int at_once = 2;
  const std::int64_t row = own_row();
  if (row >= rows) return;
  const std::int32_t slot = slot_of[row];
  const A weight = slot < 0 ? A{0} : weights[slot];
  A dot = 0;
  for (std::int64_t first = own_lane(); first < vec8s_of(f); first += at_once * warp_threads) {
    PackedVec8<T> gradient[at_once], input[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      gradient[i] = load_vec8(dy, f, row, first + i * warp_threads);
      input[i] = load_vec8(x, f, row, first + i * warp_threads);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const Vec8 columns = vec8_at(first + i * warp_threads, f);
      A value[8], other[8];
      gradient[i].unpack(value);
      input[i].unpack(other);
      for (int c = 0; c < 8; ++c) {
        dot += value[c] * other[c];
        value[c] *= weight;
      }
      store(value, columns.size, dx + row * f + columns.begin);
    }
  }
  dot = warp_sum(dot);
  if (own_lane() == 0 && slot >= 0) dweights[slot] = dot;
}

class CudaExperts final : public ExpertKernels {
 public:
  explicit CudaExperts(Scratch scratch) : scratch_(std::move(scratch)) {}

  void route(Stream& stream, const RouterProblem& problem, ConstTensorView logits, ConstTensorView bias,
             TensorView experts, TensorView weights, TensorView counts, TensorView sums,
             TensorView token_sums) override {
    cuda::route(stream, scratch_, problem, logits, bias, experts, weights, counts, sums, token_sums);
  }
  void route_backward(Stream& stream, const RouterProblem& problem, ConstTensorView logits, ConstTensorView experts,
                      ConstTensorView dweights, const BalanceGradient& balance, TensorView dlogits) override {
    cuda::route_backward(stream, problem, logits, experts, dweights, balance, dlogits);
  }

  void jitter(Stream& stream, const RouterJitter& noise, ConstTensorView x, TensorView y) override {
    check_jitter(noise, x, y);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t batch = x.shape()[1], h = x.shape()[2], rows = x.shape()[0] * batch;
      gpu::launch(stream, {"jitter", blocks_for(rows * vec8s_of(h)), block_threads}, jitter_kernel<T>, rows, batch, h,
                  noise, x.as<T>(), y.as<T>());
    });
  }

  void limit_load(Stream& stream, ConstTensorView experts, ConstTensorView weights, std::int64_t count,
                  std::int64_t capacity, bool by_position, TensorView kept) override {
    check_limit_load(experts, weights, count, capacity, kept);
    dispatch_gpu(accumulation_type(weights.dtype()), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t n = experts.numel();
      const Buffer keys = scratch_(stream, static_cast<std::size_t>(n) * sizeof(std::uint32_t));
      const Buffer slots = scratch_(stream, static_cast<std::size_t>(n) * sizeof(std::int32_t));
      gpu::launch(stream, {"limit_load", count, block_threads}, limit_load_kernel<A>, n, experts.as<std::int32_t>(),
                  weights.as<A>(), capacity, by_position, reinterpret_cast<std::uint32_t*>(keys.data()),
                  reinterpret_cast<std::int32_t*>(slots.data()), kept.as<std::int32_t>());
    });
  }

  void sort(Stream& stream, ConstTensorView experts, std::int64_t first, std::int64_t room, TensorView rows_of_expert,
            TensorView row_of, TensorView slot_of, TensorView token_of) override {
    check_sort(experts, first, room, rows_of_expert, row_of, slot_of, token_of);
    const std::int64_t n = experts.numel(), count = rows_of_expert.numel();
    gpu::launch(stream, {"count_rows", count, block_threads}, count_rows_kernel, n, experts.as<std::int32_t>(),
                static_cast<std::int32_t>(first), rows_of_expert.as<std::int32_t>());
    gpu::launch(stream, {"place_rows", count + blocks_for(std::max(n, slot_of.numel())), block_threads},
                place_rows_kernel, n, experts.shape().back(), experts.as<std::int32_t>(),
                static_cast<std::int32_t>(first), static_cast<std::int32_t>(count), static_cast<std::int32_t>(room),
                rows_of_expert.as<std::int32_t>(), row_of.as<std::int32_t>(), slot_of.as<std::int32_t>(),
                token_of.as<std::int32_t>());
  }

  void add_load(Stream& stream, std::int64_t count, ConstTensorView chosen, ConstTensorView kept,
                ConstTensorView counts, ConstTensorView sums, double balance_factor, ConstTensorView token_sums,
                double token_factor, TensorView load) override {
    check_add_load(count, chosen, kept, counts, sums, token_sums, load);
    dispatch_gpu(load.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      gpu::launch(stream, {"add_load", count + 1, block_threads}, add_load_kernel<A>, chosen.numel(),
                  static_cast<std::int32_t>(count), chosen.as<std::int32_t>(), kept.as<std::int32_t>(),
                  counts ? counts.numel() : 0, counts ? counts.as<A>() : nullptr, counts ? sums.as<A>() : nullptr,
                  static_cast<A>(balance_factor), token_sums.as<A>(), static_cast<A>(token_factor), load.as<A>());
    });
  }

  void sum_rows(Stream& stream, ConstTensorView y, ConstTensorView row_of, TensorView x) override {
    check_sum_rows(y, row_of, x);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t n = rows_of(x.shape()), h = x.shape().back();
      gpu::launch(stream, {"sum_rows", blocks_for(n * vec8s_of(h)), block_threads}, sum_rows_kernel<T>, n,
                  static_cast<int>(row_of.shape().back()), h, y.as<T>(), row_of.as<std::int32_t>(), x.as<T>());
    });
  }

  void scale_rows(Stream& stream, ConstTensorView x, ConstTensorView weights, ConstTensorView slot_of,
                  TensorView y) override {
    check_scale_rows(x, weights, slot_of, y);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t rows = rows_of(x.shape()), f = x.shape().back();
      gpu::launch(stream, {"scale_rows", blocks_for(rows * vec8s_of(f)), block_threads}, scale_rows_kernel<T>, rows, f,
                  x.as<T>(), weights.as<Accumulation<T>>(), slot_of.as<std::int32_t>(), y.as<T>());
    });
  }
  void scale_rows_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weights,
                           ConstTensorView slot_of, TensorView dx, TensorView dweights) override {
    check_scale_rows_backward(dy, x, weights, slot_of, dx, dweights);
    dispatch_gpu(x.dtype(), [&]<class T>() {
      const std::int64_t rows = rows_of(x.shape()), f = x.shape().back();
      gpu::launch(stream, {"scale_rows_backward", row_blocks(rows), block_threads}, scale_rows_backward_kernel<T>, rows,
                  f, dy.as<T>(), x.as<T>(), weights.as<Accumulation<T>>(), slot_of.as<std::int32_t>(), dx.as<T>(),
                  dweights.as<Accumulation<T>>());
    });
  }

 private:
  Scratch scratch_;
};

}  // namespace

std::size_t limit_load_scratch_bytes(std::int64_t choices) {
  return static_cast<std::size_t>(choices) * (sizeof(std::uint32_t) + sizeof(std::int32_t));
}

std::unique_ptr<ExpertKernels> make_experts(Scratch scratch) {
  return std::make_unique<CudaExperts>(std::move(scratch));
}

}  // namespace trireme::cuda

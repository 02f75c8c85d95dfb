#include <limits>

#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/families.hpp"
#include "cuda/kernels/sums.cuh"
#include "src/backend/kernels/expert_checks.hpp"

namespace trireme::cuda {
namespace {

// One warp per token, whose logits are in registers. The sums over tokens read the logits again: in the order of
// tokens, without atomics.

/// A lane has experts lane, lane + 32, ... of a token.
constexpr int max_experts = static_cast<int>(max_routed_experts), per_lane = max_experts / warp_threads;

/// Calls function(i, e) for each element i of the lane, expert e of `experts`.
template <class Function>
__device__ void for_experts(int experts, const Function& function) {
  const int lane = static_cast<int>(own_lane());
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    if (i * warp_threads + lane < experts) function(i, i * warp_threads + lane);
  }
}
/// Bit i is set if element i of the lane is an expert of [begin, end).
__device__ inline unsigned lane_bits(int begin, int end) {
  unsigned bits = 0;
  for_experts(end, [&](int i, int e) { bits |= (e >= begin ? 1U : 0U) << i; });
  return bits;
}

/// A number's place in descending order: NaN comes first, so that it is not hidden; of equal numbers the lower index.
template <class A>
struct Ranked {
  A value;
  int index;
  __device__ bool precedes(const Ranked& other) const {
    const A own = key(value), its = key(other.value);
    return own > its || (own == its && index < other.index);
  }
  __device__ static A key(A value) { return value == value ? value : std::numeric_limits<A>::infinity(); }
};

/// Calls visit(j, number) in all lanes for the `count` first of the eligible numbers, in order. Returns the last.
template <class A, class Visit>
__device__ Ranked<A> choose(const A (&value)[per_lane], unsigned eligible, int count, const Visit& visit) {
  const int lane = static_cast<int>(own_lane());
  Ranked<A> best{};
  for (int j = 0; j < count; ++j) {
    best = {-std::numeric_limits<A>::infinity(), max_experts};
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      const Ranked<A> own{value[i], i * warp_threads + lane};
      if ((eligible >> i & 1U) != 0 && own.precedes(best)) best = own;
    }
    for (unsigned mask = warp_threads / 2; mask > 0; mask /= 2) {
      const Ranked<A> other{__shfl_xor_sync(all_lanes, best.value, mask), __shfl_xor_sync(all_lanes, best.index, mask)};
      if (other.precedes(best)) best = other;
    }
    if (best.index % warp_threads == lane) eligible &= ~(1U << best.index / warp_threads);
    visit(j, best);
  }
  return best;
}

/// Numbers whose ratios are the scores: e^(logit - shift), or with `sigmoid` the scores themselves.
template <class A>
struct Score {
  bool sigmoid;
  A shift;
  __device__ A operator()(A logit) const { return sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit - shift); }
};
/// Added to sums of sigmoids that are divisors.
template <class A>
constexpr A tiny = static_cast<A>(1e-20);

/// A token's logits, and the softmax over all of them.
template <class T>
struct TokenLogits {
  using A = Accumulation<T>;
  A of[per_lane]{};
  A maximum = -std::numeric_limits<A>::infinity(), sum_exp;

  __device__ TokenLogits(const T* row, int experts) {
    for_experts(experts, [&](int i, int e) {
      of[i] = gpu::widen(row[e]);
      maximum = Maximum<A>{}(maximum, of[i]);
    });
    maximum = warp_combine<Maximum<A>>(maximum);
    sum_exp = sum(Score<A>{false, maximum}, experts);
  }
  __device__ A sum(const Score<A>& score, int experts) const {
    A total = 0;
    for_experts(experts, [&](int i, int) { total += score(of[i]); });
    return warp_sum(total);
  }
  __device__ A log_sum_exp() const { return maximum + std::log(sum_exp); }
  /// -sum of p log p, p the scores over all experts, divided by `divisor`. NaN stays NaN.
  __device__ A entropy(const Score<A>& score, A divisor, int experts) const {
    A total = 0;
    for_experts(experts, [&](int i, int) {
      const A p = score(of[i]) / divisor;
      total -= p == 0 ? A{0} : p * std::log(p);
    });
    return warp_sum(total);
  }
  /// Divisor of the scores over all experts.
  __device__ A divisor(const Score<A>& score, int experts) const {
    return score.sigmoid ? sum(score, experts) + tiny<A> : sum_exp;
  }
};

/// Results of route that the sums over tokens need.
template <class A>
struct alignas(16) TokenChoice {
  A maximum, divisor;  ///< p[e] = Score{., maximum}(logit) / divisor
  Ranked<A> last;      ///< lowest of the per_token largest scores
};

/// The experts of the best groups, as lane_bits. A group adds up summand(key) of its best experts.
template <class A, class Summand>
__device__ unsigned in_best_groups(const A (&key)[per_lane], int experts, const RouterProblem& problem,
                                   const Summand& summand) {
  const int groups = static_cast<int>(problem.groups), chosen = static_cast<int>(problem.groups_per_token);
  const int size = experts / groups, summed = static_cast<int>(problem.per_token) / chosen;
  A of_group[per_lane]{};
  for (int group = 0; group < groups; ++group) {
    A sum = 0;
    choose(key, lane_bits(group * size, (group + 1) * size), summed,
           [&](int, const Ranked<A>& best) { sum += summand(best.value); });
    for_experts(groups, [&](int i, int other) { of_group[i] = other == group ? sum : of_group[i]; });
  }
  unsigned bits = 0;
  choose(of_group, lane_bits(0, groups), chosen,
         [&](int, const Ranked<A>& best) { bits |= lane_bits(best.index * size, (best.index + 1) * size); });
  return bits;
}

/// `bias`, `choices` and `terms` [2, n], those of the sums over tokens, may be null.
template <class T>
__global__ void __launch_bounds__(block_threads)
    route_kernel(std::int64_t n, int experts, RouterProblem problem, const T* logits, const Accumulation<T>* bias,
                 std::int32_t* chosen, Accumulation<T>* weights, TokenChoice<Accumulation<T>>* choices,
                 Accumulation<T>* terms) {
  using A = Accumulation<T>;
  const std::int64_t token = own_row();
  if (token >= n) return;
  const int k = static_cast<int>(problem.per_token), lane = static_cast<int>(own_lane());
  const bool sigmoid = problem.score == RouterScore::sigmoid, of_chosen = !sigmoid && problem.softmax_of_chosen;
  const T* row = logits + token * experts;
  std::int32_t* own_chosen = chosen + token * k;
  TokenLogits<T> logit(row, experts);
  const Score<A> over_all{sigmoid, logit.maximum};

  unsigned eligible = lane_bits(0, experts);
  const bool by_logit = problem.groups == 1 && bias == nullptr;
  Ranked<A> last_of_all{};
  A of_all = 0;
  if (choices != nullptr && !by_logit) last_of_all = choose(logit.of, eligible, k, [](int, const Ranked<A>&) {});
  if (choices != nullptr || terms != nullptr) of_all = logit.divisor(over_all, experts);
  if (terms != nullptr) {
    const A log_sum = logit.log_sum_exp(), entropy = logit.entropy(over_all, of_all, experts);
    if (lane < 2) terms[lane * n + token] = lane == 0 ? log_sum * log_sum : entropy;
  }
  // From here on with a bias, these are the numbers by which experts are compared.
  if (bias != nullptr) for_experts(experts, [&](int i, int e) { logit.of[i] = over_all(logit.of[i]) + bias[e]; });
  if (problem.groups > 1) {
    eligible = in_best_groups(logit.of, experts, problem,
                              [&](A key) { return of_chosen || bias != nullptr ? key : over_all(key); });
  }
  Score<A> score = over_all;
  A sum = 0;
  const Ranked<A> last = choose(logit.of, eligible, k, [&](int j, const Ranked<A>& best) {
    if (of_chosen && j == 0) score.shift = best.value;
    sum += score(bias == nullptr ? best.value : gpu::widen(row[best.index]));
    if (lane == 0) own_chosen[j] = best.index;
  });
  const A divisor = of_chosen ? sum : !sigmoid ? logit.sum_exp : k > 1 ? sum + tiny<A> : A{1};
  __syncwarp();
  for (int j = lane; j < k; j += warp_threads) {
    weights[token * k + j] = static_cast<A>(problem.scaling) * (score(gpu::widen(row[own_chosen[j]])) / divisor);
  }

  if (choices != nullptr && lane == 0) choices[token] = {logit.maximum, of_all, by_logit ? last : last_of_all};
}

template <class A>
struct WarpTileSums {
  A of[warps][16];
};
/// A block sums eight experts over the tokens of a segment: a thread has every 256th of them, in order. Two last
/// blocks sum a half of `terms` each. counts and sums, or terms, may be null.
template <class T>
__global__ void __launch_bounds__(block_threads)
    balance_sums_kernel(std::int64_t n, int experts, std::int64_t segments, bool sigmoid, const T* logits,
                        const TokenChoice<Accumulation<T>>* choices, const Accumulation<T>* terms,
                        Accumulation<T>* counts, Accumulation<T>* sums, Accumulation<T>* token_sums) {
  using A = Accumulation<T>;
  const std::int64_t tiles = vec8s_of(experts), segment = blockIdx.x / tiles;
  const std::int64_t half = blockIdx.x - (counts == nullptr ? 0 : segments * tiles);
  if (half >= 0) {
    A total = 0;
    for (std::int64_t token = threadIdx.x; token < n; token += block_threads) total += terms[half * n + token];
    total = block_combine<Plus<A>>(total);
    if (threadIdx.x == 0) token_sums[half] = total;
    return;
  }
  const Vec8 columns = vec8_at(blockIdx.x % tiles, experts);
  A total[16]{};  // counts, then sums
#pragma unroll 2
  for (std::int64_t token = segment + threadIdx.x * segments; token < n; token += block_threads * segments) {
    const TokenChoice<A> choice = choices[token];
    const PackedVec8<T> packed(logits + token * experts + columns.begin, columns.size);
    A logit[8];
    packed.unpack(logit);
    for (int c = 0; c < 8; ++c) {
      const Ranked<A> own{logit[c], static_cast<int>(columns.begin) + c};
      total[c] += choice.last.precedes(own) ? A{0} : A{1};
      total[8 + c] += Score<A>{sigmoid, choice.maximum}(logit[c]) / choice.divisor;
    }
  }
  auto& warp_sums = gpu::shared<WarpTileSums<A>>();
  for (int c = 0; c < 16; ++c) {
    total[c] = warp_sum(total[c]);
    if (own_lane() == 0) warp_sums.of[threadIdx.x / warp_threads][c] = total[c];
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x % 8);
  if (threadIdx.x >= 16 || column >= columns.size) return;
  A all = 0;
  for (int warp = 0; warp < warps; ++warp) all += warp_sums.of[warp][threadIdx.x];
  (threadIdx.x < 8 ? counts : sums)[segment * experts + columns.begin + column] = all;
}

template <class A>
struct TokenGradients {
  A of[warps][max_experts];
};
/// `counts` may be null.
template <class T>
__global__ void __launch_bounds__(block_threads)
    route_backward_kernel(std::int64_t n, int experts, RouterProblem problem, const T* logits,
                          const std::int32_t* chosen, const Accumulation<T>* dweights, const Accumulation<T>* counts,
                          Accumulation<T> factor, Accumulation<T> z_factor, T* dlogits) {
  using A = Accumulation<T>;
  // Gradient of the weights: of the scores with a softmax over all experts, otherwise of the logits.
  A* own = gpu::shared<TokenGradients<A>>().of[threadIdx.x / warp_threads];
  const std::int64_t token = own_row();
  if (token >= n) return;
  const int k = static_cast<int>(problem.per_token), lane = static_cast<int>(own_lane());
  const bool sigmoid = problem.score == RouterScore::sigmoid, of_chosen = !sigmoid && problem.softmax_of_chosen;
  const bool of_all = !sigmoid && !of_chosen;
  const T* row = logits + token * experts;
  const std::int32_t* own_chosen = chosen + token * k;
  const TokenLogits<T> logit(row, experts);
  for_experts(experts, [&](int, int e) { own[e] = 0; });
  __syncwarp();

  const Score<A> score{sigmoid, of_chosen ? gpu::widen(row[own_chosen[0]]) : logit.maximum};
  A sum = 0, dot = 0;
  for (int j = lane; j < k; j += warp_threads) {
    const A s = score(gpu::widen(row[own_chosen[j]]));
    sum += s;
    dot += s * dweights[token * k + j];
  }
  sum = warp_sum(sum) + (sigmoid ? tiny<A> : A{0});
  dot = warp_sum(dot);
  // Weights that are not divided by their sum have no common part.
  const bool divided = of_chosen || (sigmoid && k > 1);
  const A divisor = divided ? sum : A{1}, common = divided ? dot / sum : A{0};
  for (int j = lane; j < k; j += warp_threads) {
    const A s = score(gpu::widen(row[own_chosen[j]]));
    const A slope = of_all ? A{1} : sigmoid ? s * (1 - s) : s;
    own[own_chosen[j]] = static_cast<A>(problem.scaling) * slope / divisor * (dweights[token * k + j] - common);
  }
  __syncwarp();

  const Score<A> over_all{sigmoid, logit.maximum};
  const A divisor_of_all = logit.divisor(over_all, experts);
  const A* of_segment = counts == nullptr ? nullptr : counts + token % problem.segments * experts;
  // Gradient of the scores over all experts.
  A gradient[per_lane]{}, mean = 0;
  for_experts(experts, [&](int i, int e) {
    gradient[i] = (of_all ? own[e] : A{0}) + (of_segment == nullptr ? A{0} : factor * of_segment[e]);
    mean += over_all(logit.of[i]) / divisor_of_all * gradient[i];
  });
  mean = warp_sum(mean);
  const A z = 2 * z_factor * logit.log_sum_exp() / logit.sum_exp;
  for_experts(experts, [&](int i, int e) {
    const A s = over_all(logit.of[i]), slope = s / divisor_of_all * (sigmoid ? 1 - s : A{1});
    const A total =
        (of_all ? A{0} : own[e]) + slope * (gradient[i] - mean) + z * Score<A>{false, logit.maximum}(logit.of[i]);
    dlogits[token * experts + e] = gpu::narrow<T>(total);
  });
}

}  // namespace

std::size_t route_scratch_bytes(std::int64_t tokens) {
  return static_cast<std::size_t>(tokens) * (sizeof(TokenChoice<float>) + 2 * sizeof(float));
}

void route(Stream& stream, const Scratch& new_scratch, const RouterProblem& problem, ConstTensorView logits,
           ConstTensorView bias, TensorView experts, TensorView weights, TensorView counts, TensorView sums,
           TensorView token_sums) {
  check_route(problem, logits, bias, experts, weights, counts, sums, token_sums);
  dispatch_gpu(logits.dtype(), [&]<class T>() {
    using A = Accumulation<T>;
    const std::int64_t n = rows_of(logits.shape()), of_layer = logits.shape().back();
    const auto count = static_cast<std::size_t>(n);
    const Buffer choices = counts ? new_scratch(stream, count * sizeof(TokenChoice<A>)) : Buffer();
    const Buffer terms = token_sums ? new_scratch(stream, 2 * count * sizeof(A)) : Buffer();
    auto* choice = reinterpret_cast<TokenChoice<A>*>(choices.data());
    auto* term = reinterpret_cast<A*>(terms.data());
    gpu::launch(stream, {"route", row_blocks(n), block_threads}, route_kernel<T>, n, static_cast<int>(of_layer),
                problem, logits.as<T>(), bias ? bias.as<A>() : nullptr, experts.as<std::int32_t>(), weights.as<A>(),
                choice, term);
    const std::int64_t blocks = (counts ? problem.segments * vec8s_of(of_layer) : 0) + (token_sums ? 2 : 0);
    gpu::launch(stream, {"balance_sums", blocks, block_threads}, balance_sums_kernel<T>, n, static_cast<int>(of_layer),
                problem.segments, problem.score == RouterScore::sigmoid, logits.as<T>(), choice, term,
                counts ? counts.as<A>() : nullptr, counts ? sums.as<A>() : nullptr,
                token_sums ? token_sums.as<A>() : nullptr);
  });
}

void route_backward(Stream& stream, const RouterProblem& problem, ConstTensorView logits, ConstTensorView experts,
                    ConstTensorView dweights, const BalanceGradient& balance, TensorView dlogits) {
  check_route_backward(problem, logits, experts, dweights, balance, dlogits);
  dispatch_gpu(logits.dtype(), [&]<class T>() {
    using A = Accumulation<T>;
    const std::int64_t n = rows_of(logits.shape());
    gpu::launch(stream, {"route_backward", row_blocks(n), block_threads}, route_backward_kernel<T>, n,
                static_cast<int>(logits.shape().back()), problem, logits.as<T>(), experts.as<std::int32_t>(),
                dweights.as<A>(), balance.counts ? balance.counts.as<A>() : nullptr, static_cast<A>(balance.factor),
                static_cast<A>(balance.z_factor), dlogits.as<T>());
  });
}

}  // namespace trireme::cuda

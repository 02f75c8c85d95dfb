#include "src/backend/kernels/experts.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/routed_token.hpp"
#include "src/backend/kernels/expert_checks.hpp"

namespace trireme::cpu {
namespace {

/// Positions in [n, k] at which each of the experts [first, first + count) was chosen, by expert, then by position.
struct ChoicesByExpert {
  ChoicesByExpert(ConstTensorView experts, std::int64_t first, std::int64_t count) : begin(count + 1) {
    const std::int32_t* expert = experts.as<std::int32_t>();
    const auto is_here = [&](std::int64_t i) { return expert[i] >= first && expert[i] < first + count; };
    for (std::int64_t i = 0; i < experts.numel(); ++i) {
      if (is_here(i)) ++begin[expert[i] - first + 1];
    }
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    positions.resize(begin.back());
    std::vector<std::int32_t> next(begin.begin(), begin.end() - 1);
    for (std::int64_t i = 0; i < experts.numel(); ++i) {
      if (is_here(i)) positions[next[expert[i] - first]++] = static_cast<std::int32_t>(i);
    }
  }

  std::int32_t count_of(std::int64_t e) const { return begin[e + 1] - begin[e]; }

  std::vector<std::int32_t> begin;  ///< [count + 1]: first position of each expert
  std::vector<std::int32_t> positions;
};

template <class A>
A dot(const A* x, const A* y, std::int64_t n) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

/// y = factor x; may be the same memory.
template <class A>
void scale_row(const A* x, A factor, std::int64_t n, A* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

class CpuExperts final : public ExpertKernels {
 public:
  explicit CpuExperts(ThreadPool& pool) : pool_(pool) {}

  void route(Stream&, const RouterProblem& problem, ConstTensorView logits, ConstTensorView bias, TensorView experts,
             TensorView weights, TensorView counts, TensorView sums, TensorView token_sums) override {
    check_route(problem, logits, bias, experts, weights, counts, sums, token_sums);
    dispatch_float(logits.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t n = rows_of(logits.shape()), count = logits.shape().back(), k = problem.per_token;
      const std::int64_t size = counts ? problem.segments * count : 0;
      const T* rows = logits.as<T>();
      std::int32_t* chosen = experts.as<std::int32_t>();
      A* weight = weights.as<A>();
      const A* bias_of = bias ? bias.as<A>() : nullptr;
      const bool counts_chosen = problem.groups == 1 && !bias;
      // At most 64 ranges of tokens, whatever the number of threads. Each adds up its own statistics.
      const std::int64_t grain = std::max<std::int64_t>(16, (n + 63) / 64), ranges = (n + grain - 1) / grain;
      const std::int64_t stride = 2 * size + 2;  // counts, sums, the token's
      std::vector<A> statistics(ranges * stride);
      pool_.parallel_ranges(n, grain, [&](std::int64_t begin, std::int64_t end) {
        RoutedToken<T> token(problem, count);
        std::vector<std::int32_t> largest(k);
        A* own = statistics.data() + begin / grain * stride;
        for (std::int64_t t = begin; t < end; ++t) {
          token.read(rows + t * count);
          token.choose(bias_of, chosen + t * k);
          token.weigh(chosen + t * k, weight + t * k);
          for (std::int64_t j = 0; j < k; ++j) weight[t * k + j] *= static_cast<A>(problem.scaling);
          if (token_sums) {
            own[2 * size] += token.log_sum_exp() * token.log_sum_exp();
            own[2 * size + 1] += token.entropy();
          }
          if (size == 0) continue;
          const std::int64_t segment = t % problem.segments * count;
          if (!counts_chosen) token.choose_by_score(largest.data());
          const std::int32_t* counted = counts_chosen ? chosen + t * k : largest.data();
          for (std::int64_t j = 0; j < k; ++j) ++own[segment + counted[j]];
          for (std::int64_t e = 0; e < count; ++e) own[size + segment + e] += token.probability(e);
        }
      });
      const auto sum_ranges = [&](std::int64_t offset, std::int64_t elements, A* to) {
        std::fill_n(to, elements, A{0});
        for (std::int64_t r = 0; r < ranges; ++r) {
          for (std::int64_t i = 0; i < elements; ++i) to[i] += statistics[r * stride + offset + i];
        }
      };
      if (counts) {
        sum_ranges(0, size, counts.as<A>());
        sum_ranges(size, size, sums.as<A>());
      }
      if (token_sums) sum_ranges(2 * size, 2, token_sums.as<A>());
    });
  }

  void route_backward(Stream&, const RouterProblem& problem, ConstTensorView logits, ConstTensorView experts,
                      ConstTensorView dweights, const BalanceGradient& balance, TensorView dlogits) override {
    check_route_backward(problem, logits, experts, dweights, balance, dlogits);
    dispatch_float(logits.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t n = rows_of(logits.shape()), count = logits.shape().back(), k = problem.per_token;
      const bool sigmoid = problem.score == RouterScore::sigmoid;
      const A scaling = static_cast<A>(problem.scaling), factor = static_cast<A>(balance.factor);
      const A z_factor = static_cast<A>(balance.z_factor);
      const T* rows = logits.as<T>();
      const A* loads = balance.counts ? balance.counts.as<A>() : nullptr;
      T* gradients = dlogits.as<T>();
      pool_.parallel_ranges(n, 16, [&](std::int64_t begin, std::int64_t end) {
        RoutedToken<T> token(problem, count);
        std::vector<A> weights(k), buffer(count);
        for (std::int64_t t = begin; t < end; ++t) {
          token.read(rows + t * count);
          const std::int32_t* chosen = experts.as<std::int32_t>() + t * k;
          const A* dweight = dweights.as<A>() + t * k;
          token.weigh(chosen, weights.data());
          // The gradients of all but z depend on the scores. Those of sigmoids lack the factor 1 - score until the end.
          const A mean = sigmoid && k == 1 ? A{0} : dot(weights.data(), dweight, k);
          A* gradient = row_out(gradients + t * count, buffer.data());
          const bool over_all = !sigmoid && !token.softmax_of_chosen();
          for (std::int64_t e = 0; e < count; ++e) gradient[e] = over_all ? -scaling * token.score(e) * mean : A{0};
          for (std::int64_t j = 0; j < k; ++j) gradient[chosen[j]] = scaling * weights[j] * (dweight[j] - mean);
          if (loads != nullptr) {
            const A* load = loads + t % problem.segments * count;
            A mean_load = 0;
            for (std::int64_t e = 0; e < count; ++e) mean_load += load[e] * token.probability(e);
            for (std::int64_t e = 0; e < count; ++e) {
              gradient[e] += factor * token.probability(e) * (load[e] - mean_load);
            }
          }
          if (sigmoid) {
            for (std::int64_t e = 0; e < count; ++e) gradient[e] *= 1 - token.score(e);
          }
          if (z_factor != 0) {
            const A slope = 2 * z_factor * token.log_sum_exp();
            for (std::int64_t e = 0; e < count; ++e) {
              gradient[e] += slope * vector_exp(token.logit(e) - token.log_sum_exp());
            }
          }
          finish_row(gradient, count, gradients + t * count);
        }
      });
    });
  }

  void jitter(Stream&, const RouterJitter& noise, ConstTensorView x, TensorView y) override {
    check_jitter(noise, x, y);
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t batch = x.shape()[1], h = x.shape()[2];
      const Dropout& random = noise.random;
      pool_.parallel_ranges(x.shape()[0] * batch, 4, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(2 * h);
        for (std::int64_t i = begin; i < end; ++i) {
          const A* in = row_in(x.as<T>() + i * h, h, buffer.data());
          A* out = row_out(y.as<T>() + i * h, buffer.data() + h);
          const std::int64_t sample = random.samples[i % batch], position = random.positions[i / batch];
          std::array<std::uint32_t, 4> words{};
          for (std::int64_t c = 0; c < h; ++c) {
            if (c % 8 == 0) words = Dropout::words(random.key, sample, position, c / 8);
            out[c] = in[c] * noise.factor<A>(Dropout::bits_of_column(words, c));
          }
          finish_row(out, h, y.as<T>() + i * h);
        }
      });
    });
  }

  void limit_load(Stream&, ConstTensorView experts, ConstTensorView weights, std::int64_t count, std::int64_t capacity,
                  bool by_position, TensorView kept) override {
    check_limit_load(experts, weights, count, capacity, kept);
    dispatch_float(weights.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const A* weight = weights.as<A>();
      const std::int32_t* chosen = experts.as<std::int32_t>();
      std::int32_t* result = kept.as<std::int32_t>();
      std::copy_n(chosen, experts.numel(), result);
      ChoicesByExpert choices(experts, 0, count);
      pool_.parallel_for(count, [&](std::int64_t e) {
        const auto begin = choices.positions.begin() + choices.begin[e];
        const auto end = choices.positions.begin() + choices.begin[e + 1];
        if (end - begin <= capacity) return;
        if (!by_position) {
          std::nth_element(begin, begin + capacity, end, [&](std::int32_t i, std::int32_t j) {
            const float a = compared_weight(weight[i]), b = compared_weight(weight[j]);
            return a > b || (a == b && i < j);
          });
        }
        for (auto i = begin + capacity; i != end; ++i) result[*i] = -1;
      });
    });
  }

  void sort(Stream&, ConstTensorView experts, std::int64_t first, std::int64_t room, TensorView rows_of_expert,
            TensorView row_of, TensorView slot_of, TensorView token_of) override {
    check_sort(experts, first, room, rows_of_expert, row_of, slot_of, token_of);
    const std::int64_t k = experts.shape().back();
    const ChoicesByExpert choices(experts, first, rows_of_expert.numel());
    std::adjacent_difference(choices.begin.begin() + 1, choices.begin.end(), rows_of_expert.as<std::int32_t>());
    std::int32_t* row = row_of.as<std::int32_t>();
    std::int32_t* slot = slot_of.as<std::int32_t>();
    std::int32_t* token = token_of.as<std::int32_t>();
    std::fill_n(row, experts.numel(), -1);
    std::fill_n(slot, slot_of.numel(), -1);
    std::fill_n(token, token_of.numel(), -1);
    for (std::int64_t e = 0; e < rows_of_expert.numel(); ++e) {
      for (std::int64_t i = choices.begin[e]; i < choices.begin[e + 1]; ++i) {
        const std::int32_t position = choices.positions[i];
        const std::int64_t r = room > 0 ? e * room + i - choices.begin[e] : i;
        row[position] = static_cast<std::int32_t>(r);
        slot[r] = position;
        token[r] = static_cast<std::int32_t>(position / k);
      }
    }
  }

  void add_load(Stream&, std::int64_t count, ConstTensorView chosen, ConstTensorView kept, ConstTensorView counts,
                ConstTensorView sums, double balance_factor, ConstTensorView token_sums, double token_factor,
                TensorView load) override {
    check_add_load(count, chosen, kept, counts, sums, token_sums, load);
    dispatch_float(load.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      A* total = load.as<A>();
      for (const ConstTensorView& choices : {chosen, kept}) {
        const ChoicesByExpert by_expert(choices, 0, count);
        for (std::int64_t e = 0; e < count; ++e) *total++ += static_cast<A>(by_expert.count_of(e));
      }
      if (counts) *total += static_cast<A>(balance_factor) * dot(counts.as<A>(), sums.as<A>(), sums.numel());
      for (int i = 0; i < 2; ++i) total[1 + i] += static_cast<A>(token_factor) * token_sums.as<A>()[i];
    });
  }

  void sum_rows(Stream&, ConstTensorView y, ConstTensorView row_of, TensorView x) override {
    check_sum_rows(y, row_of, x);
    dispatch_float(y.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t k = row_of.shape().back(), h = x.shape().back();
      const std::int32_t* row = row_of.as<std::int32_t>();
      pool_.parallel_ranges(rows_of(x.shape()), 16, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(2 * h);
        for (std::int64_t t = begin; t < end; ++t) {
          A* sum = row_out(x.as<T>() + t * h, buffer.data());
          std::fill_n(sum, h, A{0});
          for (std::int64_t j = 0; j < k; ++j) {
            if (row[t * k + j] < 0) continue;
            const A* term = row_in(y.as<T>() + row[t * k + j] * h, h, buffer.data() + h);
#pragma omp simd
            for (std::int64_t c = 0; c < h; ++c) sum[c] += term[c];
          }
          finish_row(sum, h, x.as<T>() + t * h);
        }
      });
    });
  }

  void scale_rows(Stream&, ConstTensorView x, ConstTensorView weights, ConstTensorView slot_of, TensorView y) override {
    check_scale_rows(x, weights, slot_of, y);
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t f = x.shape().back();
      const std::int32_t* slot = slot_of.as<std::int32_t>();
      pool_.parallel_ranges(rows_of(x.shape()), 16, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(f);
        for (std::int64_t r = begin; r < end; ++r) {
          const A* from = row_in(x.as<T>() + r * f, f, buffer.data());
          A* to = row_out(y.as<T>() + r * f, buffer.data());
          scale_row(from, slot[r] < 0 ? A{0} : weights.as<A>()[slot[r]], f, to);
          finish_row(to, f, y.as<T>() + r * f);
        }
      });
    });
  }

  void scale_rows_backward(Stream&, ConstTensorView dy, ConstTensorView x, ConstTensorView weights,
                           ConstTensorView slot_of, TensorView dx, TensorView dweights) override {
    check_scale_rows_backward(dy, x, weights, slot_of, dx, dweights);
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t f = x.shape().back();
      const std::int32_t* slot = slot_of.as<std::int32_t>();
      pool_.parallel_ranges(rows_of(x.shape()), 16, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(2 * f);
        for (std::int64_t r = begin; r < end; ++r) {
          const A* gradient = row_in(dy.as<T>() + r * f, f, buffer.data());
          const A* input = row_in(x.as<T>() + r * f, f, buffer.data() + f);
          if (slot[r] >= 0) dweights.as<A>()[slot[r]] = dot(gradient, input, f);  // before dx, which may be dy
          A* to = row_out(dx.as<T>() + r * f, buffer.data());
          scale_row(gradient, slot[r] < 0 ? A{0} : weights.as<A>()[slot[r]], f, to);
          finish_row(to, f, dx.as<T>() + r * f);
        }
      });
    });
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<ExpertKernels> make_experts(ThreadPool& pool) { return std::make_unique<CpuExperts>(pool); }

}  // namespace trireme::cpu

#include "src/backend/kernels/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/dropout_mask.hpp"

namespace trireme::cpu {
namespace {

template <class T>
auto* at(const HeadsOf<BasicTensorView<T>>& heads, auto* data, std::int64_t position, std::int64_t sample,
         std::int64_t head) {
  return data + position * heads.position_stride + sample * heads.sample_stride + head * heads.head_stride;
}

class CpuAttention final : public AttentionKernels {
 public:
  explicit CpuAttention(ThreadPool& pool) : pool_(pool) {}

  void attention(Stream&, const AttentionProblem& problem, ConstHeads q, ConstHeads k, ConstHeads v, Heads out,
                 TensorView log_sum_exp) override {
    dispatch_float(q.data.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t d = problem.head_dim;
      A* lse = log_sum_exp.as<A>();
      pool_.parallel_for(problem.batch * problem.heads, [&](std::int64_t task) {
        const std::int64_t sample = task / problem.heads, head = task % problem.heads;
        const std::int64_t kv_head = head / (problem.heads / problem.kv_heads);
        std::vector<A> p(problem.keys), factor(problem.keys, A{1}), sum(d);
        for (std::int64_t i = 0; i < problem.queries; ++i) {
          const std::int64_t position = problem.keys - problem.queries + i;
          const std::int64_t visible = problem.causal ? std::max<std::int64_t>(0, position + 1) : problem.keys;
          const T* q_row = at(q, q.data.as<T>(), i, sample, head);
          A largest = -std::numeric_limits<A>::infinity();
          for (std::int64_t j = 0; j < visible; ++j) {
            const T* k_row = at(k, k.data.as<T>(), j, sample, kv_head);
            A s = 0;
            for (std::int64_t c = 0; c < d; ++c) s += static_cast<A>(q_row[c]) * static_cast<A>(k_row[c]);
            p[j] = s * static_cast<A>(problem.scale);
            largest = std::max(largest, p[j]);
          }
          A total = 0;
          for (std::int64_t j = 0; j < visible; ++j) total += p[j] = std::exp(p[j] - largest);
          if (problem.dropout.enabled()) {
            dropout_row(problem.dropout, problem.dropout.head_key(problem.first_head + head),
                        problem.dropout.samples[sample], position, visible, factor.data());
          }
          std::fill(sum.begin(), sum.end(), A{0});
          for (std::int64_t j = 0; j < visible; ++j) {
            const T* v_row = at(v, v.data.as<T>(), j, sample, kv_head);
            const A weight = p[j] / total * factor[j];
            for (std::int64_t c = 0; c < d; ++c) sum[c] += weight * static_cast<A>(v_row[c]);
          }
          T* out_row = at(out, out.data.as<T>(), i, sample, head);
          for (std::int64_t c = 0; c < d; ++c) out_row[c] = static_cast<T>(sum[c]);
          lse[task * problem.queries + i] = largest + std::log(total);
        }
      });
    });
  }

  void attention_backward(Stream&, const AttentionProblem& problem, ConstHeads dout, ConstHeads q, ConstHeads k,
                          ConstHeads v, ConstHeads out, ConstTensorView log_sum_exp, TensorView row_dot, Heads dq,
                          Heads dk, Heads dv) override {
    dispatch_float(q.data.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t d = problem.head_dim, group = problem.heads / problem.kv_heads;
      const A scale = static_cast<A>(problem.scale);
      const A* lse = log_sum_exp.as<A>();
      A* dot = row_dot.as<A>();
      pool_.parallel_for(problem.batch * problem.kv_heads, [&](std::int64_t task) {
        const std::int64_t sample = task / problem.kv_heads, kv_head = task % problem.kv_heads;
        std::vector<A> factor(problem.keys, A{1}), dk_sum(problem.keys * d), dv_sum(problem.keys * d), dq_sum(d);
        for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          for (std::int64_t i = 0; i < problem.queries; ++i) {
            const std::int64_t position = problem.keys - problem.queries + i;
            const std::int64_t visible = problem.causal ? std::max<std::int64_t>(0, position + 1) : problem.keys;
            const T* q_row = at(q, q.data.as<T>(), i, sample, head);
            const T* dout_row = at(dout, dout.data.as<T>(), i, sample, head);
            const T* out_row = at(out, out.data.as<T>(), i, sample, head);
            const std::int64_t index = (sample * problem.heads + head) * problem.queries + i;
            A product = 0;
            for (std::int64_t c = 0; c < d; ++c) product += static_cast<A>(dout_row[c]) * static_cast<A>(out_row[c]);
            dot[index] = product;
            if (problem.dropout.enabled()) {
              dropout_row(problem.dropout, problem.dropout.head_key(problem.first_head + head),
                          problem.dropout.samples[sample], position, visible, factor.data());
            }
            std::fill(dq_sum.begin(), dq_sum.end(), A{0});
            for (std::int64_t j = 0; j < visible; ++j) {
              const T* k_row = at(k, k.data.as<T>(), j, sample, kv_head);
              const T* v_row = at(v, v.data.as<T>(), j, sample, kv_head);
              A s = 0, dp = 0;
              for (std::int64_t c = 0; c < d; ++c) {
                s += static_cast<A>(q_row[c]) * static_cast<A>(k_row[c]);
                dp += static_cast<A>(dout_row[c]) * static_cast<A>(v_row[c]);
              }
              const A p = std::exp(s * scale - lse[index]);
              const A ds = p * (dp * factor[j] - product) * scale;
              for (std::int64_t c = 0; c < d; ++c) {
                dv_sum[j * d + c] += p * factor[j] * static_cast<A>(dout_row[c]);
                dk_sum[j * d + c] += ds * static_cast<A>(q_row[c]);
                dq_sum[c] += ds * static_cast<A>(k_row[c]);
              }
            }
            T* dq_row = at(dq, dq.data.as<T>(), i, sample, head);
            for (std::int64_t c = 0; c < d; ++c) dq_row[c] = static_cast<T>(dq_sum[c]);
          }
        }
        for (std::int64_t j = 0; j < problem.keys; ++j) {
          T* dk_row = at(dk, dk.data.as<T>(), j, sample, kv_head);
          T* dv_row = at(dv, dv.data.as<T>(), j, sample, kv_head);
          for (std::int64_t c = 0; c < d; ++c) {
            dk_row[c] = static_cast<T>(dk_sum[j * d + c]);
            dv_row[c] = static_cast<T>(dv_sum[j * d + c]);
          }
        }
      });
    });
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<AttentionKernels> make_attention(ThreadPool& pool) { return std::make_unique<CpuAttention>(pool); }

}  // namespace trireme::cpu

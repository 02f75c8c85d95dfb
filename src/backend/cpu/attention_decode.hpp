#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/backend/cpu/score_tile.hpp"
#include "src/backend/cpu/scratch.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::cpu {

/// Attention of one query of each sample, as in text generation, where memory bounds it: keys and values are read once,
/// in their order in memory, for all heads together. Chunks of keys are separate tasks (Dao et al. 2023,
/// "Flash-Decoding"); their results are merged in order.
template <class T>
class DecodeAttention {
  using A = Accumulation<T>;
  using V = typename Vector<A>::type;
  static constexpr int lanes = lanes_of<A>;
  static constexpr std::int64_t chunk_keys = 64;

 public:
  /// Returns whether this class computes the problem.
  static bool supports(const AttentionProblem& problem) {
    return problem.is_decoding() && problem.head_dim % column_grain == 0;
  }

  DecodeAttention(const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                  ScratchPool& scratch)
      : problem_(problem),
        q_(q),
        k_(k),
        v_(v),
        scratch_(scratch),
        chunks_((problem.keys + chunk_keys - 1) / chunk_keys),
        results_(scratch, static_cast<std::size_t>(problem.batch * chunks_ * result_size()) * sizeof(A)),
        result_(results_.template take<A>(problem.batch * chunks_ * result_size())) {}

  void run(ThreadPool& pool, const Heads& out, const TensorView& log_sum_exp) {
    pool.parallel_for(problem_.batch * chunks_, [&](std::int64_t task) { attend(task / chunks_, task % chunks_); });
    pool.parallel_ranges(problem_.batch * problem_.heads, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) merge(i / problem_.heads, i % problem_.heads, out, log_sum_exp);
    });
  }

 private:
  /// Results of a chunk: for each head the sum of exp(score - largest) v [d], the largest score, and the sum of
  /// exp(score - largest).
  std::int64_t result_size() const { return round_up(problem_.heads * (problem_.head_dim + 2), column_grain); }
  A* result_of(std::int64_t sample, std::int64_t chunk) const {
    return result_ + (sample * chunks_ + chunk) * result_size();
  }
  std::int64_t group() const { return problem_.heads / problem_.kv_heads; }

  /// Row `position` of a head. Prefetches that `ahead` rows after it: rows are too far apart for the hardware.
  static const T* row(const Rows<const T>& rows, std::int64_t position, std::int64_t ahead, std::int64_t d) {
    const char* next = reinterpret_cast<const char*>(rows[position + ahead]);
    for (std::size_t byte = 0; byte < d * sizeof(T); byte += 64) __builtin_prefetch(next + byte);
    return rows[position];
  }

  /// Computes the results of a chunk of a sample.
  void attend(std::int64_t sample, std::int64_t chunk) {
    const std::int64_t d = problem_.head_dim, heads = problem_.heads;
    const std::int64_t first = std::max(chunk * chunk_keys, problem_.first_key_of(sample, 0));
    const std::int64_t keys = problem_.queries_of(sample) == 0 ? 0 : visible_keys(problem_, sample, 0);
    const std::int64_t end = std::min((chunk + 1) * chunk_keys, keys);
    A* sum = result_of(sample, chunk);
    A* largest = sum + heads * d;
    A* total = largest + heads;
    std::fill_n(sum, heads * (d + 2), A{0});
    std::fill_n(largest, heads, -std::numeric_limits<A>::infinity());
    if (first >= end) return;

    ScratchPool::Lease lease(scratch_, ((heads + 1) * (lanes * lanes + chunk_keys) + heads * d) * sizeof(A));
    A* query = lease.take<A>(heads * d);
    A* products = lease.take<A>(heads * lanes * lanes);
    A* score = lease.take<A>(heads * chunk_keys);
    A* transposed = lease.take<A>(lanes * lanes);
    for (std::int64_t head = 0; head < heads; ++head) {
      load_row(rows_of<T>(q_, sample, head)[0], d, query + head * d);
      for (std::int64_t c = 0; c < d; ++c) query[head * d + c] *= static_cast<A>(problem_.scale);
    }

    for (std::int64_t begin = first; begin < end; begin += lanes) {
      const std::int64_t count = std::min<std::int64_t>(lanes, end - begin);
      for (std::int64_t i = 0; i < count; ++i) multiply_key(sample, begin + i, query, products + i * lanes);
      for (std::int64_t head = 0; head < heads; ++head) {
        transpose_tile(products + head * lanes * lanes, lanes, lanes, lanes, transposed, lanes);
        V scores = vector_at(transposed);
        for (int lane = 1; lane < lanes; ++lane) scores += vector_at(transposed + lane * lanes);
        vector_at(transposed) = scores;
        std::copy_n(transposed, count, score + head * chunk_keys + begin - first);
      }
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      softmax(sample, head, first, end - first, score + head * chunk_keys, largest[head], total[head]);
    }
    std::int64_t key = first;
    for (; key + 4 <= end; key += 4) add_values<4>(sample, key, score + key - first, sum);
    for (; key < end; ++key) add_values<1>(sample, key, score + key - first, sum);
  }

  /// Writes the lanes of the products of a key with the queries of all heads, `lanes` squared elements apart.
  void multiply_key(std::int64_t sample, std::int64_t key, const A* query, A* products) const {
    const std::int64_t d = problem_.head_dim;
    for (std::int64_t kv_head = 0; kv_head < problem_.kv_heads; ++kv_head) {
      const T* k = row(rows_of<T>(k_, sample, kv_head), key, 2, d);
      for (std::int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
        V sum{};
        for (std::int64_t c = 0; c < d; c += lanes) sum += vector_at(query + head * d + c) * load_vector(k + c);
        vector_at(products + head * lanes * lanes) = sum;
      }
    }
  }

  /// Scores of `count` keys from `first` on to exp(score - largest).
  void softmax(std::int64_t sample, std::int64_t head, std::int64_t first, std::int64_t count, A* score, A& largest,
               A& total) const {
    if (const auto cap = static_cast<A>(problem_.soft_cap); cap > 0) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) score[i] = cap * vector_tanh(score[i] / cap);
    }
    if (const A slope = alibi_slope<A>(problem_, head); slope != 0) {
      const auto ahead = static_cast<A>(first - problem_.alibi_origin(sample));
      for (std::int64_t i = 0; i < count; ++i) score[i] += slope * (ahead + static_cast<A>(i));
    }
    largest = *std::max_element(score, score + count);
    A sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) {
      score[i] = vector_exp(score[i] - largest);
      sum += score[i];
    }
    total = sum;
  }

  /// Adds the values of `count` keys to the sums of all heads; the heads' factors are `chunk_keys` elements apart.
  template <int count>
  void add_values(std::int64_t sample, std::int64_t key, const A* factor, A* sum) const {
    const std::int64_t d = problem_.head_dim;
    for (std::int64_t kv_head = 0; kv_head < problem_.kv_heads; ++kv_head) {
      const auto rows = rows_of<T>(v_, sample, kv_head);
      const T* v[count];
      for (int i = 0; i < count; ++i) v[i] = row(rows, key + i, 4, d);
      for (std::int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
        const A* weight = factor + head * chunk_keys;
        for (std::int64_t c = 0; c < d; c += lanes) {
          V total = vector_at(sum + head * d + c);
          for (int i = 0; i < count; ++i) total += weight[i] * load_vector(v[i] + c);
          vector_at(sum + head * d + c) = total;
        }
      }
    }
  }

  /// Merges the chunks' results of a head.
  void merge(std::int64_t sample, std::int64_t head, const Heads& out, const TensorView& log_sum_exp) const {
    const std::int64_t d = problem_.head_dim, heads = problem_.heads;
    A largest = -std::numeric_limits<A>::infinity(), total = 0;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      largest = std::max(largest, result_of(sample, chunk)[heads * d + head]);
    }
    ScratchPool::Lease lease(scratch_, d * sizeof(A));
    A* sum = lease.take<A>(d);
    std::fill_n(sum, d, A{0});
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const A* result = result_of(sample, chunk);
      const A* statistics = result + heads * d + head;
      if (statistics[heads] == 0) continue;  // no visible keys
      const A factor = vector_exp(statistics[0] - largest);
      total += factor * statistics[heads];
      for (std::int64_t c = 0; c < d; ++c) sum[c] += factor * result[head * d + c];
    }
    store_scaled(sum, d, total == 0 ? A{0} : 1 / total, rows_of<T>(out, sample, head)[0]);
    log_sum_exp.as<A>()[sample * heads + head] = largest + std::log(total);
  }

  const AttentionProblem& problem_;
  const ConstHeads q_, k_, v_;
  ScratchPool& scratch_;
  std::int64_t chunks_;
  ScratchPool::Lease results_;
  A* result_;
};

}  // namespace trireme::cpu

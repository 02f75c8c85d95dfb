#include "src/parallel/context/ring_attention.hpp"

#include <limits>
#include <utility>

namespace trireme::parallel {
namespace {

/// Heads of tensor `index` in a dense [rows, b, tensors, heads, d].
template <class View>
HeadsOf<View> heads_of(View tensor, int index) {
  const Shape& shape = tensor.shape();
  const std::int64_t columns = shape[3] * shape[4], row = shape[2] * columns;
  const auto skip = static_cast<std::int64_t>(size_of(tensor.dtype())) * index * columns;
  return {View(tensor.data() + skip, tensor.dtype(), shape), shape[1] * row, row, shape[4]};
}

template <class View>
View chunk_of(View statistics, int chunk) {
  return statistics.flat(chunk * statistics.numel() / 2, statistics.numel() / 2);
}

void wait_for(std::vector<Work>& works, Stream& stream) {
  for (Work& work : works) work.wait(stream);
  works.clear();
}

HeadsShape query_shape(const AttentionProblem& problem) {
  return {problem.queries, problem.batch, problem.heads, problem.head_dim};
}
HeadsShape key_shape(const AttentionProblem& problem) {
  return {problem.keys, problem.batch, problem.kv_heads, problem.head_dim};
}
/// Shapes of dense tensors: results; keys and values side by side.
Shape results_shape(const AttentionProblem& problem) {
  return {problem.queries, problem.batch, 1, problem.heads, problem.head_dim};
}
Shape block_shape(const AttentionProblem& problem) {
  return {problem.keys, problem.batch, 2, problem.kv_heads, problem.head_dim};
}

}  // namespace

std::vector<RingAttention::Pair> RingAttention::pairs(const AttentionProblem& problem, int rank, int owner, int size) {
  const std::int64_t chunk = problem.queries / 2;
  const int queries[] = {rank, 2 * size - 1 - rank}, keys[] = {owner, 2 * size - 1 - owner};
  std::vector<Pair> result;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      if (problem.causal && keys[j] > queries[i]) continue;  // hidden by the mask
      // All keys are before the first query's window, so no query sees them.
      if (problem.window >= 0 && (keys[j] + 1) * chunk <= queries[i] * chunk - problem.window) continue;
      Pair pair{i, j, problem};
      pair.problem.queries = pair.problem.keys = chunk;
      pair.problem.first_query = queries[i] * chunk;
      pair.problem.first_key = keys[j] * chunk;
      if (problem.first_visible != nullptr) pair.problem.first_visible += i * chunk * problem.batch;
      pair.problem.results = AttentionResults::merge;
      result.push_back(pair);
    }
  }
  return result;
}

std::vector<Work> RingAttention::shift(TensorView send, TensorView receive) const {
  const int rank = group_.rank(), size = group_.size();
  const Transfer transfers[] = {{Transfer::Direction::send, (rank + 1) % size, send},
                                {Transfer::Direction::receive, (rank + size - 1) % size, receive}};
  return group_.exchange(backend_.compute_stream(), transfers);
}

template <class Visit>
void RingAttention::for_each_owner(const AttentionProblem& problem, const ConstHeads& k, const ConstHeads& v,
                                   Visit&& visit) const {
  Stream& stream = backend_.compute_stream();
  const Shape block = block_shape(problem);
  TensorView here = workspace_.allocate(k.data.dtype(), block), next = workspace_.allocate(k.data.dtype(), block);
  backend_.attention().copy_heads(stream, key_shape(problem), k, heads_of(here, 0));
  backend_.attention().copy_heads(stream, key_shape(problem), v, heads_of(here, 1));
  const int rank = group_.rank(), size = group_.size();
  for (int step = 0; step < size; ++step) {
    std::vector<Work> travelling;
    if (step + 1 < size) travelling = shift(here, next);
    visit(step, ConstTensorView(here), pairs(problem, rank, (rank + size - step) % size, size));
    wait_for(travelling, stream);
    std::swap(here, next);
  }
}

void RingAttention::forward(const AttentionProblem& problem, const ConstHeads& q, const ConstHeads& k,
                            const ConstHeads& v, const Heads& out, TensorView log_sum_exp) const {
  const ArenaScope scope(workspace_);
  Stream& stream = backend_.compute_stream();
  AttentionKernels& kernels = backend_.attention();
  const std::int64_t chunk = problem.queries / 2;
  const DType accumulation = log_sum_exp.dtype();
  const bool rounds = q.data.dtype() != accumulation;
  const Heads sums = rounds ? heads_of(workspace_.allocate(accumulation, results_shape(problem)), 0) : out;

  backend_.elementwise().fill(stream, -std::numeric_limits<double>::infinity(), log_sum_exp);
  for_each_owner(problem, k, v, [&](int, ConstTensorView keys_and_values, const std::vector<Pair>& pairs) {
    for (const Pair& pair : pairs) {
      const std::int64_t query = pair.query_chunk * chunk, key = pair.key_chunk * chunk;
      kernels.attention(stream, pair.problem, q.from(query), heads_of(keys_and_values, 0).from(key),
                        heads_of(keys_and_values, 1).from(key), sums.from(query),
                        chunk_of(log_sum_exp, pair.query_chunk));
    }
  });
  if (rounds) kernels.copy_heads(stream, query_shape(problem), sums, out);
}

void RingAttention::backward(const AttentionProblem& problem, const ConstHeads& dout, const ConstHeads& q,
                             const ConstHeads& k, const ConstHeads& v, const ConstHeads& out,
                             ConstTensorView log_sum_exp, TensorView row_dot, const Heads& dq, const Heads& dk,
                             const Heads& dv) const {
  const ArenaScope scope(workspace_);
  Stream& stream = backend_.compute_stream();
  AttentionKernels& kernels = backend_.attention();
  const std::int64_t chunk = problem.queries / 2;
  const DType accumulation = log_sum_exp.dtype();
  const Shape block = block_shape(problem);
  // Gradients of the visited keys and values: computed now, sent to the next rank, received from the previous one.
  TensorView gradient = workspace_.allocate(accumulation, block), sent = workspace_.allocate(accumulation, block);
  const TensorView received = workspace_.allocate(accumulation, block);
  const TensorView dq_sum = workspace_.allocate(accumulation, results_shape(problem));
  backend_.elementwise().fill(stream, 0, dq_sum);
  std::vector<Work> gradients_in_flight;
  for_each_owner(problem, k, v, [&](int step, ConstTensorView keys_and_values, const std::vector<Pair>& pairs) {
    backend_.elementwise().fill(stream, 0, gradient);
    for (const Pair& pair : pairs) {
      const std::int64_t query = pair.query_chunk * chunk, key = pair.key_chunk * chunk;
      kernels.attention_backward(stream, pair.problem, dout.from(query), q.from(query),
                                 heads_of(keys_and_values, 0).from(key), heads_of(keys_and_values, 1).from(key),
                                 out.from(query), chunk_of(log_sum_exp, pair.query_chunk),
                                 chunk_of(row_dot, pair.query_chunk), heads_of(dq_sum, 0).from(query),
                                 heads_of(gradient, 0).from(key), heads_of(gradient, 1).from(key));
    }
    // Adds the sums of the previous ranks for these keys, which arrive during the products above.
    wait_for(gradients_in_flight, stream);
    if (step > 0) backend_.elementwise().add(stream, received, gradient);
    std::swap(gradient, sent);
    gradients_in_flight = shift(sent, received);
  });
  wait_for(gradients_in_flight, stream);  // back on the rank of the keys
  kernels.copy_heads(stream, query_shape(problem), heads_of(dq_sum, 0), dq);
  kernels.copy_heads(stream, key_shape(problem), heads_of(received, 0), dk);
  kernels.copy_heads(stream, key_shape(problem), heads_of(received, 1), dv);
}

}  // namespace trireme::parallel

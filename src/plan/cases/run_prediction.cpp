#include "src/plan/cases/run_prediction.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "src/plan/cases/published_schedule.hpp"
#include "src/plan/simulation.hpp"

namespace trireme::plan {
namespace {

/// Time of a part of the model on one micro-batch. Backwards of inputs include the recomputed forward.
WorkTime total_of(const ChunkTime& part) { return part.forward + part.backward_input + part.backward_weight; }

/// Kernels of a dense layer in PyTorch.
constexpr int forward_kernels = 20, backward_input_kernels = 30, backward_weight_kernels = 8;

/// Sizes of a micro-batch on a tensor rank.
struct Sizes {
  explicit Sizes(const PublishedRun& run)
      : t(run.tp),
        tokens(static_cast<double>(run.micro_batch * run.sequence)),
        s(static_cast<double>(run.sequence)),
        h(static_cast<double>(run.hidden)),
        heads(static_cast<double>(run.micro_batch * run.heads) / t),
        d(h / static_cast<double>(run.heads)),
        hidden_bytes(2 * tokens * h),
        score_bytes(2 * heads * s * s) {}
  double t;
  double tokens, s, h;
  double heads;  ///< heads of all sequences
  double d;
  double hidden_bytes, score_bytes;
};

/// A matrix of a tensor rank.
struct Matrix {
  double outputs, inputs;
};

/// The matrices of a feed-forward block of width `f`, split over `ranks`.
std::array<Matrix, 2> block_of(const PublishedRun& run, std::int64_t f, double ranks) {
  const double width = static_cast<double>(f) / ranks, h = static_cast<double>(run.hidden);
  return {{{(run.llama ? 2 : 1) * width, h}, {h, width}}};
}

/// Adds the products of `count` equal matrices side by side, each with its own `rows`.
void add_products(const PublishedCosts& costs, double rows, const Matrix& w, ChunkTime& layer, double count = 1) {
  layer.forward.products += costs.layer_product(count * rows, w.outputs, w.inputs);
  layer.backward_input.products += costs.layer_product(count * rows, w.inputs, w.outputs);
  layer.backward_weight.products += costs.layer_product(count * w.outputs, w.inputs, rows);
}

/// Tensors of a Llama's norms, sums and rotations, without its blocks. Forward: two norms (2 each) and two sums (3
/// each); queries and keys are rotated (2 each). Backward: norms 3 each, gradients of residuals 3 each, weights of
/// norms 2 each.
constexpr Framework::Tensors llama_forward{.hidden = 10, .divided = 4}, llama_backward{.hidden = 16, .divided = 4};
/// Tensors of a gated activation of one width, read or written: gate, up and product; backward reads three, writes two.
constexpr double gated_forward = 3, gated_backward = 5;

double attention_time(const Sizes& z, const Framework& framework, const PublishedCosts& costs, bool backward) {
  if (framework.flash_attention == 0) {
    return (backward ? 2 : 1) *
           (costs.head_products(z.heads, z.s, z.s, z.d) + costs.head_products(z.heads, z.s, z.d, z.s));
  }
  // Half of the pairs; backward computes the scores again, five products.
  const double flops = 2 * z.heads * z.s * z.s * z.d;
  return costs.flash_attention(backward ? 2.5 * flops : flops, z.s, backward) / framework.flash_attention;
}

double kernel_time(const PublishedCosts& costs, const Framework& framework, double bytes) {
  return framework.fused_kernels ? costs.memory(bytes) : costs.unfused_memory(bytes);
}

/// Memory-bound kernels. Sequence parallelism also divides the hidden tensors.
double kernels_time(const Sizes& z, const PublishedRun& run, const PublishedCosts& costs, bool backward) {
  const Framework::Tensors& of_gpt = backward ? run.framework.backward : run.framework.forward;
  const Framework::Tensors& tensors = run.llama ? (backward ? llama_backward : llama_forward) : of_gpt;
  const double hidden = tensors.hidden / (run.sequence_parallel ? z.t : 1) + tensors.divided / z.t;
  return kernel_time(costs, run.framework, hidden * z.hidden_bytes + tensors.scores * z.score_bytes);
}

/// Adds a dense block of width `f`, without the communication of its sums. A GPT's kernels are among the layer's.
void add_block(const PublishedRun& run, const PublishedCosts& costs, std::int64_t f, ChunkTime& layer) {
  const Sizes z(run);
  for (const Matrix& w : block_of(run, f, z.t)) add_products(costs, z.tokens, w, layer);
  if (!run.llama) return;
  const double bytes = 2 * z.tokens * static_cast<double>(f) / z.t;
  layer.forward.memory_bound += costs.memory(gated_forward * bytes);
  layer.backward_input.memory_bound += costs.memory(gated_backward * bytes);
}

/// Kernels of the router and of both permutations.
constexpr int expert_kernels = 25;

/// Adds the experts, with even loads. Each rank sends its tokens' choices over the expert ranks, gathers them over the
/// ranks that split an expert, and returns the results the same way, as Megatron-Core's all-to-all dispatcher does.
void add_experts(const PublishedRun& run, const PublishedCosts& costs, ChunkTime& layer) {
  const Sizes z(run);
  const PublishedExperts& experts = run.experts;
  const double etp = experts.etp, local = static_cast<double>(experts.count) / experts.ep;
  const double sent = z.tokens / z.t * static_cast<double>(experts.per_token);  // rows of h elements
  const double rows = sent * etp;
  add_products(costs, z.tokens / z.t, {static_cast<double>(experts.count), z.h}, layer);
  for (const Matrix& w : block_of(run, experts.hidden, etp)) add_products(costs, rows / local, w, layer, local);
  // Permutations read and write the tokens and their rows, and the rows again if they are sorted by several experts.
  const double moved = 2 * (z.tokens / z.t + sent) + (local > 1 ? 4 * rows : 0);
  const double width = static_cast<double>(experts.hidden) / etp;
  const auto memory = [&](double activation) { return costs.memory(2 * (moved * z.h + activation * rows * width)); };
  const int products = 2 * static_cast<int>(local);
  layer.forward.memory_bound += memory(run.llama ? gated_forward : 2) + costs.launches(expert_kernels + products);
  layer.backward_input.memory_bound +=
      memory(run.llama ? gated_backward : 3) + costs.launches(expert_kernels + products);
  layer.backward_weight.memory_bound += costs.launches(products);
  const double exchange = 2 * costs.collective(Collective::all_to_all, 2 * sent * z.h, experts.ep, experts.etp) +
                          costs.collective(Collective::all_gather, 2 * rows * z.h, experts.etp, 1) +
                          costs.collective(Collective::reduce_scatter, 2 * rows * z.h, experts.etp, 1);
  layer.forward.of(Traffic::experts).exposed_ms += exchange;
  layer.backward_input.of(Traffic::experts).exposed_ms += exchange;
  if (experts.shared_hidden > 0) add_block(run, costs, experts.shared_hidden, layer);
}

ChunkTime layer_time(const PublishedRun& run, const PublishedCosts& costs) {
  const Sizes z(run);
  ChunkTime layer;
  add_products(costs, z.tokens, {(z.h + 2 * run.kv_width()) / z.t, z.h}, layer);
  add_products(costs, z.tokens, {z.h, z.h / z.t}, layer);
  const Framework& framework = run.framework;
  layer.forward.attention = attention_time(z, framework, costs, false);
  layer.backward_input.attention = attention_time(z, framework, costs, true);
  layer.forward.memory_bound = kernels_time(z, run, costs, false) + costs.launches(forward_kernels);
  layer.backward_input.memory_bound = kernels_time(z, run, costs, true) + costs.launches(backward_input_kernels);
  layer.backward_weight.memory_bound = costs.launches(backward_weight_kernels);
  const bool has_experts = run.experts.any();
  if (has_experts) {
    add_experts(run, costs, layer);
  } else {
    add_block(run, costs, run.ffn_hidden, layer);
  }
  // Sums of attention and of a dense block, in each direction; sequence parallelism makes each a scatter and a gather
  // of the same bytes.
  const int sums = has_experts && run.experts.shared_hidden == 0 ? 1 : 2;
  const double sum = sums * costs.collective(Collective::all_reduce, z.hidden_bytes, run.tp, 1);
  layer.forward.of(Traffic::tensor).exposed_ms = sum;
  layer.backward_input.of(Traffic::tensor).exposed_ms =
      framework.overlaps_tensor ? std::max(0.0, sum - layer.backward_weight.products) : sum;
  if (run.recomputation == Recomputation::full) layer.backward_input += layer.forward;
  if (run.recomputation == Recomputation::selective) {
    layer.backward_input.attention += layer.forward.attention;
    layer.backward_input.memory_bound += kernel_time(costs, framework, framework.forward.scores * z.score_bytes);
  }
  return layer;
}

/// The embedding, which only takes memory-bound time.
ChunkTime embedding_time(const PublishedRun& run, const PublishedCosts& costs) {
  const Sizes z(run);
  ChunkTime part;
  part.forward.memory_bound = part.backward_input.memory_bound = costs.memory(3 * z.hidden_bytes);
  return part;
}

/// The output layer with its loss. It is never recomputed.
ChunkTime head_time(const PublishedRun& run, const PublishedCosts& costs) {
  const Sizes z(run);
  const double words = static_cast<double>(run.vocabulary) / z.t;
  ChunkTime part;
  part.forward.products = costs.product(z.tokens, words, z.h);
  part.backward_input.products = costs.product(z.tokens, z.h, words);
  part.backward_weight.products = costs.product(words, z.h, z.tokens);
  part.forward.memory_bound = part.backward_input.memory_bound =
      costs.memory(run.framework.loss_bytes / 2 * z.tokens * words + 3 * z.hidden_bytes);
  part.backward_input.of(Traffic::tensor).exposed_ms =
      costs.collective(Collective::all_reduce, z.hidden_bytes, run.tp, 1);
  return part;
}

/// Slowdown of an update whose gradient reduction overlaps with backward: it takes multiprocessors and memory
/// bandwidth.
constexpr double overlapped_gradients_share = 0.06;

/// Backward of weights apart from that of inputs: its operands are read again.
constexpr double late_weights_factor = 1.05;

/// Layers of each chunk, by position. If the layers plus two divide evenly, embedding and output head count as one
/// layer each; else the first chunks take the remainder.
std::vector<int> layers_of_chunks(const PublishedRun& run) {
  const int positions = run.pp * run.chunks;
  const bool ends_count = run.layers % positions != 0 && (run.layers + 2) % positions == 0;
  const int layers = run.layers + (ends_count ? 2 : 0);
  std::vector<int> result(static_cast<std::size_t>(positions), layers / positions);
  for (int i = 0; i < layers % positions; ++i) ++result[static_cast<std::size_t>(i)];
  if (ends_count) {
    --result.front();
    --result.back();
  }
  return result;
}

std::vector<ChunkTime> chunk_times(const PublishedRun& run, const PublishedCosts& costs) {
  const ChunkTime layer = layer_time(run, costs);
  std::vector<ChunkTime> parts;
  for (const int layers : layers_of_chunks(run)) parts.push_back(layers * layer);
  parts.front() += embedding_time(run, costs);
  parts.back() += head_time(run, costs);
  return parts;
}

/// Time of the message from `position` to the next one: each tensor rank sends its part, followed by a gather.
double message_time(const PublishedRun& run, const PublishedCosts& costs, int position) {
  const double bytes = 2.0 * static_cast<double>(run.micro_batch * run.sequence * run.hidden);
  const int from = position % run.pp * run.tp, to = (position + 1) % run.pp * run.tp;
  const int node = costs.node_stride();
  const double gather = run.sequence_parallel ? 0 : costs.collective(Collective::all_gather, bytes, run.tp, 1);
  // Replicas of the pipeline lie between its stages.
  const bool crosses = from * run.dp / node != to * run.dp / node;
  return costs.message(bytes / run.tp, crosses) + gather;
}

/// Adds the messages to the steps that wait for them: the longer of a step's receive and send.
ScheduleTimes schedule_times(const PublishedRun& run, const PublishedCosts& costs,
                             const std::vector<ChunkTime>& chunks) {
  const bool halves =
      run.schedule == PublishedSchedule::zero_bubble_1p || run.schedule == PublishedSchedule::zero_bubble_2p;
  ScheduleTimes times;
  const int last = static_cast<int>(chunks.size()) - 1;
  for (int position = 0; position <= last; ++position) {
    const ChunkTime& part = chunks[static_cast<std::size_t>(position)];
    const double before = position > 0 ? message_time(run, costs, position - 1) : 0;
    const double after = position < last ? message_time(run, costs, position) : 0;
    const double wait = halves ? 0 : std::max(before, after);
    // A path through all stages takes their sum.
    if (halves && last > 0) times.transfer += before / last;
    times.chunks.push_back({part.forward.total() + wait, part.backward_input.total() + wait,
                            (halves ? late_weights_factor : 1) * part.backward_weight.total()});
  }
  return times;
}

/// Returns the time of the steps; sets the work of the busiest rank, and the bubble.
double predict_pipeline(const PublishedRun& run, const PublishedCosts& costs, RunPrediction& prediction) {
  const std::vector<ChunkTime> chunks = chunk_times(run, costs);
  const double m = run.micro_batches();
  for (int rank = 0; rank < run.pp; ++rank) {
    WorkTime work;
    for (std::size_t i = static_cast<std::size_t>(rank); i < chunks.size(); i += static_cast<std::size_t>(run.pp)) {
      work += m * total_of(chunks[i]);
    }
    if (work.total() > prediction.work.total()) prediction.work = work;
  }
  const double work_ms = prediction.work.total();
  const double pipeline_ms = run.pp > 1 ? schedule_time(run, schedule_times(run, costs, chunks)) : work_ms;
  prediction.pipeline_ms = pipeline_ms - work_ms;
  prediction.bubble = prediction.pipeline_ms / pipeline_ms;
  return pipeline_ms;
}

/// Parameters of a rank of the fullest stage, outside the experts and in them.
struct Parameters {
  double dense, experts;
};

Parameters parameters_of_rank(const PublishedRun& run) {
  const std::vector<int> layers = layers_of_chunks(run);
  int most = 0;
  for (int rank = 0; rank < run.pp; ++rank) {
    int sum = 0;
    for (std::size_t i = static_cast<std::size_t>(rank); i < layers.size(); i += static_cast<std::size_t>(run.pp)) {
      sum += layers[i];
    }
    most = std::max(most, sum);
  }
  const double table = static_cast<double>(run.vocabulary) * static_cast<double>(run.hidden);
  const double local = static_cast<double>(run.experts.count) / run.experts.ep;
  return {(most * run.dense_parameters() + table) / run.tp, most * local * run.expert_parameters() / run.experts.etp};
}

/// Gradients of data ranks and of the tied embedding, and the optimizer.
void predict_update(const PublishedRun& run, const PublishedCosts& costs, RunPrediction& prediction,
                    double pipeline_ms) {
  const Parameters parameters = parameters_of_rank(run);
  const PublishedExperts& experts = run.experts;
  const double reduction =
      costs.collective(Collective::all_reduce, parameters.dense * run.gradient_bytes(), run.dp, run.tp) +
      (experts.any() ? costs.collective(Collective::all_reduce, parameters.experts * run.gradient_bytes(),
                                        run.expert_dp(), experts.ep * experts.etp)
                     : 0);
  if (run.framework.overlaps_gradients && run.dp > 1) {
    prediction.data_ms = std::max(0.0, reduction - pipeline_ms / 2) + overlapped_gradients_share * pipeline_ms;
  } else {
    prediction.data_ms = reduction;
  }
  if (run.pp > 1 && !run.llama) {
    const double embedding = static_cast<double>(run.vocabulary * run.hidden) / run.tp * run.gradient_bytes();
    prediction.data_ms += costs.collective(Collective::all_reduce, embedding, 2, costs.node_stride());
  }
  const bool shards = run.sharding == Sharding::optimizer;
  const double updated = parameters.dense / (shards ? run.dp : 1) + parameters.experts / (shards ? run.expert_dp() : 1);
  prediction.optimizer_ms = costs.memory(updated * run.framework.optimizer_bytes);
}

/// Time of work overlapped with communication, which is hidden given enough work, except its interference.
double exposed_beside(double work, double communication, double interference) {
  return std::max(0.0, communication - work) + interference * std::min(work, communication);
}

/// FSDP: a layer's parameters are gathered before its forward and, fully sharded, before its backward; its gradients
/// are scattered after it (Zhao et al. 2023, arXiv:2304.11277).
void predict_fsdp(const PublishedRun& run, const PublishedCosts& costs, RunPrediction& prediction) {
  const auto h = static_cast<double>(run.hidden), words = static_cast<double>(run.vocabulary);
  const auto ring = [&](double parameters) {
    return costs.collective(Collective::all_gather, 2 * parameters, run.dp,
                            run.framework.one_adapter ? costs.node_stride() : 1);
  };
  const ChunkTime layer = layer_time(run, costs);
  const double pass = ring(run.dense_parameters());
  const double share = run.framework.sharding_interference;
  const double forward = exposed_beside(layer.forward.total(), pass, share);
  const double backward = exposed_beside(layer.backward_input.total() + layer.backward_weight.total(),
                                         (run.sharding == Sharding::full ? 2 : 1) * pass, share);
  const double m = static_cast<double>(run.global_batch) / static_cast<double>(run.dp * run.micro_batch);
  ChunkTime all = run.layers * layer;
  all += embedding_time(run, costs);
  all += head_time(run, costs);
  prediction.work = m * total_of(all);
  prediction.data_ms = m * (run.layers * (forward + backward) + 3 * ring(words * h));
  prediction.optimizer_ms =
      costs.memory((run.layers * run.dense_parameters() + words * h) / run.dp * run.framework.optimizer_bytes);
}

}  // namespace

RunPrediction predict_run(const PublishedRun& run, const PublishedCosts& costs) {
  RunPrediction prediction;
  if (run.is_fsdp()) {
    predict_fsdp(run, costs, prediction);
  } else {
    predict_update(run, costs, prediction, predict_pipeline(run, costs, prediction));
  }
  const double ms = prediction.work.total() + prediction.pipeline_ms + prediction.data_ms + prediction.optimizer_ms;
  prediction.seconds = 1e-3 * ms;
  prediction.tflops_gpu = run.flops() / run.gpus / prediction.seconds * 1e-12;
  return prediction;
}

RunPrediction predict_run(const PublishedRun& run) {
  return predict_run(run, PublishedCosts(published_cluster(run.cluster), run.fp8));
}

}  // namespace trireme::plan

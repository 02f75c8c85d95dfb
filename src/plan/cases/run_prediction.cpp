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

/// Kernels of a layer in PyTorch.
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
double kernels_time(const Sizes& z, const PublishedRun& run, const PublishedCosts& costs,
                    const Framework::Tensors& tensors) {
  const double hidden = tensors.hidden / (run.sequence_parallel ? z.t : 1) + tensors.divided / z.t;
  return kernel_time(costs, run.framework, hidden * z.hidden_bytes + tensors.scores * z.score_bytes);
}

/// A transformer layer of the run.
ChunkTime layer_time(const PublishedRun& run, const PublishedCosts& costs) {
  const Sizes z(run);
  struct Weight {
    double outputs, inputs;
  };
  const std::array<Weight, 4> weights = {
      {{3 * z.h / z.t, z.h}, {z.h, z.h / z.t}, {4 * z.h / z.t, z.h}, {z.h, 4 * z.h / z.t}}};
  ChunkTime layer;
  for (const Weight& w : weights) {
    layer.forward.products += costs.layer_product(z.tokens, w.outputs, w.inputs);
    layer.backward_input.products += costs.layer_product(z.tokens, w.inputs, w.outputs);
    layer.backward_weight.products += costs.layer_product(w.outputs, w.inputs, z.tokens);
  }
  const Framework& framework = run.framework;
  layer.forward.attention = attention_time(z, framework, costs, false);
  layer.backward_input.attention = attention_time(z, framework, costs, true);
  layer.forward.memory_bound = kernels_time(z, run, costs, framework.forward) + costs.launches(forward_kernels);
  layer.backward_input.memory_bound =
      kernels_time(z, run, costs, framework.backward) + costs.launches(backward_input_kernels);
  layer.backward_weight.memory_bound = costs.launches(backward_weight_kernels);
  // Two sums in each direction; sequence parallelism makes each a scatter and a gather of the same bytes.
  const double sum = costs.collective(Collective::all_reduce, z.hidden_bytes, run.tp, 1);
  layer.forward.of(Traffic::tensor).exposed_ms = 2 * sum;
  layer.backward_input.of(Traffic::tensor).exposed_ms =
      framework.overlaps_tensor ? std::max(0.0, 2 * sum - layer.backward_weight.products) : 2 * sum;
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

double parameters_of_rank(const PublishedRun& run) {
  const std::vector<int> layers = layers_of_chunks(run);
  int most = 0;
  for (int rank = 0; rank < run.pp; ++rank) {
    int sum = 0;
    for (std::size_t i = static_cast<std::size_t>(rank); i < layers.size(); i += static_cast<std::size_t>(run.pp)) {
      sum += layers[i];
    }
    most = std::max(most, sum);
  }
  const auto h = static_cast<double>(run.hidden);
  return (12.0 * most * h * h + static_cast<double>(run.vocabulary) * h) / run.tp;
}

/// Gradients of data ranks and of the tied embedding, and the optimizer.
void predict_update(const PublishedRun& run, const PublishedCosts& costs, RunPrediction& prediction,
                    double pipeline_ms) {
  const double parameters = parameters_of_rank(run);
  const double reduction = costs.collective(Collective::all_reduce, parameters * run.gradient_bytes(), run.dp, run.tp);
  if (run.framework.overlaps_gradients && run.dp > 1) {
    prediction.data_ms = std::max(0.0, reduction - pipeline_ms / 2) + overlapped_gradients_share * pipeline_ms;
  } else {
    prediction.data_ms = reduction;
  }
  if (run.pp > 1) {
    const double embedding = static_cast<double>(run.vocabulary * run.hidden) / run.tp * run.gradient_bytes();
    prediction.data_ms += costs.collective(Collective::all_reduce, embedding, 2, costs.node_stride());
  }
  prediction.optimizer_ms =
      costs.memory(parameters * run.framework.optimizer_bytes / (run.sharding == Sharding::optimizer ? run.dp : 1));
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
  const double pass = ring(12 * h * h);
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
      costs.memory((12.0 * run.layers * h * h + words * h) / run.dp * run.framework.optimizer_bytes);
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

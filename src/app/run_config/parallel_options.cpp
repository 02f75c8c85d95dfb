#include "src/app/run_config/parallel_options.hpp"

#include "src/parallel/pipeline/layout_text.hpp"

namespace trireme::app {

void declare_schedule(Options& options, std::optional<parallel::ScheduleKind>* schedule) {
  std::vector<Choice<std::optional<parallel::ScheduleKind>>> choices;
  for (const auto kind : {parallel::ScheduleKind::one_forward_one_backward, parallel::ScheduleKind::gpipe,
                          parallel::ScheduleKind::interleaved, parallel::ScheduleKind::zero_bubble}) {
    choices.push_back({parallel::name_of(kind), kind});
  }
  options.add_choice("schedule", schedule, std::move(choices),
                     "Order of forwards and backwards in a pipeline; default 1f1b, or interleaved if --vpp > 1.");
}

void GridOptions::declare_sizes(Options& options) {
  options.add("tensor-model-parallel-size,tp", &tensor, "N", "Ranks that split every layer.", rank_count());
  options.add("pipeline-model-parallel-size,pp", &pipeline, "N", "Ranks that the layers are distributed over.",
              rank_count());
  options.add("context-parallel-size,cp", &context, "N",
              "Ranks that split each sequence: each holds two chunks, and attention passes keys and values in a ring.",
              rank_count());
  options.add("expert-model-parallel-size,ep", &expert, "N",
              "Neighbouring context and data ranks that divide the experts of every layer and exchange tokens; a "
              "divisor of context x data ranks and of --num-experts. See also --expert-tensor-parallel-size.",
              rank_count());
  options.add("expert-tensor-parallel-size", &expert_tensor, "N",
              "Ranks that split every expert; default --tensor-model-parallel-size. With another number experts divide "
              "all ranks of a pipeline stage anew, and this times --ep is a divisor of tensor x context x data ranks: "
              "1 keeps experts whole.",
              rank_count());
}

void GridOptions::declare(Options& options, const std::string& title) {
  options.section(title);
  declare_sizes(options);
  options.add("num-virtual-stages-per-pipeline-rank,vpp", &split.chunks, "N",
              "Chunks of layers on each pipeline rank; default 1.", layer_count());
  options.add("num-layers-per-virtual-pipeline-stage", &split.layers_per_chunk, "N", "The same, as layers per chunk.",
              layer_count());
  options.add(
      "pipeline-model-parallel-layout", &pipeline_layout, "LAYOUT",
      "Layers of every chunk in the order of the data flow (chunk 0 of each rank, then chunk 1 ...): 0,3,3,2 or, as in "
      "Megatron-LM, E|t*3|(t|)*2tL with the embedding E, layers t and the loss L. The first and the last chunk may "
      "have no layers.");
  options.add("decoder-first-pipeline-num-layers", &split.first_stage, "N",
              "Layers of the first pipeline rank; the others share the rest equally.", layer_count());
  options.add("decoder-last-pipeline-num-layers", &split.last_stage, "N", "Layers of the last pipeline rank.",
              layer_count());
  options.add_flag("standalone-embedding-stage", &split.standalone_embedding,
                   "Give the first pipeline rank only the embedding, no layers.");
  options.add("make-vocab-size-divisible-by", &vocabulary_multiple, "N",
              "Pad the vocabulary to a multiple of this times the tensor ranks; padding does not enter the loss.",
              countable());
  options.add("padded-vocab-size", &padded_vocabulary, "N",
              "Pad the vocabulary to this size instead; 0: by the multiple.", between(0, countable().max));
}

parallel::ProcessGrid GridOptions::of(int ranks, int data) const {
  return {ranks, tensor, pipeline, context, data, expert, expert_tensor.value_or(0)};
}

parallel::PipelineSplit GridOptions::pipeline_split() const {
  parallel::PipelineSplit result = split;
  if (!pipeline_layout.empty()) result.layers = parallel::layers_of_chunks(pipeline_layout);
  return result;
}

void ShardingOptions::declare(Options& options) {
  options.section("Data parallelism");
  options.add_flag("use-distributed-optimizer", &distributed_optimizer,
                   "Shard master weights and moments over the data ranks (ZeRO 1).");
  options.add_choice<std::optional<parallel::DataSharding>>(
      "data-parallel-sharding-strategy", &strategy,
      {{"no_shard", parallel::DataSharding::none},
       {"optim", parallel::DataSharding::optimizer},
       {"optim_grads", parallel::DataSharding::optimizer_and_gradients}},
      "State sharded over the data ranks; optim is --use-distributed-optimizer, optim_grads also shards the "
      "gradients (ZeRO 2) and reduces them after every micro-batch.");
  options.add_choice("main-grads-dtype", &gradient_type, types_without_fp64,
                     "Type in which gradients are stored and reduced: fp32 (the default) or a 16-bit --dtype itself.");
  options.add_flag("accumulate-allreduce-grads-in-fp32", &fp32_gradients, "The same as --main-grads-dtype fp32.");
  options.add_flag("overlap-grad-reduce", &overlap_reduce, "Reduce gradients in buckets, overlapped with backward.");
  options.add_flag("overlap-param-gather", &overlap_gather,
                   "With shards: gather the updated parameters, overlapped with the next forward.");
  options.add("ddp-bucket-size", &bucket_elements, "N",
              "Parameters of a bucket; default max(40 M, 1 M x data ranks) with an overlap, else all.", at_least(1));
  options.add_flag("optimizer-cpu-offload", &cpu_offload,
                   "Keep master weights and moments in host memory. Updates stream them through the GPU, beside the "
                   "next forward, and compute the same bits. Not yet validated on a GPU.");
  options.add("optimizer-offload-fraction", &offload_fraction, "X",
              "With --optimizer-cpu-offload: the part of them that is kept there, rounded up to buckets; default 1.",
              between(0, 1));
}

void ShardingOptions::settle(DType dtype, Problems& problems) {
  using parallel::DataSharding;
  problems.expect(!distributed_optimizer || strategy != DataSharding::none,
                  "--use-distributed-optimizer contradicts --data-parallel-sharding-strategy no_shard");
  if (!strategy) strategy = distributed_optimizer ? DataSharding::optimizer : DataSharding::none;
  problems.expect(!overlap_gather || strategy != DataSharding::none,
                  "--overlap-param-gather needs --use-distributed-optimizer: without shards nothing is gathered");
  problems.expect(!offload_fraction || cpu_offload, "--optimizer-offload-fraction needs --optimizer-cpu-offload");
  const DType accumulated = accumulation_type(dtype);
  if (fp32_gradients) {
    problems.expect(gradient_type.value_or(DType::fp32) == DType::fp32,
                    fmt::format("--accumulate-allreduce-grads-in-fp32 contradicts --main-grads-dtype {}",
                                name_of(gradient_type.value_or(DType::fp32))));
    gradient_type = DType::fp32;
  }
  problems.expect(!gradient_type || *gradient_type == accumulated || *gradient_type == dtype,
                  fmt::format("--main-grads-dtype {} is not supported with --dtype {}, whose gradients are {}",
                              name_of(gradient_type.value_or(accumulated)), name_of(dtype),
                              dtype == accumulated ? name_of(dtype)
                                                   : fmt::format("{} or {}", name_of(accumulated), name_of(dtype))));
}

parallel::DataParallelOptions ShardingOptions::config(DType dtype) const {
  return {.sharding = *strategy,
          .low_precision_gradients = gradient_type && *gradient_type != accumulation_type(dtype),
          .overlap_reduce = overlap_reduce,
          .overlap_gather = overlap_gather,
          .bucket_elements = bucket_elements.value_or(0)};
}

void ParallelOptions::declare(Options& options) {
  declare_schedule(options, &schedule);
  options.add_flag(
      "overlap-p2p-communication", &overlap_p2p,
      "Post receives between pipeline stages two steps ahead, so that communication overlaps computation.");
  options.add_flag(
      "no-scatter-gather-tensors-in-pipeline", &no_scatter_gather,
      "Each tensor rank sends full activations to the next stage, instead of its shard to be gathered there.");
  options.add_flag(
      "sequence-parallel", &sequence_parallel,
      "Split the residual stream along the sequence over the tensor ranks: norms, dropouts and their saved "
      "activations take 1/t of the memory.");
  options.add_choice<bool>(
      "moe-token-dispatcher-type", &exchange_tokens, {{"allgather", false}, {"alltoall", true}},
      "With --expert-model-parallel-size: every rank gets all tokens of its group, or only those of its experts.");
  options.add("expert-load-factor", &expert_load, "X",
              "Tokens of the experts of the rank predicted by plan and --dry-run, over the mean of the ranks of "
              "--expert-model-parallel-size: the fullest and slowest rank. At most all tokens are there.",
              Range{1, max_ranks});
  options.add_flag("moe-shared-expert-overlap", &overlap_shared_expert,
                   "The shared expert computes while tokens travel to the other experts, and their gradients in "
                   "backward.");
  options.add_flag(
      "moe-pad-expert-input-to-capacity", &pad_experts,
      "Each expert computes as many rows as --moe-expert-capacity-factor allows, those without a token from "
      "zeros: the host then waits for no counts, and --cuda-graphs can record the layer.");
  options.add_flag("no-async-tensor-model-parallel-allreduce", &no_async_tensor_all_reduce,
                   "Do not overlap the tensor-parallel communication of backward with the GEMMs of weight gradients.");
  options.add("tp-comm-overlap-chunks", &row_chunks, "N",
              "Split each micro-batch along the sequence into N chunks: the tensor-parallel communication of one "
              "overlaps with the GEMMs of the others, in forward and backward. Try 2 or 4.",
              at_least(1));
  options.add_flag("use-nccl-ub", &registered_buffers,
                   "Allocate what tensor and data ranks communicate by NCCL, and register it with their groups, so "
                   "that NCCL needs no copies and fewer multiprocessors. Not measured yet.");
}

void ParallelOptions::settle(DType dtype, const std::optional<model::ModelConfig>& model, Problems& problems) {
  sharding.settle(dtype, problems);
  problems.attempt([&] {
    const parallel::PipelineSplit pipeline_split = grid.pipeline_split();
    if (!model) return;
    parallel::schedule_for(schedule, parallel::PipelineLayout::of(model->layers, grid.pipeline, pipeline_split).chunks);
  });
}

train::ParallelConfig ParallelOptions::config(DType dtype) const {
  return {.sequence_parallel = sequence_parallel,
          .row_chunks = row_chunks,
          .async_tensor_all_reduce = !no_async_tensor_all_reduce,
          .exchange_tokens = exchange_tokens,
          .expert_load = expert_load,
          .overlap_shared_expert = overlap_shared_expert,
          .pad_experts = pad_experts,
          .pipeline = grid.pipeline_split(),
          .schedule = schedule,
          .overlap_p2p = overlap_p2p,
          .registered_buffers = registered_buffers,
          .scatter_gather = !no_scatter_gather,
          .data_parallel = sharding.config(dtype)};
}

}  // namespace trireme::app

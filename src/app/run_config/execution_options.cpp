#include "src/app/run_config/execution_options.hpp"

namespace trireme::app {

void PrecisionOptions::declare(Options& options) {
  options.add_choice("dtype", &dtype,
                     {{"fp64", DType::fp64}, {"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}},
                     "Type of weights and activations; 16-bit types have fp32 master weights.");
  options.add_flag("bf16", &bf16, "The same as --dtype bf16.");
  options.add_flag("fp16", &fp16, "The same as --dtype fp16: with dynamic loss scaling.");
}

void PrecisionOptions::settle(const Options& options, Problems& problems) {
  problems.expect(!(bf16 && fp16), "--bf16 and --fp16 exclude each other");
  problems.expect(!(bf16 || fp16) || !options.given("dtype") || dtype == (bf16 ? DType::bf16 : DType::fp16),
                  fmt::format("--{} contradicts --dtype {}", bf16 ? "bf16" : "fp16", name_of(dtype)));
  if (bf16) dtype = DType::bf16;
  if (fp16) dtype = DType::fp16;
}

void ShardingOptions::declare(Options& options) {
  options.section("Data parallelism");
  options.add_flag("use-distributed-optimizer", &distributed_optimizer,
                   "Each data rank keeps and updates its shard of master weights and moments (ZeRO 1).");
  options.add_choice<std::optional<parallel::DataSharding>>(
      "data-parallel-sharding-strategy", &strategy,
      {{"no_shard", parallel::DataSharding::none},
       {"optim", parallel::DataSharding::optimizer},
       {"optim_grads", parallel::DataSharding::optimizer_and_gradients}},
      "State that the data ranks keep in shards; optim is --use-distributed-optimizer, optim_grads shards the "
      "gradients too (ZeRO 2) and reduces them after every micro-batch.");
  options.add_choice<std::optional<DType>>(
      "main-grads-dtype", &gradient_type, {{"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}},
      "Type in which gradients are kept and reduced: fp32 (the default) or a 16-bit --dtype itself.");
  options.add_flag("accumulate-allreduce-grads-in-fp32", &fp32_gradients, "The same as --main-grads-dtype fp32.");
  options.add_flag("overlap-grad-reduce", &overlap_reduce, "Reduce gradients, in buckets, while backward goes on.");
  options.add_flag("overlap-param-gather", &overlap_gather,
                   "With shards: gather the updated parameters while the next forward goes on.");
  options.add("ddp-bucket-size", &bucket_elements, "N",
              "Parameters of a bucket; default max(40 M, 1 M x data ranks) with an overlap, all without.", at_least(1));
}

void ShardingOptions::settle(DType dtype, Problems& problems) {
  using parallel::DataSharding;
  problems.expect(!distributed_optimizer || strategy != DataSharding::none,
                  "--use-distributed-optimizer contradicts --data-parallel-sharding-strategy no_shard");
  if (!strategy) strategy = distributed_optimizer ? DataSharding::optimizer : DataSharding::none;
  problems.expect(!overlap_gather || strategy != DataSharding::none,
                  "--overlap-param-gather needs --use-distributed-optimizer: without shards nothing is gathered");
  const DType accumulated = accumulation_type(dtype);
  if (fp32_gradients) {
    problems.expect(gradient_type.value_or(DType::fp32) == DType::fp32,
                    fmt::format("--accumulate-allreduce-grads-in-fp32 contradicts --main-grads-dtype {}",
                                name_of(gradient_type.value_or(DType::fp32))));
    gradient_type = DType::fp32;
  }
  problems.expect(!gradient_type || *gradient_type == accumulated || *gradient_type == dtype,
                  fmt::format("--main-grads-dtype {} does not go with --dtype {}, whose gradients are {}",
                              name_of(gradient_type.value_or(accumulated)), name_of(dtype),
                              dtype == accumulated ? name_of(dtype)
                                                   : fmt::format("{} or {}", name_of(accumulated), name_of(dtype))));
  const bool rounded = gradient_type && *gradient_type != accumulated;
  problems.expect(!rounded || strategy != DataSharding::optimizer_and_gradients,
                  "--data-parallel-sharding-strategy optim_grads keeps its shard of the gradients in fp32: leave out "
                  "--main-grads-dtype");
}

parallel::DataParallelOptions ShardingOptions::data_parallel(DType dtype) const {
  return {.sharding = *strategy,
          .low_precision_gradients = gradient_type && *gradient_type != accumulation_type(dtype),
          .overlap_reduce = overlap_reduce,
          .overlap_gather = overlap_gather,
          .bucket_elements = bucket_elements.value_or(0)};
}

void ExecutionOptions::declare(Options& options) {
  declare_schedule(options, &schedule);
  options.add_flag(
      "overlap-p2p-communication", &overlap_p2p,
      "Post receives between pipeline stages two steps ahead, so that messages travel during computation.");
  options.add_flag(
      "no-scatter-gather-tensors-in-pipeline", &no_scatter_gather,
      "Each tensor rank sends whole activations to the next stage, not its part of them to be gathered there.");
  options.add_flag("sequence-parallel", &sequence_parallel,
                   "Divide the residual stream along the sequence over the tensor ranks: norms, dropouts and their "
                   "saved activations take 1/t of the memory.");
  options.add_flag(
      "no-async-tensor-model-parallel-allreduce", &no_async_tensor_all_reduce,
      "Do not hide the tensor-parallel communication of backward behind the products of weight gradients.");
  options.add_flag("cuda-graphs", &cuda_graphs,
                   "GPU: record the work of a micro-batch once and replay it, which saves host time. The first "
                   "micro-batch of an update is not replayed with --overlap-param-gather, the last one not with "
                   "--overlap-grad-reduce. Not yet proved on a GPU.");
  options.add_choice("recompute-granularity", &recomputation.granularity,
                     {{"none", model::RecomputeGranularity::none},
                      {"selective", model::RecomputeGranularity::selective},
                      {"full", model::RecomputeGranularity::full}},
                     "Work that backward repeats to save memory: selective, the attention itself (not Q, K, V) and the "
                     "activation in the feed-forward block; full, whole layers.");
  options.add_choice("recompute-method", &recomputation.method,
                     {{"uniform", model::RecomputeMethod::uniform}, {"block", model::RecomputeMethod::block}},
                     "Form of full recomputation: groups of --recompute-num-layers layers that keep only their input, "
                     "or that many layers at the start of each chunk, one by one. Default: uniform.");
  options.add("recompute-num-layers", &recomputation.layers, "N", "Layers of a group, or of a chunk.", layer_count());
  options.add_flag("recompute-activations", &recompute_activations, "The same as --recompute-granularity selective.");
  options.add_flag("distribute-saved-activations", &recomputation.distribute,
                   "With full recomputation: each tensor rank keeps only its part of a group's input.");
}

void ExecutionOptions::settle(const Options& options, const GridOptions& grid, Problems& problems) {
  using model::RecomputeGranularity;
  if (recompute_activations) {
    problems.expect(!options.given("recompute-granularity") || recomputation.selective(),
                    "--recompute-activations means --recompute-granularity selective and contradicts another one");
    recomputation.granularity = RecomputeGranularity::selective;
  }
  const bool full = recomputation.granularity == RecomputeGranularity::full;
  for (const char* name : {"recompute-method", "recompute-num-layers", "distribute-saved-activations"}) {
    problems.expect(full || !options.given(name), fmt::format("--{} needs --recompute-granularity full", name));
  }
  problems.expect(!recomputation.distribute || grid.tensor > 1,
                  "--distribute-saved-activations needs --tensor-model-parallel-size 2 or more");
  problems.expect(
      !recomputation.distribute || !sequence_parallel,
      "--distribute-saved-activations and --sequence-parallel exclude each other: with the second, activations are "
      "distributed already");
}

void ExecutionOptions::check_graphs(const DeviceOptions& device, Problems& problems) const {
  problems.expect(!cuda_graphs || device.communicator != DeviceTransport::staged,
                  "--cuda-graphs goes without --communicator staged, with which the host takes part in every message");
  problems.expect(!cuda_graphs || !device.check_launches,
                  "--cuda-graphs goes without --check-launches, with which the host waits for every kernel");
}

}  // namespace trireme::app

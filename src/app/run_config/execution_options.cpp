#include "src/app/run_config/execution_options.hpp"

namespace trireme::app {

void declare_cross_entropy_chunks(Options& options, std::int64_t* chunks) {
  options.add(
      "cross-entropy-chunks", chunks, "N",
      "Compute the output layer and the loss of a micro-batch in N chunks of its tokens. Memory holds the logits of "
      "one chunk at a time. Nothing is recomputed.",
      at_least(1));
}

void ExecutionOptions::declare(Options& options) {
  options.add_flag(
      "cuda-graphs", &cuda_graphs,
      "GPU: record the work of a micro-batch once as a CUDA graph and replay it, which saves host time. Not replayed "
      "are the first micro-batch of an update with --overlap-param-gather, and the last with --overlap-grad-reduce. "
      "Not yet validated on a GPU.");
  options.add_choice("recompute-granularity", &recomputation.granularity,
                     {{"none", model::RecomputeGranularity::none},
                      {"selective", model::RecomputeGranularity::selective},
                      {"full", model::RecomputeGranularity::full}},
                     "Work that backward repeats to save memory: selective, that of --recompute-modules; full, entire "
                     "layers.");
  options.add("recompute-modules", &recompute_modules, "MODULE",
              "Parts of a layer that selective recomputation repeats: core_attn, the attention from Q, K and V; "
              "activation, that in dense blocks and a shared expert; moe, experts and shared expert from their input. "
              "moe_act, the activation in experts, is always repeated.");
  options.add_choice("recompute-method", &recomputation.method,
                     {{"uniform", model::RecomputeMethod::uniform}, {"block", model::RecomputeMethod::block}},
                     "Form of full recomputation: spans of --recompute-num-layers layers that keep only their input, "
                     "or that many single layers at the start of each chunk. Default: uniform.");
  options.add("recompute-num-layers", &recomputation.layers, "N", "Layers of a span, or of a chunk.", layer_count());
  options.add_flag("recompute-activations", &recompute_activations, "The same as --recompute-granularity selective.");
  options.add_flag("distribute-saved-activations", &recomputation.distribute,
                   "With full recomputation: each tensor rank keeps only its shard of a span's input.");
  options.add(
      "cpu-offloading-num-layers", &recomputation.offloaded_layers, "N",
      "Keep the activations of N layers of each chunk in host memory between forward and backward, at most of "
      "those that are not recomputed in full. Copies run beside the layers, and the bits stay the same. Not yet "
      "validated on a GPU.",
      Range{0, model::max_layers});
  declare_cross_entropy_chunks(options, &cross_entropy_chunks);
}

void ExecutionOptions::settle(const Options& options, const ParallelOptions& parallel, const DeviceOptions& device,
                              Problems& problems) {
  using model::RecomputeGranularity;
  if (recompute_activations) {
    problems.expect(!options.given("recompute-granularity") || recomputation.selective(),
                    "--recompute-activations means --recompute-granularity selective and contradicts any other");
    recomputation.granularity = RecomputeGranularity::selective;
  }
  const bool full = recomputation.granularity == RecomputeGranularity::full;
  problems.need(options, {"recompute-method", "recompute-num-layers", "distribute-saved-activations"}, full,
                "--recompute-granularity full");
  problems.need(options, {"recompute-modules"}, recomputation.selective(), "--recompute-granularity selective");
  recomputation.modules = {};
  for (const std::string& module : recompute_modules) {
    recomputation.modules.attention |= module == "core_attn";
    recomputation.modules.activation |= module == "activation";
    recomputation.modules.experts |= module == "moe";
    problems.expect(module == "core_attn" || module == "activation" || module == "moe" || module == "moe_act",
                    "--recompute-modules " + module + " is not one of core_attn, activation, moe, moe_act");
  }
  problems.exclude(!recomputation.distribute || !parallel.sequence_parallel, "distribute-saved-activations",
                   "sequence-parallel", "with the second, activations are distributed already");
  problems.exclude(!cuda_graphs || device.communicator != DeviceTransport::staged, "cuda-graphs", "communicator staged",
                   "the second sends every message through the host");
  problems.exclude(!cuda_graphs || !device.check_launches, "cuda-graphs", "check-launches",
                   "with the second the host waits for every kernel");
}

train::ExecutionConfig ExecutionOptions::config(DType dtype, const BatchOptions& batch, const ParallelOptions& parallel,
                                                const MaskingOptions& masking) const {
  model::Recomputation settled = recomputation;
  settled.distribute = settled.distribute && parallel.grid.tensor > 1;
  const std::int64_t s = batch.sequence_length.value_or(0);
  return {.dtype = dtype,
          .sequence_length = s,
          .micro_batch_size = batch.micro_batch_size,
          .vocabulary_multiple = parallel.grid.vocabulary_multiple,
          .padded_vocabulary_size = parallel.grid.padded_vocabulary,
          .recomputation = settled,
          .cross_entropy_chunks = cross_entropy_chunks,
          .max_predictions = data::max_predictions(s, masking.mask_probability),
          .cuda_graphs = cuda_graphs,
          .variable_lengths = batch.variable_lengths,
          .parallel = parallel.config(dtype)};
}

}  // namespace trireme::app

#include <array>

#include "src/app/megatron/flag_table.hpp"
#include "src/app/megatron/reasons.hpp"

namespace trireme::app::megatron {
namespace {
using enum Values;
using enum Kind;

constexpr std::string_view tunes_runtime = "tunes DeepSpeed's runtime; results do not depend on it";
constexpr std::string_view of_section = "counts only in a section that is enabled";
constexpr std::string_view curriculum = "samples have the same length and order in every phase; nearest: leave it out";

// Settings of DeepSpeed's JSON, with the names of their sections before them. As in flags, "name value" is a setting
// with one value, and "name value --flag" one beside a flag of the command line.
constexpr auto deepspeed_groups = std::to_array<FlagGroup>({
    {one, "DeepSpeed", works, "--bf16", "bf16.enabled true, bfloat16.enabled true"},
    {one, "DeepSpeed", works, "--clip-grad @", "gradient_clipping"},
    {one, "DeepSpeed", works, "--data-parallel-sharding-strategy no_shard", "zero_optimization.stage 0"},
    {one, "DeepSpeed", works, "--data-parallel-sharding-strategy optim",
     "zero_optimization true, zero_optimization.stage 1"},
    {one, "DeepSpeed", works, "--data-parallel-sharding-strategy optim_grads", "zero_optimization.stage 2"},
    {one, "DeepSpeed", works, "--fp16", "fp16.enabled true"},
    {one, "DeepSpeed", works, "--global-batch-size @", "train_batch_size"},
    {one, "DeepSpeed", works, "--hysteresis @", "fp16.hysteresis"},
    {one, "DeepSpeed", works, "--initial-loss-scale 2^@", "fp16.initial_scale_power"},
    {one, "DeepSpeed", works, "--loss-scale @", "fp16.loss_scale"},
    {one, "DeepSpeed", works, "--loss-scale-window @", "fp16.loss_scale_window"},
    {one, "DeepSpeed", works, "--main-grads-dtype bf16", "data_types.grad_accum_dtype bf16"},
    {one, "DeepSpeed", works, "--main-grads-dtype fp16", "data_types.grad_accum_dtype fp16"},
    {one, "DeepSpeed", works, "--main-grads-dtype fp32", "data_types.grad_accum_dtype fp32"},
    {one, "DeepSpeed", works, "--micro-batch-size @", "train_micro_batch_size_per_gpu"},
    {one, "DeepSpeed", works, "--micro-batches @", "gradient_accumulation_steps"},
    {one, "DeepSpeed", works, "--min-loss-scale @", "fp16.min_loss_scale"},
    {one, "DeepSpeed", works, "--optimizer-cpu-offload",
     "zero_optimization.cpu_offload true, zero_optimization.offload_optimizer.device cpu"},
    {one, "DeepSpeed", works, "--optimizer-offload-fraction @", "zero_optimization.offload_optimizer.ratio"},

    {one, "DeepSpeed", satisfied, tunes_runtime,
     "activation_checkpointing.*, aio.*, checkpoint.*, dataloader_drop_last, disable_allgather, dump_state, "
     "gradient_predivide_factor, memory_breakdown, prescale_gradients, seq_parallel_communication_data_type, "
     "sparse_gradients, use_data_before_expert_parallelism, wall_clock_breakdown, zero_allow_untested_optimizer, "
     "zero_force_ds_cpu_optimizer, fp16.auto_cast, bf16.check_grad_overflow, bf16.immediate_grad_update, "
     "zero_optimization.allgather_bucket_size, zero_optimization.allgather_partitions, "
     "zero_optimization.contiguous_gradients, zero_optimization.cpu_offload_use_pin_memory, "
     "zero_optimization.elastic_checkpoint, zero_optimization.grad_hooks, "
     "zero_optimization.ignore_unused_parameters, zero_optimization.legacy_stage1, "
     "zero_optimization.load_from_fp32_weights, zero_optimization.overlap_comm, "
     "zero_optimization.reduce_bucket_size, zero_optimization.reduce_scatter, "
     "zero_optimization.round_robin_gradients, zero_optimization.sub_group_size, "
     "zero_optimization.use_multi_rank_bucket_allreduce"},
    {one, "DeepSpeed", satisfied, "applies to stage 3",
     "zero_optimization.memory_efficient_linear, zero_optimization.mics_*, zero_optimization.override_module_apply, "
     "zero_optimization.stage3_*, zero_optimization.zero_hpz_partition_size"},
    {one, "DeepSpeed", satisfied, "Megatron-LM's flags make the optimizer", "optimizer.*"},
    {one, "DeepSpeed", satisfied, why::softmax, "communication_data_type fp32, fp32_allreduce"},
    {one, "DeepSpeed", satisfied, why::unwritten,
     "comet.*, comms_logger.*, csv_monitor.*, flops_profiler.*, steps_per_print, tensorboard.*, wandb.*"},
    {one, "DeepSpeed", satisfied, why::nothing,
     "autotuning.enabled false, bf16.enabled false, bfloat16.enabled false, fp16.consecutive_hysteresis false, "
     "fp16.enabled false, fp16.fp16_master_weights_and_grads false, zero_optimization false, "
     "zero_optimization.cpu_offload false, zero_optimization.cpu_offload_param false, "
     "zero_optimization.offload_optimizer.device none, zero_optimization.offload_param.device none, "
     "zero_optimization.zero_quantized_gradients false, zero_optimization.zero_quantized_nontrainable_weights false, "
     "zero_optimization.zero_quantized_weights false, activation_checkpointing.cpu_checkpointing false, "
     "activation_checkpointing.partition_activations false"},
    {one, "DeepSpeed", satisfied, "enables data_routing and data_sampling only", "data_efficiency.enabled true"},
    {one, "DeepSpeed", satisfied, of_section,
     "amp.*, autotuning.*, curriculum_learning.*, data_efficiency.*, eigenvalue.*, elasticity.*, hybrid_engine.*, "
     "nebula.*, progressive_layer_drop.*, torch_autocast.*, zero_optimization.offload_optimizer.*, "
     "zero_optimization.offload_param.*"},

    {one, "DeepSpeed", absent, "the command line has --bf16; nearest: true",
     "bf16.enabled false --bf16, bfloat16.enabled false --bf16"},
    {one, "DeepSpeed", absent, "the command line has --fp16; nearest: true", "fp16.enabled false --fp16"},
    {one, "DeepSpeed", absent, "nearest: bf16.enabled or fp16.enabled",
     "amp.enabled true, torch_autocast.enabled true"},
    {one, "DeepSpeed", absent, "nearest: trireme plan", "autotuning.enabled true"},
    {one, "DeepSpeed", absent, "nearest: data_types.grad_accum_dtype", "communication_data_type"},
    {one, "DeepSpeed", absent, "nearest: fp32, or the type of the weights", "data_types.grad_accum_dtype"},
    {one, "DeepSpeed", absent, curriculum,
     "curriculum_learning.enabled true, "
     "data_efficiency.data_routing.enabled true, data_efficiency.data_sampling.enabled true"},
    {one, "DeepSpeed", absent, "any number of ranks continues a checkpoint; nearest: train_batch_size",
     "elasticity.enabled true"},
    {one, "DeepSpeed", absent, "every layer computes; nearest: leave it out",
     "eigenvalue.enabled true, progressive_layer_drop.enabled true"},
    {one, "DeepSpeed", absent, "overflows need not be consecutive; nearest: fp16.hysteresis",
     "fp16.consecutive_hysteresis"},
    {one, "DeepSpeed", absent, "master weights are fp32; nearest: leave it out", "fp16.fp16_master_weights_and_grads"},
    {one, "DeepSpeed", absent, "nearest: trireme generate", "hybrid_engine.enabled true"},
    {one, "DeepSpeed", absent, "nearest: --async-save", "nebula.enabled true"},
    {one, "DeepSpeed", absent, "nearest: --distribute-saved-activations",
     "activation_checkpointing.partition_activations"},
    {one, "DeepSpeed", absent, why::offload,
     "activation_checkpointing.cpu_checkpointing, zero_optimization.cpu_offload, zero_optimization.cpu_offload_param, "
     "zero_optimization.offload_optimizer.device, zero_optimization.offload_param.device"},
    {one, "DeepSpeed", absent, "nearest: --lr-decay-style and --lr-warmup-iters", "scheduler.*"},
    {one, "DeepSpeed", absent, why::latent, "sparse_attention*"},
    {one, "DeepSpeed", absent, why::bits,
     "compression_training*, quantize_training*, weight_quantization*, zero_optimization.zero_quantized_gradients, "
     "zero_optimization.zero_quantized_nontrainable_weights, zero_optimization.zero_quantized_weights, "
     "zero_optimization.zeropp_loco_param*"},
    {one, "DeepSpeed", absent, why::fsdp, "zero_optimization.stage"},
    {one, "DeepSpeed", absent, "is in no release of DeepSpeed that this program knows; nearest: leave it out", "*"},
});

}  // namespace

const std::vector<Flag>& deepspeed_settings() {
  static const std::vector<Flag> settings = flags_of({std::span<const FlagGroup>(deepspeed_groups)});
  return settings;
}

}  // namespace trireme::app::megatron

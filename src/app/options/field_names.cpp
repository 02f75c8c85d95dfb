#include "src/app/options/field_names.hpp"

#include <algorithm>
#include <array>

namespace trireme::app {
namespace {

struct FieldName {
  std::string_view field;
  std::string_view flag;
};

constexpr auto field_names = std::to_array<FieldName>({
    {"adam_beta1", "adam-beta1"},
    {"adam_beta2", "adam-beta2"},
    {"adam_eps", "adam-eps"},
    {"apply_residual_connection_post_layernorm", "apply-residual-connection-post-layernorm"},
    {"attention_dropout", "attention-dropout"},
    {"backend", "backend"},
    {"batch_size", "batch-size"},
    {"bert_no_binary_head", "bert-no-binary-head"},
    {"check_launches", "check-launches"},
    {"communicator", "communicator"},
    {"context_parallel_size", "context-parallel-size"},
    {"cp", "cp"},
    {"cross_entropy_chunks", "cross-entropy-chunks"},
    {"cuda_graphs", "cuda-graphs"},
    {"data_cache_path", "data-cache-path"},
    {"data_parallel_size", "data-parallel-size"},
    {"data_path", "data-path"},
    {"dataloader_type", "dataloader-type"},
    {"decoder_first_pipeline_num_layers", "decoder-first-pipeline-num-layers"},
    {"decoder_last_pipeline_num_layers", "decoder-last-pipeline-num-layers"},
    {"decrease_batch_size_if_needed", "decrease-batch-size-if-needed"},
    {"deterministic_mode", "deterministic-mode"},
    {"disable_bias_linear", "disable-bias-linear"},
    {"distributed_timeout_minutes", "distributed-timeout-minutes"},
    {"doc_stride", "doc-stride"},
    {"dtype", "dtype"},
    {"end_weight_decay", "end-weight-decay"},
    {"eod_token", "eod-token"},
    {"eval_interval", "eval-interval"},
    {"eval_iters", "eval-iters"},
    {"exit_duration_in_mins", "exit-duration-in-mins"},
    {"exit_interval", "exit-interval"},
    {"exp_avg_dtype", "exp-avg-dtype"},
    {"exp_avg_sq_dtype", "exp-avg-sq-dtype"},
    {"ffn_hidden_size", "ffn-hidden-size"},
    {"fim_fragment_rate", "fim-fragment-rate"},
    {"fim_middle_token", "fim-middle-token"},
    {"fim_prefix_token", "fim-prefix-token"},
    {"fim_rate", "fim-rate"},
    {"fim_spm_rate", "fim-spm-rate"},
    {"fim_suffix_token", "fim-suffix-token"},
    {"global_batch_size", "global-batch-size"},
    {"group_query_attention", "group-query-attention"},
    {"hidden_dropout", "hidden-dropout"},
    {"hidden_size", "hidden-size"},
    {"hysteresis", "hysteresis"},
    {"input_format", "input-format"},
    {"invalid_utf8", "invalid-utf8"},
    {"iterations_to_skip", "iterations-to-skip"},
    {"json", "json"},
    {"json_key", "json-key"},
    {"kv_channels", "kv-channels"},
    {"language", "language"},
    {"layernorm_epsilon", "layernorm-epsilon"},
    {"load", "load"},
    {"log_progress", "log-progress"},
    {"long_examples", "long-examples"},
    {"logits_samples", "logits-samples"},
    {"loss_scale_window", "loss-scale-window"},
    {"lr", "lr"},
    {"lr_decay_iters", "lr-decay-iters"},
    {"lr_decay_samples", "lr-decay-samples"},
    {"lr_decay_style", "lr-decay-style"},
    {"lr_warmup_init", "lr-warmup-init"},
    {"lr_warmup_iters", "lr-warmup-iters"},
    {"lr_warmup_samples", "lr-warmup-samples"},
    {"lr_wsd_decay_iters", "lr-wsd-decay-iters"},
    {"lr_wsd_decay_samples", "lr-wsd-decay-samples"},
    {"main_grads_dtype", "main-grads-dtype"},
    {"mask_prob", "mask-prob"},
    {"max_bad_lines", "max-bad-lines"},
    {"max_line", "max-line"},
    {"max_machine_faults", "max-machine-faults"},
    {"max_position_embeddings", "max-position-embeddings"},
    {"max_query_length", "max-query-length"},
    {"metrics_file", "metrics-file"},
    {"mfu_peak", "mfu-peak"},
    {"micro_batch_size", "micro-batch-size"},
    {"min_loss_scale", "min-loss-scale"},
    {"min_lr", "min-lr"},
    {"mock_data", "mock-data"},
    {"model", "model"},
    {"muon_extra_scale_factor", "muon-extra-scale-factor"},
    {"muon_momentum", "muon-momentum"},
    {"muon_num_ns_steps", "muon-num-ns-steps"},
    {"no_load_optim", "no-load-optim"},
    {"no_selftest", "no-selftest"},
    {"num_attention_heads", "num-attention-heads"},
    {"num_layers", "num-layers"},
    {"num_layers_per_virtual_pipeline_stage", "num-layers-per-virtual-pipeline-stage"},
    {"num_query_groups", "num-query-groups"},
    {"on_bad_line", "on-bad-line"},
    {"optimizer", "optimizer"},
    {"output", "output"},
    {"overlap_grad_reduce", "overlap-grad-reduce"},
    {"overlapping_eval", "overlapping-eval"},
    {"padded_vocab_size", "padded-vocab-size"},
    {"pipeline_model_parallel_layout", "pipeline-model-parallel-layout"},
    {"pipeline_model_parallel_size", "pipeline-model-parallel-size"},
    {"pp", "pp"},
    {"prompt", "prompt"},
    {"qk_layernorm", "qk-layernorm"},
    {"rampup_batch_size", "rampup-batch-size"},
    {"rope_scaling_factor", "rope-scaling-factor"},
    {"rotary_base", "rotary-base"},
    {"rotary_percent", "rotary-percent"},
    {"rotary_seq_len_interpolation_factor", "rotary-seq-len-interpolation-factor"},
    {"sampling", "sampling"},
    {"save", "save"},
    {"schedule", "schedule"},
    {"seed", "seed"},
    {"seq_length", "seq-length"},
    {"sequence_parallel", "sequence-parallel"},
    {"sgd_momentum", "sgd-momentum"},
    {"short_seq_prob", "short-seq-prob"},
    {"skip_spiky_loss", "skip-spiky-loss"},
    {"split", "split"},
    {"split_by", "split-by"},
    {"split_sentences", "split-sentences"},
    {"standalone_embedding_stage", "standalone-embedding-stage"},
    {"start_weight_decay", "start-weight-decay"},
    {"startup_timeout_minutes", "startup-timeout-minutes"},
    {"step_batch_size_schedule", "step-batch-size-schedule"},
    {"swiglu", "swiglu"},
    {"tensor_model_parallel_size", "tensor-model-parallel-size"},
    {"tensorboard_dir", "tensorboard-dir"},
    {"tp", "tp"},
    {"trace_file", "trace-file"},
    {"train_iters", "train-iters"},
    {"train_samples", "train-samples"},
    {"untie_embeddings_and_output_weights", "untie-embeddings-and-output-weights"},
    {"variable_seq_lengths", "variable-seq-lengths"},
    {"vocab_size", "vocab-size"},
    {"vpp", "vpp"},
    {"weight_decay", "weight-decay"},
    {"window_attn_skip_freq", "window-attn-skip-freq"},
    {"window_size", "window-size"},
    {"yarn_beta_fast", "yarn-beta-fast"},
    {"yarn_beta_slow", "yarn-beta-slow"},
    {"yarn_mscale", "yarn-mscale"},
    {"yarn_mscale_all_dim", "yarn-mscale-all-dim"},
    {"yarn_original_max_position_embeddings", "yarn-original-max-position-embeddings"},
    {"yarn_rotary_scaling_factor", "yarn-rotary-scaling-factor"},
});

}  // namespace

std::string with_flags(std::string_view text) {
  std::string result;
  for (;;) {
    const std::size_t open = text.find('<');
    result += text.substr(0, open);
    if (open == std::string_view::npos) return result;
    text.remove_prefix(open + 1);
    const std::size_t close = text.find('>');
    const auto* const found = std::ranges::find(field_names, text.substr(0, close), &FieldName::field);
    if (close == std::string_view::npos || found == field_names.end()) {
      result += '<';
    } else {
      result.append("--").append(found->flag);
      text.remove_prefix(close + 1);
    }
  }
}

}  // namespace trireme::app

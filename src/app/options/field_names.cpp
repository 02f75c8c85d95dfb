#include "src/app/options/field_names.hpp"

#include <algorithm>

#include "src/base/split.hpp"
#include "src/model/fields.hpp"

namespace trireme::app {
namespace {

/// Fields that messages name, beside those of models. Each is the snake_case of its flag.
constexpr std::string_view field_names =
    "adam_beta1 adam_beta2 adam_eps backend batch_size check_launches communicator context_parallel_size cp "
    "cross_entropy_chunks cuda_graphs data_cache_path data_parallel_size data_path dataloader_type "
    "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers decrease_batch_size_if_needed "
    "deterministic_mode distributed_timeout_minutes doc_stride dtype end_weight_decay eod_token eval_interval "
    "eval_iters exit_duration_in_mins exit_interval exp_avg_dtype exp_avg_sq_dtype fim_fragment_rate "
    "fim_middle_token fim_prefix_token fim_rate fim_spm_rate fim_suffix_token global_batch_size "
    "group_query_attention hysteresis input_format invalid_utf8 iterations_to_skip json json_key language load "
    "log_progress long_examples logits_samples loss_scale_window lr lr_decay_iters lr_decay_samples "
    "lr_decay_style lr_warmup_init lr_warmup_iters lr_warmup_samples lr_wsd_decay_iters lr_wsd_decay_samples "
    "main_grads_dtype mask_prob max_bad_lines max_line max_machine_faults max_query_length metrics_file mfu_peak "
    "micro_batch_size min_loss_scale min_lr mock_data model muon_extra_scale_factor muon_momentum "
    "muon_num_ns_steps no_load_optim no_selftest num_layers_per_virtual_pipeline_stage on_bad_line optimizer "
    "output overlap_grad_reduce overlapping_eval padded_vocab_size pipeline_model_parallel_layout "
    "pipeline_model_parallel_size pp prompt rampup_batch_size sampling save schedule seed seq_length "
    "sequence_parallel sgd_momentum short_seq_prob skip_spiky_loss split split_by split_sentences "
    "standalone_embedding_stage start_weight_decay startup_timeout_minutes step_batch_size_schedule "
    "tensor_model_parallel_size tensorboard_dir tp trace_file train_iters train_samples use_rope_scaling "
    "variable_seq_lengths vpp weight_decay";

/// Returns whether messages name the field `name`.
bool is_field(std::string_view name) {
  const auto same = [](char a, char b) { return a == (b == '-' ? '_' : b); };
  const std::vector<std::string_view> names = split(field_names, ' ');
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(model::fields(), [&](const model::Field& field) {
           return !field.option.empty() && std::ranges::equal(name, field.name(), same);
         });
}

}  // namespace

std::string with_flags(std::string_view text) {
  std::string result;
  for (;;) {
    const std::size_t open = text.find('<');
    result += text.substr(0, open);
    if (open == std::string_view::npos) return result;
    text.remove_prefix(open + 1);
    const std::size_t close = text.find('>');
    std::string flag(text.substr(0, close));
    if (close == std::string_view::npos || !is_field(flag)) {
      result += '<';
    } else {
      std::ranges::replace(flag, '_', '-');
      result += "--" + flag;
      text.remove_prefix(close + 1);
    }
  }
}

}  // namespace trireme::app

#include "src/train/train_options.hpp"

#include <fmt/ranges.h>

#include <utility>

#include "src/optim/grad_norm.hpp"

namespace trireme::train {
namespace {

constexpr Choice<LossAverage> loss_average_names[] = {{"tokens", LossAverage::tokens},
                                                      {"micro-batch", LossAverage::micro_batch}};

}  // namespace

void validate_fp8(const ExecutionConfig& config, const model::ModelConfig& model, int tensor_size, int context_size) {
  const parallel::Fp8Options& fp8 = config.fp8;
  if (!fp8.used) return;
  TRIREME_CHECK(config.dtype != DType::fp16, ConfigError, "<fp8_format> does not support fp16: use <bf16>");
  TRIREME_CHECK(fp8.first_layers + fp8.last_layers < model.layers, ConfigError,
                "<num_layers_at_start_in_bf16> {} and <num_layers_at_end_in_bf16> {} leave none of the {} layers to "
                "<fp8_format>",
                fp8.first_layers, fp8.last_layers, model.layers);
  const bool blocks = fp8.recipe == parallel::Fp8Recipe::blockwise;
  const bool chunks = row_chunks_of(config.parallel, tensor_size) > 1;
  TRIREME_CHECK(!chunks || fp8.recipe != parallel::Fp8Recipe::tensorwise, ConfigError,
                "<fp8_recipe> tensorwise and <tp_comm_overlap_chunks> exclude each other: the scale of a tensor needs "
                "all of its rows. Try <fp8_recipe> delayed.");
  TRIREME_CHECK(!blocks || !config.variable_lengths, ConfigError,
                "<fp8_recipe> blockwise and <variable_seq_lengths> exclude each other: blocks are of {} tokens. Try "
                "<fp8_recipe> delayed.",
                fp8_block);
  const std::int64_t unit = blocks ? fp8_block : 16, t = tensor_size;
  const std::int64_t rows = config.sequence_length / context_size * config.micro_batch_size;
  std::vector<std::pair<const char*, std::int64_t>> extents = {
      {"<hidden_size>", model.hidden},
      {"channels of a tensor rank's heads", model.value_columns() / t},
      {"tokens of a micro-batch on a rank", rows / row_chunks_of(config.parallel, tensor_size)}};
  if (!model.latent.used) {
    extents.emplace_back("channels of a tensor rank's keys", model.kv_heads() * model.head_dim() / t);
  }
  if (!model.latent.used || model.latent.query_rank == 0) {
    extents.emplace_back("channels of a tensor rank's queries", model.attention_columns() / t);
  }
  if (blocks && context_size > 1) {  // a rank's two chunks are apart in the sequence
    extents.emplace_back("tokens of a chunk of a context rank",
                         config.sequence_length / (2 * context_size) * config.micro_batch_size);
  }
  bool is_dense = false;
  for (int layer = 0; layer < model.layers; ++layer) is_dense |= !model.has_experts(layer);
  if (is_dense) extents.emplace_back("a tensor rank's share of <ffn_hidden_size>", model.ffn_hidden / t);
  for (const auto& [name, extent] : extents) {
    TRIREME_CHECK(extent % unit == 0, ConfigError,
                  "<fp8_format>{}: {}, {}, must be a multiple of {}. Try fewer tensor ranks{}, or leave it out.",
                  blocks ? " with <fp8_recipe> blockwise" : "", name, extent, unit,
                  blocks ? ", <fp8_recipe> delayed" : "");
  }
}

Attributes attributes_of(const TrainOptions& options) {
  Attributes attributes;
  attributes.put("training.global-batch-size", options.global_batch_size);
  if (options.ramp_up) {
    if (const auto* const ramp = std::get_if<BatchRampUp>(&*options.ramp_up)) {
      attributes.put("training.rampup-batch-size",
                     fmt::format("{} {} {}", ramp->start, ramp->increment, ramp->samples));
    } else {
      std::string text;
      for (const BatchLevel& level : std::get<BatchSteps>(*options.ramp_up).levels) {
        text += fmt::format("{}{}:{}", text.empty() ? "" : " ", level.begin, level.size);
      }
      attributes.put("training.step-batch-size-schedule", text + " (in samples)");
    }
  }
  attributes.put("training.loss-average", options.loss_average, loss_average_names);
  const DocumentOptions& documents = options.documents;
  if (documents.reset_position_ids) attributes.put("training.reset-position-ids", true);
  if (documents.reset_attention_mask) attributes.put("training.reset-attention-mask", true);
  if (documents.conversations_apart) attributes.put("training.packed-documents", "apart");
  if (documents.eod_mask_loss) attributes.put("training.eod-mask-loss", true);
  attributes.put_shortest("training.clip-grad", options.clip_grad);
  if (!options.guards.check_for_nan) attributes.put("training.no-check-for-nan-in-loss-and-grad", "true");
  if (options.guards.spiky_loss_factor > 0) {
    attributes.put_shortest("training.spiky-loss-factor", options.guards.spiky_loss_factor);
    if (options.guards.skip_spiky_loss) attributes.put("training.skip-spiky-loss", "true");
  }
  if (const std::optional<RewindOptions>& rewinds = options.guards.rewinds) {
    attributes.put("training.rewind-on-spike", "true");
    attributes.put_shortest("training.spike-z-score", rewinds->z_score);
    attributes.put("training.spike-iterations", rewinds->iterations);
    attributes.put("training.rewind-distance", rewinds->distance);
  }
  if (!options.guards.iterations_to_skip.empty()) {
    attributes.put("training.iterations-to-skip", fmt::format("{}", fmt::join(options.guards.iterations_to_skip, " ")));
  }
  if (options.grad_norm_power != 2) {
    const bool is_infinite = options.grad_norm_power == optim::infinity_norm;
    attributes.put("training.grad-norm-type", is_infinite ? "inf" : std::to_string(options.grad_norm_power));
  }
  if (options.decoupled_rate) {
    attributes.put_shortest("training.decoupled-lr", options.decoupled_rate->maximum);
    attributes.put_shortest("training.decoupled-min-lr", options.decoupled_rate->minimum);
  }
  attributes.merge(attributes_of(options.lr_schedule));
  attributes.merge(attributes_of(options.optimizer));
  if (options.weight_decay_ramp) {
    attributes.merge(attributes_of(*options.weight_decay_ramp, options.lr_schedule.by_samples));
  }
  attributes.merge(attributes_of(options.loss_scale));
  return attributes;
}

Attributes attributes_of(const parallel::Fp8Options& options) {
  Attributes attributes;
  if (!options.used) return attributes;
  attributes.put("training.fp8-format", options.hybrid ? "hybrid" : "e4m3");
  attributes.put("training.fp8-recipe", options.recipe, fp8_recipes);
  attributes.put("training.fp8-margin", options.margin);
  if (options.recipe == parallel::Fp8Recipe::delayed) {
    attributes.put("training.fp8-amax-history-len", options.history);
    attributes.put("training.fp8-amax-compute-algo", options.largest_of_history ? "max" : "most_recent");
  }
  if (!options.weight_gradients) attributes.put("training.no-fp8-wgrad", "true");
  if (options.first_layers > 0) attributes.put("training.num-layers-at-start-in-bf16", options.first_layers);
  if (options.last_layers > 0) attributes.put("training.num-layers-at-end-in-bf16", options.last_layers);
  return attributes;
}

std::optional<DecoupledRate> decoupled_rate_from(const Attributes& attributes) {
  if (!attributes.contains("training.decoupled-lr")) return std::nullopt;
  return DecoupledRate{attributes.get<double>("training.decoupled-lr"),
                       attributes.get<double>("training.decoupled-min-lr")};
}

}  // namespace trireme::train

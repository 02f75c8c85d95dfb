#include "io/megatron/megatron_arguments.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/model/fields.hpp"

namespace trireme::io {
namespace {

using model::ModelConfig;

/// Options of a run, by name. Names differ between versions; absent options have their defaults. Collects unsupported
/// values in `problems`.
class RunOptions {
 public:
  using Names = std::initializer_list<std::string_view>;
  RunOptions(const PickleValue& arguments, std::vector<std::string>& problems)
      : arguments_(arguments), problems_(problems) {}

  /// Returns the value of the first of `names` that is present and not None.
  std::optional<PickleValue> value(Names names) const {
    for (const std::string_view name : names) {
      const auto found = arguments_.find(name);
      if (found && !found->is_none()) return found;
    }
    return std::nullopt;
  }
  bool has(Names names) const { return value(names).has_value(); }
  std::int64_t integer(Names names, std::int64_t otherwise) const {
    const auto found = value(names);
    if (!found) return otherwise;
    if (found->is(PickleKind::integer) && found->integer() >= 0 && found->integer() <= max_size) {
      return found->integer();
    }
    return refuse(names, "a size", *found), otherwise;
  }
  double number(Names names, double otherwise) const {
    const auto found = value(names);
    if (!found) return otherwise;
    if (found->is(PickleKind::integer)) return static_cast<double>(found->integer());
    if (found->is(PickleKind::real)) return found->real();
    return refuse(names, "a number", *found), otherwise;
  }
  bool flag(Names names, bool otherwise) const {
    const auto found = value(names);
    if (!found) return otherwise;
    if (found->is(PickleKind::boolean)) return found->integer() != 0;
    return refuse(names, "true or false", *found), otherwise;
  }
  std::string text(Names names, const char* otherwise) const {
    const auto found = value(names);
    if (!found) return otherwise;
    if (found->is(PickleKind::text)) return std::string(found->text());
    return refuse(names, "a text", *found), otherwise;
  }
  /// Returns whether this version has the option, possibly None.
  bool contains(const char* name) const { return arguments_.find(name).has_value(); }
  /// Records a problem if an option is set to anything except None, false and 0.
  void absent(const char* name, const char* reason) const {
    const auto found = value({name});
    const bool off = !found || (found->is(PickleKind::real) && found->real() == 0) ||
                     ((found->is(PickleKind::boolean) || found->is(PickleKind::integer)) && found->integer() == 0);
    if (!off) add(fmt::format("{}: {}", name, reason));
  }
  void add(std::string problem) const { problems_.push_back(std::move(problem)); }

 private:
  static constexpr std::int64_t max_size = std::int64_t{1} << 40;  // `validate` checks the full shape later
  void refuse(Names names, const char* expected, const PickleValue& found) const {
    add(fmt::format("{} is {}, not {}", *names.begin(), found.description(), expected));
  }
  const PickleValue& arguments_;
  std::vector<std::string>& problems_;
};

/// Reads a field from a present option. A flag has the sense of the option or, with `is_member`, of the member.
void read_field(const RunOptions& options, const model::Field& field, std::string_view name, bool is_member,
                ModelConfig& config) {
  if (field.is_list) return;  // for experts alone, which are refused
  if (!is_member && field.is_flag()) {
    if (options.flag({name}, false)) field.set(config, field.flag_value());
  } else if (!field.names.empty()) {
    const std::string word = options.text({name}, "");
    if (const auto index = field.index_of(word)) return field.set(config, *index);
    options.add(fmt::format("{} is '{}': there are {}", name, shortened(word), field.names_text()));
  } else if (std::holds_alternative<double>(field.get(config))) {
    field.set(config, options.number({name}, 0));
  } else if (std::holds_alternative<bool>(field.get(config))) {
    field.set(config, options.flag({name}, false));
  } else {
    field.set(config, options.integer({name}, 1));
  }
}

/// Reads the fields of the table that apply to the model, by the names of their options.
void read_fields(const RunOptions& options, ModelConfig& config) {
  for (const model::Field& field : model::fields()) {
    if (field.help.empty() || (field.needs.met != nullptr && !field.needs.met(config))) continue;
    for (const std::string_view name : split(field.megatron, ',')) {
      if (options.has({name})) read_field(options, field, name, true, config);
    }
    // The first name takes precedence, so it is read last.
    const std::vector<std::string_view> names = split(field.option, ',');
    for (auto option = names.rbegin(); option != names.rend(); ++option) {
      std::string name(*option);
      std::ranges::replace(name, '-', '_');
      if (options.has({name})) read_field(options, field, name, false, config);
    }
  }
}

void read_positions(const RunOptions& options, ModelConfig& config, MegatronModel& model) {
  const bool rotary = options.flag({"use_rotary_position_embeddings"}, false);
  const std::string kind = options.text({"position_embedding_type"}, rotary ? "rope" : "learned_absolute");
  const bool yarn = kind == "yarn";
  if (kind == "rope" || yarn || rotary) {
    config.position_embedding = model::PositionEmbedding::rope;
  } else if (kind == "alibi") {
    config.position_embedding = model::PositionEmbedding::alibi;
  } else if (kind != "learned_absolute") {
    return options.add(fmt::format(
        "position_embedding_type is '{}': supported are learned_absolute, rope, alibi and yarn", shortened(kind)));
  }
  if (config.position_embedding != model::PositionEmbedding::rope) return;
  options.absent("no_rope_freq", "rotary positions apply to all layers");
  if (options.flag({"rotary_interleaved"}, false)) model.rotary = exchange::RotaryLayout::interleaved;
  if (yarn) {
    config.rotary_scaling = {model::RotaryScalingKind::yarn, 1, 4096};
    if (!options.flag({"yarn_correction_range_round_to_int"}, true)) {
      options.add("yarn_correction_range_round_to_int is False: only rounded ranges of channels are supported");
    }
  } else if (options.flag({"use_rope_scaling"}, false)) {
    config.rotary_scaling = model::RotaryScaling::llama3(8);
  }
}

void read_window(const RunOptions& options, ModelConfig& config) {
  const auto window = options.value({"window_size"});
  if (!window) return;
  const auto is_integer = [](const PickleValue& value) { return value.is(PickleKind::integer); };
  const bool is_pair = (window->is(PickleKind::tuple) || window->is(PickleKind::list)) && window->size() == 2 &&
                       is_integer(window->item(0)) && is_integer(window->item(1));
  if (!is_pair) return options.add(fmt::format("window_size is {}, not two numbers", window->description()));
  const std::int64_t left = window->item(0).integer(), right = window->item(1).integer();
  if (left < -1 || right < -1 || right > 0) {
    return options.add(fmt::format("window_size is ({}, {}): attention must be causal", left, right));
  }
  config.window.left = left;
  const auto skipped = options.value({"window_attn_skip_freq"});
  if (!skipped || !config.window.any()) return;
  if (is_integer(*skipped) && skipped->integer() > 0) {
    config.window = model::AttentionWindow::every(left, skipped->integer(), config.layers);
    return;
  }
  bool is_list = skipped->is(PickleKind::list) && std::cmp_greater_equal(skipped->size(), config.layers);
  std::string layers;
  for (int layer = 0; is_list && layer < config.layers; ++layer) {
    const PickleValue item = skipped->item(static_cast<std::size_t>(layer));
    is_list = is_integer(item) || item.is(PickleKind::boolean);
    layers += item.integer() == 0 ? '0' : '1';
  }
  if (!is_list) {
    return options.add(
        fmt::format("window_attn_skip_freq is {}, neither a number above 0 nor a list with a number for each layer",
                    skipped->description()));
  }
  config.window = model::AttentionWindow::of_layers(left, std::move(layers));
}

/// Returns whether the legacy models, not Megatron Core, compute the layers. Versions before the core lack all three
/// options; in the first versions with both, the core is opt-in.
bool uses_legacy_models(const RunOptions& options) {
  if (options.contains("use_legacy_models")) return options.flag({"use_legacy_models"}, false);
  return !options.contains("deprecated_use_mcore_models") && !options.flag({"use_mcore_models"}, false);
}

void read_activation(const RunOptions& options, ModelConfig& config) {
  if (const std::string glu = options.text({"glu_activation"}, "swiglu"); glu != "swiglu") {
    options.add(fmt::format("glu_activation is '{}': only SwiGLU gates are supported", shortened(glu)));
  } else if (options.has({"glu_activation"})) {
    config.gated = true;
  }
  options.absent("quick_geglu", "only SwiGLU gates are supported");
  options.absent("glu_linear_offset", "only SwiGLU gates are supported");
  options.absent("activation_func_clamp_value", "clamped activations are not supported");
  // The fused bias-GELU kernel and Transformer Engine's GELU use the tanh approximation; torch's GELU is exact.
  const bool tanh = options.flag({"bias_gelu_fusion"}, true) || options.flag({"use_te_activation_func"}, false) ||
                    options.flag({"use_transformer_engine_op_fuser"}, false) ||
                    (options.flag({"openai_gelu"}, false) && uses_legacy_models(options));
  config.activation = tanh ? Activation::gelu_tanh : Activation::gelu_erf;
}

void refuse_other_models(const RunOptions& options) {
  options.absent("num_experts", "experts of Megatron-LM's checkpoints are not imported");
  options.absent("multi_latent_attention", "latent attention is not supported");
  options.absent("mtp_num_layers", "modules that predict further tokens are not imported");
  options.absent("heterogeneous_layers_config_path", "layers of different shapes are not supported");
  options.absent("is_hybrid_model", "hybrid models are not supported");
  options.absent("hybrid_layer_pattern", "hybrid models are not supported");
  options.absent("hybrid_override_pattern", "hybrid models are not supported");
  options.absent("apply_residual_connection_post_layernorm", "post-norm residuals are not supported");
  options.absent("attention_output_gate", "gated attention is not supported");
  options.absent("qk_l2_norm", "QK norm without weights is not supported");
  options.absent("experimental_attention_variant", "only softmax attention is supported");
  options.absent("linear_attention_freq", "only softmax attention is supported");
  options.absent("enable_mhc_connections", "hyper-connections are not supported");
  options.absent("use_mup", "muP is not supported");
  if (const std::string softmax = options.text({"softmax_type"}, "vanilla"); softmax != "vanilla") {
    options.add(fmt::format("softmax_type is '{}': only vanilla softmax is supported", shortened(softmax)));
  }
}

}  // namespace

MegatronModel megatron_model(const PickleValue& arguments, model::ModelFamily family, const std::string& path) {
  std::vector<std::string> problems;
  const RunOptions options(arguments, problems);
  TRIREME_CHECK(arguments.calls("argparse Namespace") || arguments.is(PickleKind::dict) ||
                    arguments.calls("copy_reg _reconstructor") || arguments.calls("types SimpleNamespace"),
                DataError, "{} has {} instead of the run's options", path, arguments.description());
  MegatronModel model;
  ModelConfig& config = model.config;
  config.family = family;
  if (!options.has({"num_layers", "encoder_num_layers"})) options.add("num_layers is missing");
  for (const char* name : {"hidden_size", "num_attention_heads", "max_position_embeddings"}) {
    if (!options.has({name})) options.add(fmt::format("{} is missing", name));
  }
  config.hidden_dropout = config.attention_dropout = 0;
  read_positions(options, config, model);
  read_activation(options, config);
  read_fields(options, config);
  // YaRN rotates all channels of a head.
  if (config.rotary_scaling.kind == model::RotaryScalingKind::yarn) {
    config.rotary_percent = 1;
    config.rotary_scaling.interpolation = 1;
  }
  if (!options.has({"ffn_hidden_size"})) config.ffn_hidden = 4 * config.hidden;
  if (!options.flag({"group_query_attention"}, false)) config.query_groups = 0;
  if (config.query_groups == config.heads) config.query_groups = 0;
  if (config.heads > 0 && config.kv_channels * config.heads == config.hidden) config.kv_channels = 0;
  read_window(options, config);
  if (config.is_bert()) {
    // Only the layers use the fused GELU.
    model.has_two_gelus = config.activation == Activation::gelu_tanh && !options.flag({"openai_gelu"}, false);
  }
  refuse_other_models(options);
  const std::int64_t padded = model.padded_vocabulary = options.integer({"padded_vocab_size"}, 0);
  config.vocabulary = options.integer({"vocab_size"}, padded);
  model.vocabulary_is_padded = !options.has({"vocab_size"});
  if (config.vocabulary == 0) options.add("padded_vocab_size is missing");
  if (padded != 0 && config.vocabulary > padded) options.add("vocab_size is more than padded_vocab_size");
  model.tensor_size = options.integer({"tensor_model_parallel_size", "model_parallel_size"}, 1);
  model.pipeline_size = options.integer({"pipeline_model_parallel_size"}, 1);
  if (problems.empty()) {
    try {
      model::validate(config);
    } catch (const ConfigError& error) {
      problems.emplace_back(error.what());
    }
  }
  TRIREME_CHECK(problems.empty(), DataError, "{} describes a model that cannot be imported:\n  {}", path,
                fmt::join(problems, "\n  "));
  return model;
}

}  // namespace trireme::io

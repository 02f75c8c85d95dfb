#include "io/megatron/megatron_arguments.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "src/base/check.hpp"
#include "src/base/shortened.hpp"

namespace trireme::io {
namespace {

using model::ModelConfig;

/// Options of a run, by name. Versions call some by other names; an option that a version lacks has its default.
/// Collects what does not fit.
class RunOptions {
 public:
  using Names = std::initializer_list<const char*>;
  RunOptions(const PickleValue& arguments, std::vector<std::string>& problems)
      : arguments_(arguments), problems_(problems) {}

  /// Returns the first of `names` that is there and not None.
  std::optional<PickleValue> value(Names names) const {
    for (const char* name : names) {
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
  std::int64_t required(Names names) const {
    if (!has(names)) add(fmt::format("{} is missing", *names.begin()));
    return integer(names, 1);
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
  /// Refuses an option that is given: not None, false, 0 or 1.
  void absent(const char* name, const char* reason) const {
    const auto found = value({name});
    const bool off =
        !found || ((found->is(PickleKind::boolean) || found->is(PickleKind::integer)) && found->integer() == 0);
    if (!off) add(fmt::format("{}: {}", name, reason));
  }
  void add(std::string problem) const { problems_.push_back(std::move(problem)); }

 private:
  static constexpr std::int64_t max_size = std::int64_t{1} << 40;  // the shape is checked as a whole later
  void refuse(Names names, const char* expected, const PickleValue& found) const {
    add(fmt::format("{} is {}, not {}", *names.begin(), found.description(), expected));
  }
  const PickleValue& arguments_;
  std::vector<std::string>& problems_;
};

void read_positions(const RunOptions& options, ModelConfig& config, MegatronModel& model) {
  const bool rotary = options.flag({"use_rotary_position_embeddings"}, false);
  const std::string kind = options.text({"position_embedding_type"}, rotary ? "rope" : "learned_absolute");
  if (kind == "rope" || rotary) {
    config.position_embedding = model::PositionEmbedding::rope;
  } else if (kind != "learned_absolute") {
    return options.add(
        fmt::format("position_embedding_type is '{}': there are learned_absolute and rope", shortened(kind)));
  }
  if (config.position_embedding != model::PositionEmbedding::rope) return;
  config.rotary_base = options.number({"rotary_base"}, 10000);
  config.rotary_percent = options.number({"rotary_percent"}, 1);
  config.rotary_scaling.interpolation = options.number({"rotary_seq_len_interpolation_factor"}, 1);
  if (options.flag({"rotary_interleaved"}, false)) model.rotary = exchange::RotaryLayout::interleaved;
  if (options.flag({"use_rope_scaling"}, false)) {
    const double interpolation = config.rotary_scaling.interpolation;
    config.rotary_scaling = model::RotaryScaling::llama3(options.number({"rope_scaling_factor"}, 8));
    config.rotary_scaling.interpolation = interpolation;
  }
}

void read_activation(const RunOptions& options, ModelConfig& config) {
  config.swiglu = options.flag({"swiglu"}, false);
  if (const std::string glu = options.text({"glu_activation"}, "swiglu"); glu != "swiglu") {
    options.add(fmt::format("glu_activation is '{}': gates are those of SwiGLU here", shortened(glu)));
  } else if (options.has({"glu_activation"})) {
    config.swiglu = true;
  }
  // The fused kernel of bias and GELU is the approximation by tanh; without it GELU is exact.
  const bool exact = options.flag({"erf_gelu"}, false) || !options.flag({"bias_gelu_fusion"}, true);
  config.activation = options.flag({"squared_relu"}, false)            ? Activation::squared_relu
                      : exact && !options.flag({"openai_gelu"}, false) ? Activation::gelu_erf
                                                                       : Activation::gelu_tanh;
}

void refuse_other_models(const RunOptions& options) {
  options.absent("num_experts", "there are no experts here");
  options.absent("multi_latent_attention", "attention keeps whole keys and values here");
  options.absent("mtp_num_layers", "one token is predicted at a time here");
  options.absent("heterogeneous_layers_config_path", "all layers have one shape here");
  options.absent("is_hybrid_model", "all layers are transformer layers here");
  options.absent("hybrid_layer_pattern", "all layers are transformer layers here");
  options.absent("hybrid_override_pattern", "all layers are transformer layers here");
  options.absent("apply_residual_connection_post_layernorm", "a GPT's residuals bypass the norms here");
  options.absent("attention_output_gate", "attention has no gate here");
  if (const std::string softmax = options.text({"softmax_type"}, "vanilla"); softmax != "vanilla") {
    options.add(fmt::format("softmax_type is '{}': softmax has no offset here", shortened(softmax)));
  }
}

}  // namespace

MegatronModel megatron_model(const PickleValue& arguments, const std::string& path) {
  std::vector<std::string> problems;
  const RunOptions options(arguments, problems);
  TRIREME_CHECK(arguments.calls("argparse Namespace") || arguments.is(PickleKind::dict) ||
                    arguments.calls("copy_reg _reconstructor") || arguments.calls("types SimpleNamespace"),
                DataError, "{} has {} in the place of the run's options", path, arguments.description());
  MegatronModel model;
  ModelConfig& config = model.config;
  config.layers = static_cast<int>(
      std::min<std::int64_t>(options.required({"num_layers", "encoder_num_layers"}), model::max_layers + 1));
  config.hidden = options.required({"hidden_size"});
  config.heads = options.required({"num_attention_heads"});
  config.swiglu = options.flag({"swiglu"}, false);
  config.ffn_hidden = options.integer({"ffn_hidden_size"}, 4 * config.hidden);
  config.max_positions = options.required({"max_position_embeddings"});
  const std::int64_t channels = options.integer({"kv_channels"}, 0);
  config.kv_channels = config.heads > 0 && channels * config.heads == config.hidden ? 0 : channels;
  if (options.flag({"group_query_attention"}, false)) {
    const std::int64_t groups = options.required({"num_query_groups"});
    config.query_groups = groups == config.heads ? 0 : groups;
  }
  read_positions(options, config, model);
  read_activation(options, config);
  const std::string norm = options.text({"normalization"}, "LayerNorm");
  if (norm == "RMSNorm") {
    config.normalization = model::Normalization::rms_norm;
  } else if (norm != "LayerNorm") {
    options.add(fmt::format("normalization is '{}': there are LayerNorm and RMSNorm", shortened(norm)));
  }
  config.norm_epsilon = options.number({"norm_epsilon", "layernorm_epsilon"}, 1e-5);
  config.norm_1p = options.flag({"apply_layernorm_1p"}, false);
  config.linear_bias = !options.flag({"disable_bias_linear"}, !options.flag({"add_bias_linear"}, true));
  config.qkv_bias = options.flag({"add_qkv_bias"}, false);
  config.qk_norm = options.flag({"qk_layernorm"}, false);
  config.tied_output = !options.flag({"untie_embeddings_and_output_weights"}, false);
  config.hidden_dropout = options.number({"hidden_dropout"}, 0);
  config.attention_dropout = options.number({"attention_dropout"}, 0);
  if (const auto window = options.value({"window_size"})) {
    const bool whole = window->is(PickleKind::tuple) && window->size() == 2 && window->item(0).integer() == -1;
    if (!whole) options.add("window_size: models with windows of attention are not read");
  }
  refuse_other_models(options);
  const std::int64_t padded = options.integer({"padded_vocab_size"}, 0);
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

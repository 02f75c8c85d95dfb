#include "src/model/model_config.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "src/base/check.hpp"

namespace trireme::model {
namespace {

constexpr Choice<Architecture> architecture_names[] = {{"gpt2", Architecture::gpt2},
                                                       {"llama", Architecture::llama},
                                                       {"gpt", Architecture::gpt},
                                                       {"bert", Architecture::bert}};
constexpr Choice<Activation> gelu_names[] = {
    {"tanh", Activation::gelu_tanh}, {"erf", Activation::gelu_erf}, {"squared-relu", Activation::squared_relu}};
constexpr Choice<Normalization> normalization_names[] = {{"LayerNorm", Normalization::layer_norm},
                                                         {"RMSNorm", Normalization::rms_norm}};
constexpr Choice<PositionEmbedding> position_names[] = {{"learned_absolute", PositionEmbedding::learned_absolute},
                                                        {"rope", PositionEmbedding::rope}};
constexpr Choice<RotaryScalingKind> scaling_names[] = {
    {"none", RotaryScalingKind::none}, {"llama3", RotaryScalingKind::llama3}, {"yarn", RotaryScalingKind::yarn}};
constexpr Choice<ModelOutput> output_names[] = {{"pretraining", ModelOutput::pretraining},
                                                {"classes", ModelOutput::classes},
                                                {"choices", ModelOutput::choices},
                                                {"spans", ModelOutput::spans}};
constexpr Choice<NormPlacement> placement_names[] = {{"pre", NormPlacement::pre}, {"post", NormPlacement::post}};

/// Elements of the matrices of one layer.
std::int64_t matrix_elements(const ModelConfig& config) {
  const std::int64_t h = config.hidden;
  const std::int64_t kv = config.kv_heads() * config.head_dim();
  return 2 * config.attention_columns() * h + 2 * kv * h + (config.expansion() + config.ffn_hidden) * h;
}

}  // namespace

std::int64_t default_ffn_hidden(std::int64_t hidden, bool swiglu) {
  return swiglu ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
}

void validate(const ModelConfig& config) {
  std::string problems;
  const auto expect = [&](bool holds, const std::string& problem) {
    if (!holds) problems += (problems.empty() ? "" : "; ") + problem;
  };
  expect(config.layers >= 1 && config.layers <= max_layers,
         fmt::format("<num_layers> {} must be between 1 and {}", config.layers, max_layers));
  expect(config.kv_channels >= 0, fmt::format("<kv_channels> {} must be at least 1", config.kv_channels));
  expect(config.hidden >= 1 && config.heads >= 1 && (config.kv_channels > 0 || config.hidden % config.heads == 0),
         fmt::format("<hidden_size> {} must be a multiple of <num_attention_heads> {}, or <kv_channels> be given",
                     config.hidden, config.heads));
  expect(config.query_groups >= 0 && (config.query_groups == 0 || config.heads % config.query_groups == 0),
         fmt::format("<num_query_groups> {} must divide <num_attention_heads> {}", config.query_groups, config.heads));
  expect(config.ffn_hidden >= 1, fmt::format("<ffn_hidden_size> {} must be at least 1", config.ffn_hidden));
  expect(config.max_positions >= 1,
         fmt::format("<max_position_embeddings> {} must be at least 1", config.max_positions));
  expect(config.vocabulary >= 1, fmt::format("<vocab_size> {} must be at least 1", config.vocabulary));
  expect(config.hidden_dropout >= 0 && config.hidden_dropout < 1,
         fmt::format("<hidden_dropout> {} must be from 0 to less than 1", config.hidden_dropout));
  expect(config.attention_dropout >= 0 && config.attention_dropout < 1,
         fmt::format("<attention_dropout> {} must be from 0 to less than 1", config.attention_dropout));
  expect(config.norm_epsilon >= 0, fmt::format("<layernorm_epsilon> {} must not be negative", config.norm_epsilon));
  if (config.position_embedding == PositionEmbedding::rope && config.heads >= 1) {
    expect(config.rotary_base > 0, fmt::format("<rotary_base> {} must be above 0", config.rotary_base));
    expect(config.rotary_percent > 0 && config.rotary_percent <= 1,
           fmt::format("<rotary_percent> {} must be above 0 and at most 1", config.rotary_percent));
    expect(config.rotary_channels() >= 2 && config.rotary_channels() % 2 == 0,
           fmt::format("<rotary_percent> {} of heads of {} channels rotates {}: it must be an even number above 0",
                       config.rotary_percent, config.head_dim(), config.rotary_channels()));
  }
  if (const RotaryScaling& scaling = config.rotary_scaling; scaling.kind != RotaryScalingKind::none) {
    const bool yarn = scaling.kind == RotaryScalingKind::yarn;
    expect(config.position_embedding == PositionEmbedding::rope, "scaled frequencies need rotary positions");
    expect(scaling.factor >= 1 && scaling.factor <= 1e6,
           fmt::format("{} {} must be from 1 to 1e6", yarn ? "<yarn_rotary_scaling_factor>" : "<rope_scaling_factor>",
                       scaling.factor));
    expect(scaling.positions >= 1,
           fmt::format("<yarn_original_max_position_embeddings> {} must be at least 1", scaling.positions));
    expect(scaling.slow_turns > 0 && scaling.slow_turns < scaling.fast_turns,
           fmt::format("<yarn_beta_slow> {} must be above 0 and below <yarn_beta_fast> {}", scaling.slow_turns,
                       scaling.fast_turns));
    expect(scaling.mscale >= 0 && scaling.mscale_all_dim >= 0,
           fmt::format("<yarn_mscale> {} and <yarn_mscale_all_dim> {} must not be negative", scaling.mscale,
                       scaling.mscale_all_dim));
    expect(!yarn || config.rotary_base > 1,
           fmt::format("<rotary_base> {} must be above 1 where YaRN scales the frequencies", config.rotary_base));
  }
  expect(config.rotary_scaling.interpolation >= 1 && config.rotary_scaling.interpolation <= 1e6,
         fmt::format("<rotary_seq_len_interpolation_factor> {} must be from 1 to 1e6",
                     config.rotary_scaling.interpolation));
  expect(config.rotary_scaling.interpolation == 1 || (config.position_embedding == PositionEmbedding::rope &&
                                                      config.rotary_scaling.kind != RotaryScalingKind::yarn),
         fmt::format("<rotary_seq_len_interpolation_factor> {} needs rotary positions that YaRN does not scale",
                     config.rotary_scaling.interpolation));
  expect(!config.window.any() || config.causal(),
         fmt::format("<window_size> {}: windows are for causal models, and a BERT sees both sides: leave it out",
                     config.window.left));
  expect(
      config.window.left <= std::numeric_limits<std::int32_t>::max(),
      fmt::format("<window_size> {} must be at most {}", config.window.left, std::numeric_limits<std::int32_t>::max()));
  expect(config.window.layers.empty() || (std::ssize(config.window.layers) == config.layers &&
                                          config.window.layers.find_first_not_of("01") == std::string::npos),
         fmt::format("<window_attn_skip_freq>: a list of {} layers, '{}', for a model of {}: give 0 or 1 for each",
                     config.window.layers.size(), config.window.layers, config.layers));
  expect(config.is_bert() || !config.post_norm(),
         "<apply_residual_connection_post_layernorm> is an arrangement of BERT: a GPT's layers are pre-norm");
  expect(!config.is_bert() || config.tied_output,
         "<untie_embeddings_and_output_weights>: the output of a BERT is tied to its token embedding");
  expect(config.classes >= 2, fmt::format("{} classes of a sample must be at least 2", config.classes));
  expect(config.is_bert() || config.output != ModelOutput::spans,
         "answers are spans of a BERT: a GPT's positions do not see the text after them");
  TRIREME_CHECK(problems.empty(), ConfigError, "{}", problems);
  // Beyond any machine, and before a product of sizes leaves 64 bits.
  const double h = static_cast<double>(config.hidden);
  const double columns = static_cast<double>(config.heads) * static_cast<double>(config.head_dim());
  const double parameters =
      h * (config.layers * (4 * columns + 3 * static_cast<double>(config.ffn_hidden)) +
           2 * static_cast<double>(config.vocabulary) + static_cast<double>(config.max_positions));
  TRIREME_CHECK(parameters < 1e16, ConfigError,
                "<num_layers> {} <hidden_size> {} <num_attention_heads> {} of {} channels <ffn_hidden_size> {} "
                "<vocab_size> {} <max_position_embeddings> {}: {:.1g} parameters are more than any machine holds",
                config.layers, config.hidden, config.heads, config.head_dim(), config.ffn_hidden, config.vocabulary,
                config.max_positions, parameters);
}

void check_sequence_length(const ModelConfig& config, std::int64_t sequence_length) {
  TRIREME_CHECK(sequence_length <= config.max_positions, ConfigError,
                "<seq_length> {} is longer than the model's {} positions: choose a shorter <seq_length>, or train with "
                "<max_position_embeddings> {}",
                sequence_length, config.max_positions, sequence_length);
}

std::int64_t parameter_count(const ModelConfig& config) {
  const std::int64_t h = config.hidden;
  const std::int64_t norm_vectors = config.normalization == Normalization::rms_norm ? 1 : 2, norm = norm_vectors * h;
  const std::int64_t qkv_biases = config.attention_columns() + 2 * config.kv_heads() * config.head_dim();
  // Biases of both outputs, and of the feed-forward block.
  const std::int64_t other_biases = 2 * h + config.expansion();
  const std::int64_t layer = matrix_elements(config) + 2 * norm + (config.has_qkv_bias() ? qkv_biases : 0) +
                             (config.linear_bias ? other_biases : 0) +
                             (config.qk_norm ? 2 * norm_vectors * config.head_dim() : 0);
  const std::int64_t positions =
      config.position_embedding == PositionEmbedding::learned_absolute ? config.max_positions : 0;
  const std::int64_t common =
      ((config.has_tied_head() || !config.predicts_tokens() ? 1 : 2) * config.vocabulary + positions) * h +
      config.layers * layer + norm + (config.has_token_types() ? 2 * h : 0);
  const std::int64_t pooler = h * h + h;
  if (!config.predicts_tokens()) {
    return common + (config.has_task_pooler() ? pooler : 0) + config.task_outputs() * (h + 1);
  }
  if (!config.is_bert()) return common;
  const std::int64_t masked_token_head = h * h + h + norm + config.vocabulary;
  return common + masked_token_head + (config.binary_head ? pooler + 2 * h + 2 : 0);
}

double model_flops(const ModelConfig& config, std::int64_t batch, std::int64_t s) {
  const auto h = static_cast<double>(config.hidden);
  const auto sequence = static_cast<double>(s);
  double keys = 0;  // keys of a query, summed over the layers
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::int64_t left = config.window.of(layer);
    keys += static_cast<double>(left < 0 ? s : std::min(s, left + 1));
  }
  // Multiply-adds a token, forward: the matrices, scores and weighted sums, the logits. Times 2 for FLOPs, times 3 for
  // forward and the two halves of backward.
  const double per_token = config.layers * static_cast<double>(matrix_elements(config)) +
                           2 * keys * static_cast<double>(config.attention_columns()) +
                           (config.predicts_tokens() ? static_cast<double>(config.vocabulary) * h : 0) +
                           (config.is_bert() && config.predicts_tokens() ? h * h : 0);
  return 6 * static_cast<double>(batch) * sequence * per_token;
}

Architecture architecture_of(const ModelConfig& config) {
  if (config.is_bert()) return Architecture::bert;
  const bool layer_norm = config.normalization == Normalization::layer_norm;
  const bool rope = config.position_embedding == PositionEmbedding::rope;
  const bool grouped = config.kv_heads() != config.heads;
  const bool gelu = !config.swiglu && config.activation != Activation::squared_relu;
  const bool own_head_size = config.attention_columns() != config.hidden;
  if (config.window.any()) return Architecture::gpt;
  if (layer_norm && !config.norm_1p && !config.qk_norm && !rope && gelu && config.linear_bias && config.tied_output &&
      !grouped && !own_head_size) {
    return Architecture::gpt2;
  }
  const bool llama = !layer_norm && !config.norm_1p && !config.qk_norm && rope && config.rotary_percent == 1 &&
                     config.swiglu && !config.has_qkv_bias();
  return llama ? Architecture::llama : Architecture::gpt;
}

Attributes attributes_of(const ModelConfig& config) {
  Attributes attributes;
  attributes.put("model.kind", architecture_of(config), architecture_names);
  attributes.put("model.layers", config.layers);
  attributes.put("model.hidden", config.hidden);
  attributes.put("model.heads", config.heads);
  attributes.put("model.ffn_hidden", config.ffn_hidden);
  attributes.put("model.max_positions", config.max_positions);
  attributes.put("model.vocabulary", config.vocabulary);
  attributes.put("model.gelu", config.activation, gelu_names);
  attributes.put("model.norm_epsilon", config.norm_epsilon);
  attributes.put("model.kv_heads", config.kv_heads());
  attributes.put("model.normalization", config.normalization, normalization_names);
  attributes.put("model.positions", config.position_embedding, position_names);
  attributes.put("model.rotary_base", config.rotary_base);
  attributes.put("model.rotary_percent", config.rotary_percent);
  attributes.put("model.swiglu", config.swiglu);
  attributes.put("model.linear_bias", config.linear_bias);
  attributes.put("model.tied_output", config.tied_output);
  attributes.put("model.kv_channels", config.head_dim());
  attributes.put("model.qkv_bias", config.has_qkv_bias());
  attributes.put("model.norm_1p", config.norm_1p);
  attributes.put("model.qk_norm", config.qk_norm);
  const RotaryScaling& scaling = config.rotary_scaling;
  attributes.put("model.rotary_scaling", scaling.kind, scaling_names);
  if (scaling.kind != RotaryScalingKind::none) {
    attributes.put("model.rotary_factor", scaling.factor);
    attributes.put("model.rotary_positions", scaling.positions);
    attributes.put("model.rotary_slow_turns", scaling.slow_turns);
    attributes.put("model.rotary_fast_turns", scaling.fast_turns);
    attributes.put("model.rotary_mscale", scaling.mscale);
    attributes.put("model.rotary_mscale_all_dim", scaling.mscale_all_dim);
  }
  if (scaling.interpolation != 1) attributes.put("model.rotary_interpolation", scaling.interpolation);
  if (config.window.any()) {
    attributes.put("model.window", config.window.left);
    attributes.put("model.window_layers", config.window.layers.empty() ? "all" : config.window.layers);
  }
  if (config.is_bert()) {
    attributes.put("model.norm_placement", config.norm_placement, placement_names);
    attributes.put("model.binary_head", config.binary_head);
  }
  if (!config.predicts_tokens()) {
    attributes.put("model.output", config.output, output_names);
    attributes.put("model.classes", config.classes);
  }
  return attributes;
}

ModelConfig config_from(const Attributes& attributes) {
  const Architecture architecture = attributes.get("model.kind", architecture_names);
  ModelConfig config;
  config.layers = attributes.get<int>("model.layers");
  config.hidden = attributes.get<std::int64_t>("model.hidden");
  config.heads = attributes.get<std::int64_t>("model.heads");
  config.ffn_hidden = attributes.get<std::int64_t>("model.ffn_hidden");
  config.max_positions = attributes.get<std::int64_t>("model.max_positions");
  config.vocabulary = attributes.get<std::int64_t>("model.vocabulary");
  config.activation = attributes.get("model.gelu", gelu_names);
  config.norm_epsilon = attributes.get<double>("model.norm_epsilon");
  // Checkpoints from before there were other models than GPT-2 lack the rest.
  if (attributes.contains("model.kv_heads")) {
    const auto kv_heads = attributes.get("model.kv_heads", std::int64_t{1});
    config.query_groups = kv_heads == config.heads ? 0 : kv_heads;
    config.normalization = attributes.get("model.normalization", normalization_names);
    config.position_embedding = attributes.get("model.positions", position_names);
    config.rotary_base = attributes.get<double>("model.rotary_base");
    config.rotary_percent = attributes.get<double>("model.rotary_percent");
    config.swiglu = attributes.get<bool>("model.swiglu");
    config.linear_bias = attributes.get<bool>("model.linear_bias");
    config.tied_output = attributes.get<bool>("model.tied_output");
  }
  // Older checkpoints have heads of hidden / heads channels, and none of the rest.
  if (attributes.contains("model.kv_channels")) {
    config.kv_channels = attributes.get("model.kv_channels", std::int64_t{1});
    config.qkv_bias = attributes.get<bool>("model.qkv_bias");
    config.norm_1p = attributes.get<bool>("model.norm_1p");
    config.qk_norm = attributes.get<bool>("model.qk_norm");
    RotaryScaling& scaling = config.rotary_scaling;
    scaling.kind = attributes.get("model.rotary_scaling", scaling_names);
    if (scaling.kind != RotaryScalingKind::none) {
      scaling.factor = attributes.get<double>("model.rotary_factor");
      scaling.positions = attributes.get<std::int64_t>("model.rotary_positions");
      scaling.slow_turns = attributes.get<double>("model.rotary_slow_turns");
      scaling.fast_turns = attributes.get<double>("model.rotary_fast_turns");
      scaling.mscale = attributes.get<double>("model.rotary_mscale");
      scaling.mscale_all_dim = attributes.get<double>("model.rotary_mscale_all_dim");
    }
    if (attributes.contains("model.rotary_interpolation")) {
      scaling.interpolation = attributes.get<double>("model.rotary_interpolation");
    }
  }
  if (architecture == Architecture::bert) {
    config.family = ModelFamily::bert;
    config.norm_placement = attributes.get("model.norm_placement", placement_names);
    config.binary_head = attributes.get<bool>("model.binary_head");
  }
  if (attributes.contains("model.window")) {
    config.window.left = attributes.get("model.window", std::int64_t{0});
    const auto layers = attributes.get<std::string>("model.window_layers");
    if (layers != "all") config.window.layers = layers;
  }
  if (attributes.contains("model.output")) {
    config.output = attributes.get("model.output", output_names);
    config.classes = attributes.get("model.classes", std::int64_t{2});
  }
  try {
    validate(config);
  } catch (const ConfigError& error) {
    attributes.fail(fmt::format("the attributes model.* describe an impossible model: {}", error.what()));
  }
  // Older checkpoints name every model gpt2.
  attributes.require(architecture == Architecture::gpt2 || architecture == architecture_of(config), "model.kind",
                     "the architecture that the other attributes model.* describe");
  return config;
}

}  // namespace trireme::model

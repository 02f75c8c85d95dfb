#include "src/model/model_config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "src/base/check.hpp"
#include "src/model/fields.hpp"

namespace trireme::model {
namespace {

constexpr Choice<Architecture> architecture_names[] = {{"gpt2", Architecture::gpt2},
                                                       {"llama", Architecture::llama},
                                                       {"gpt", Architecture::gpt},
                                                       {"bert", Architecture::bert}};

/// Calls `expect(holds, problem)` for each rule about experts.
template <class Expect>
void check_experts(const ModelConfig& config, const Expect& expect) {
  const ExpertConfig& experts = config.experts;
  expect(!config.linear_bias,
         fmt::format("<num_experts> {}: experts have no biases, so linear layers must have none, nor those of a dense "
                     "model that is upcycled: give <disable_bias_linear>",
                     experts.count));
  expect(experts.per_token <= experts.count,
         fmt::format("<moe_router_topk> {} is more than <num_experts> {}", experts.per_token, experts.count));
  expect(experts.per_token > 1 || experts.score != RouterScore::softmax || experts.pre_softmax,
         "<moe_router_topk> 1: the softmax over one chosen expert is always 1: give <moe_router_pre_softmax>");
  expect(!experts.router_bias || experts.score == RouterScore::sigmoid,
         "<moe_router_enable_expert_bias>: the bias is added to sigmoid scores: give <moe_router_score_function> "
         "sigmoid");
  if (!experts.layers.empty()) {
    expect(experts.layers.find('1') != std::string::npos,
           fmt::format("<moe_layer_freq>: '{}' leaves no layer with experts: leave out <num_experts>", experts.layers));
  }
  for (const BalanceTerm& term : experts.balance) {
    expect(std::ranges::count(experts.balance, term.loss, &BalanceTerm::loss) == 1 && term.coefficient >= 0,
           "<moe_router_load_balancing_type> and <moe_aux_loss_coeff>: give as many coefficients as losses, and each "
           "loss once");
  }
  expect(experts.balance.size() == 1 || std::ranges::count(experts.balance, BalanceLoss::none, &BalanceTerm::loss) == 0,
         "<moe_router_load_balancing_type> none excludes other losses");
  if (experts.groups < 1 || experts.groups_per_token < 1 || experts.per_token < 1) return;  // out of range
  expect(experts.count % experts.groups == 0,
         fmt::format("<moe_router_num_groups> {} must divide <num_experts> {}", experts.groups, experts.count));
  expect(experts.groups_per_token <= experts.groups,
         fmt::format("<moe_router_group_topk> {} is more than <moe_router_num_groups> {}", experts.groups_per_token,
                     experts.groups));
  expect(experts.per_token % experts.groups_per_token == 0,
         fmt::format("<moe_router_group_topk> {} must divide <moe_router_topk> {}", experts.groups_per_token,
                     experts.per_token));
  const std::int64_t of_group = experts.count / experts.groups;
  expect(experts.groups == 1 || experts.per_token <= experts.groups_per_token * of_group,
         fmt::format("<moe_router_topk> {}: a token's groups, <moe_router_group_topk> {}, have only {} experts",
                     experts.per_token, experts.groups_per_token, experts.groups_per_token * of_group));
}

/// Calls `expect(holds, problem)` for each rule about latent attention.
template <class Expect>
void check_latent(const ModelConfig& config, const Expect& expect) {
  const LatentAttention& latent = config.latent;
  expect(config.causal() && config.position_embedding == PositionEmbedding::rope,
         "<multi_latent_attention> needs a GPT with rotary positions: give <position_embedding_type> rope");
  expect(!config.has_qkv_bias(),
         "<multi_latent_attention>: its linear layers have no biases: give <disable_bias_linear>, without "
         "<add_qkv_bias>");
  expect(
      config.kv_heads() == config.heads,
      fmt::format("<num_query_groups> {} with <multi_latent_attention>: each of {} heads has its own keys and values",
                  config.query_groups, config.heads));
  expect(config.kv_channels == 0 || config.kv_channels == config.head_dim(),
         fmt::format("<kv_channels> {} with <multi_latent_attention>: a head has <qk_head_dim> {} + "
                     "<qk_pos_emb_head_dim> {} channels: leave it out",
                     config.kv_channels, latent.head_dim, latent.rotary_dim));
  expect(config.rotary_percent == 1,
         fmt::format("<rotary_percent> {} with <multi_latent_attention>: give <qk_pos_emb_head_dim> instead",
                     config.rotary_percent));
  expect(!config.qk_norm_across_heads,
         "<qk_layernorm_across_heads> with <multi_latent_attention>: <qk_layernorm> normalises its latents");
  expect(latent.value_dim <= config.head_dim(),
         fmt::format("<v_head_dim> {} must be at most <qk_head_dim> {} + <qk_pos_emb_head_dim> {}", latent.value_dim,
                     latent.head_dim, latent.rotary_dim));
}

}  // namespace

double LowRankAdapters::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilised ? std::sqrt(r) : r);
}

bool LowRankAdapters::adapt(std::string_view prefix) const {
  struct Place {
    std::string_view block, name;
    std::size_t target;
  };
  constexpr Place places[] = {{".attn.", ".qkv", 0},    {".attn.", ".q", 0},    {".attn.", ".kv", 0},
                              {".attn.", ".q_down", 0}, {".attn.", ".q_up", 0}, {".attn.", ".kv_down", 0},
                              {".attn.", ".kv_up", 0},  {".attn.", ".proj", 1}, {".mlp.", ".fc", 2},
                              {".mlp.", ".proj", 3}};
  return any() && std::ranges::any_of(places, [&](const Place& place) {
           return targets[place.target] && prefix.ends_with(place.name) && prefix.find(place.block) != prefix.npos;
         });
}

double ModelConfig::score_scale() const {
  const double plain = 1 / std::sqrt(static_cast<double>(query_scalar == 0 ? head_dim() : query_scalar));
  if (!latent.used || rotary_scaling.kind != RotaryScalingKind::yarn) return plain;
  const double magnitude = rotary_scaling.yarn_magnitude(rotary_scaling.mscale_all_dim);
  return plain * magnitude * magnitude;
}

RotaryEmbedding ModelConfig::rotary_of(int layer) const {
  if (rotary_base_local > 0 && window.of(layer) >= 0) return {rotary_channels(), rotary_base_local};
  return rotary_scaling.embedding(rotary_channels(), rotary_base);
}

std::int64_t default_ffn_hidden(std::int64_t hidden, bool gated) {
  return gated ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
}

void validate(const ModelConfig& config) {
  std::string problems;
  const auto expect = [&](bool holds, const std::string& problem) {
    if (!holds) problems += (problems.empty() ? "" : "; ") + problem;
  };
  for (const Field& field : fields()) {
    if (field.stored_if != nullptr ? !field.stored_if(config) : field.is_default(config)) continue;
    const std::optional<double> number = field.number(config);
    expect(!number || field.range.contains(*number),
           fmt::format("{} {} must be {}", field.tag(), field.text(config), field.range.text()));
  }
  expect(config.hidden >= 1 && config.heads >= 1 && (config.kv_channels > 0 || config.hidden % config.heads == 0),
         fmt::format("<hidden_size> {} must be a multiple of <num_attention_heads> {}, or <kv_channels> be given",
                     config.hidden, config.heads));
  expect(config.query_groups <= 0 || config.heads % config.query_groups == 0,
         fmt::format("<num_query_groups> {} must divide <num_attention_heads> {}", config.query_groups, config.heads));
  const bool rope = config.position_embedding == PositionEmbedding::rope;
  if (rope && config.heads >= 1) {
    expect(
        config.rotary_channels() >= 2 && config.rotary_channels() % 2 == 0,
        config.latent.used
            ? fmt::format("<qk_pos_emb_head_dim> {} must be an even number above 0", config.latent.rotary_dim)
            : fmt::format("<rotary_percent> {} of heads of {} channels rotates {}: it must be an even number above 0",
                          config.rotary_percent, config.head_dim(), config.rotary_channels()));
  }
  const RotaryScaling& scaling = config.rotary_scaling;
  const bool yarn = scaling.kind == RotaryScalingKind::yarn;
  if (scaling.kind != RotaryScalingKind::none) {
    expect(rope, "scaled frequencies need rotary positions");
    expect(scaling.slow_turns > 0 && scaling.slow_turns < scaling.fast_turns,
           fmt::format("<yarn_beta_slow> {} must be above 0 and below <yarn_beta_fast> {}", scaling.slow_turns,
                       scaling.fast_turns));
    expect(!yarn || config.rotary_base > 1,
           fmt::format("<rotary_base> {} must be above 1 where YaRN scales the frequencies", config.rotary_base));
  }
  expect(scaling.interpolation == 1 || (rope && !yarn),
         fmt::format("<rotary_seq_len_interpolation_factor> {} needs rotary positions that YaRN does not scale",
                     scaling.interpolation));
  expect(config.rotary_base_local == 0 || (rope && config.window.any()),
         fmt::format("<rotary_base_local> {} needs rotary positions and layers with a window: give <window_size>",
                     config.rotary_base_local));
  expect(config.gate == Activation::silu || config.gated, "<geglu> needs a gated feed-forward block");
  expect(
      !config.sandwich_norm || !(config.post_branch_norm || config.parallel_residual || config.post_norm()),
      "<sandwich_norm> with <post_branch_norm>, <parallel_residual> or <apply_residual_connection_post_layernorm>: a "
      "layer has one arrangement of norms");
  expect(!config.window.any() || config.causal(),
         fmt::format("<window_size> {}: windows are for causal models, but a BERT attends to both sides: leave it out",
                     config.window.left));
  for (const auto& [field, list] :
       {std::pair<const char*, const std::string&>{"<window_attn_skip_freq>", config.window.layers},
        {"<moe_layer_freq>", config.experts.layers}}) {
    expect(list.empty() || (std::ssize(list) == config.layers && list.find_first_not_of("01") == std::string::npos),
           fmt::format("{}: a list of {} layers, '{}', for a model of {}: give 0 or 1 for each", field, list.size(),
                       list, config.layers));
  }
  if (config.latent.used) check_latent(config, expect);
  if (config.experts.any()) check_experts(config, expect);
  expect(!config.adapters.any() || config.predicts_tokens(),
         "<lora_rank>: adapters are for models that predict tokens: leave it out");
  expect(config.ahead.depths == 0 || (config.causal() && !config.embedding_norm &&
                                      config.position_embedding != PositionEmbedding::learned_absolute),
         fmt::format("<mtp_num_layers> {} needs a GPT whose embeddings have neither positions nor norms: give "
                     "<position_embedding_type> rope, without <embed_layernorm>",
                     config.ahead.depths));
  expect(config.is_bert() || !config.post_norm(),
         "<apply_residual_connection_post_layernorm> is an arrangement of BERT: a GPT's layers are pre-norm");
  const bool alibi = config.position_embedding == PositionEmbedding::alibi;
  expect(!config.is_bert() || !(alibi || config.embedding_norm),
         "<position_embedding_type> alibi and <embed_layernorm> are for models that predict the next token: a BERT "
         "attends to both sides, and has its own norm of embeddings");
  expect(!config.parallel_residual || !config.post_norm(),
         "<parallel_residual> with <apply_residual_connection_post_layernorm>: parallel layers are pre-norm");
  expect(!config.post_branch_norm || !(config.parallel_residual || config.post_norm()),
         "<post_branch_norm> with <parallel_residual> or <apply_residual_connection_post_layernorm>: a layer has one "
         "arrangement of norms");
  expect(!config.qk_norm_across_heads || config.qk_norm, "<qk_layernorm_across_heads> needs <qk_layernorm>");
  expect(!config.shared_norm || config.parallel_residual,
         "<shared_norm>: only the branches of a parallel layer share a norm: give <parallel_residual>");
  expect(!config.is_bert() || config.tied_output,
         "<untie_embeddings_and_output_weights>: the output of a BERT is tied to its token embedding");
  expect(config.is_bert() || config.output != ModelOutput::spans,
         "answers as spans need a BERT: a GPT's positions do not attend to later text");
  expect(config.output != ModelOutput::choices || config.classes > 1, "a question needs at least 2 choices");
  TRIREME_CHECK(problems.empty(), ConfigError, "{}", problems);
  // Keeps products of sizes within 64 bits.
  const double h = static_cast<double>(config.hidden);
  const double columns = static_cast<double>(config.heads) * static_cast<double>(config.head_dim());
  const double ffn = static_cast<double>(config.ffn_hidden) + static_cast<double>(config.experts.shared_hidden) +
                     static_cast<double>(config.experts.count) * static_cast<double>(config.expert_ffn_hidden());
  const double parameters = h * (config.layers * (4 * columns + 3 * ffn) + 2 * static_cast<double>(config.vocabulary) +
                                 static_cast<double>(config.max_positions));
  TRIREME_CHECK(parameters < 1e16, ConfigError,
                "<num_layers> {} <hidden_size> {} <num_attention_heads> {} of {} channels <ffn_hidden_size> {} "
                "<num_experts> {} <vocab_size> {} <max_position_embeddings> {}: {:.1g} parameters are more than any "
                "machine holds",
                config.layers, config.hidden, config.heads, config.head_dim(), config.ffn_hidden, config.experts.count,
                config.vocabulary, config.max_positions, parameters);
}

void check_sequence_length(const ModelConfig& config, std::int64_t sequence_length) {
  TRIREME_CHECK(sequence_length <= config.max_positions, ConfigError,
                "<seq_length> {} is longer than the model's {} positions: choose a shorter <seq_length>, or train with "
                "<max_position_embeddings> {}",
                sequence_length, config.max_positions, sequence_length);
}

Architecture architecture_of(const ModelConfig& config) {
  if (config.is_bert()) return Architecture::bert;
  const ModelConfig ours = canonical(config);
  // Returns whether the model differs from `like` only in sizes and in the attributes `free`.
  const auto is_like = [&](const ModelConfig& like, auto free) {
    return std::ranges::all_of(fields(), [&](const Field& field) {
      const bool is_free = field.attribute.empty() ||
                           (field.role == FieldRole::size && field.attribute != "kv_channels") ||
                           field.attribute == "norm_epsilon" || field.attribute == "output" ||
                           field.attribute == "classes" || free(field.attribute);
      return is_free || field.get(ours) == field.get(like);
    });
  };
  const bool is_gelu = ours.activation != Activation::squared_relu;
  if (is_gelu && is_like({}, [](std::string_view name) { return name == "gelu"; })) return Architecture::gpt2;
  ModelConfig llama;
  llama.kv_channels = ours.kv_channels;
  llama.normalization = Normalization::rms_norm;
  llama.position_embedding = PositionEmbedding::rope;
  llama.gated = true;
  llama.linear_bias = false;
  const auto is_free = [](std::string_view name) {
    return name == "kv_heads" || name == "tied_output" || (name.starts_with("rotary_") && name != "rotary_percent");
  };
  return is_like(llama, is_free) ? Architecture::llama : Architecture::gpt;
}

Attributes attributes_of(const ModelConfig& config) {
  const ModelConfig stored = resolved(config);
  Attributes attributes;
  attributes.put("model.kind", architecture_of(config), architecture_names);
  for (const Field& field : fields()) {
    const bool is_stored =
        !field.since.empty() || (field.stored_if != nullptr ? field.stored_if(config) : !field.is_default(config));
    if (!is_stored || field.attribute.empty()) continue;
    const FieldValue value = field.get(stored);
    const auto* const number = std::get_if<double>(&value);
    const std::string text = number != nullptr ? fmt::format("{:.17g}", *number) : field.text(stored);
    attributes.put(field.key(), text.empty() ? "all" : text);
  }
  return attributes;
}

ModelConfig config_from(const Attributes& attributes) {
  const Architecture architecture = attributes.get("model.kind", architecture_names);
  ModelConfig config;
  if (architecture == Architecture::bert) config.family = ModelFamily::bert;
  for (const Field& field : fields()) {
    const bool is_stored = !field.since.empty()         ? attributes.contains(fmt::format("model.{}", field.since))
                           : field.stored_if != nullptr ? field.stored_if(config)
                                                        : attributes.contains(field.key());
    if (is_stored && !field.attribute.empty()) field.set(config, field.read(attributes));
  }
  if (config.query_groups == config.heads) config.query_groups = 0;
  try {
    validate(config);
  } catch (const ConfigError& error) {
    attributes.fail(fmt::format("the attributes model.* describe an invalid model: {}", error.what()));
  }
  // Older checkpoints name every model gpt2.
  attributes.require(architecture == Architecture::gpt2 || architecture == architecture_of(config), "model.kind",
                     "the architecture that the other attributes model.* describe");
  return config;
}

AttentionWindow AttentionWindow::every(std::int64_t left, std::int64_t frequency, int layers) {
  std::string pattern;
  for (std::int64_t layer = 1; layer <= layers; ++layer) pattern += layer % frequency == 0 ? '0' : '1';
  return of_layers(left, std::move(pattern));
}

AttentionWindow AttentionWindow::of_layers(std::int64_t left, std::string pattern) {
  if (pattern.find('1') == std::string::npos) return {};
  if (pattern.find('0') == std::string::npos) pattern.clear();
  return {left, std::move(pattern)};
}

std::vector<BalanceTerm> ExpertConfig::balance_terms() const {
  std::vector<BalanceTerm> terms;
  std::ranges::copy_if(balance, std::back_inserter(terms),
                       [](const BalanceTerm& term) { return term.loss != BalanceLoss::none && term.coefficient > 0; });
  return terms;
}

bool ExpertConfig::balances_by(BalanceLoss loss) const {
  return std::ranges::count(balance_terms(), loss, &BalanceTerm::loss) > 0;
}

std::string ExpertConfig::every(std::int64_t frequency, int layers) {
  std::string pattern;
  for (std::int64_t layer = 0; layer < layers; ++layer) pattern += layer % frequency == 0 ? '1' : '0';
  return pattern;
}

RotaryEmbedding RotaryScaling::embedding(std::int64_t channels, double base) const {
  RotaryEmbedding rotary{channels, base};
  rotary.interpolation = interpolation;
  if (kind == RotaryScalingKind::none || channels == 0) return rotary;
  rotary.factor = factor;
  const double positions_a_turn = static_cast<double>(positions) / (2 * std::numbers::pi);
  if (kind == RotaryScalingKind::llama3) {
    rotary.kept.by_frequency = positions_a_turn / (fast_turns - slow_turns);
    rotary.kept.offset = -slow_turns / (fast_turns - slow_turns);
    return rotary;
  }
  const auto size = static_cast<double>(channels);
  const auto pair_of = [&](double turns) { return size * std::log(positions_a_turn / turns) / (2 * std::log(base)); };
  const double first = std::max(std::floor(pair_of(fast_turns)), 0.0);
  double last = std::min(std::ceil(pair_of(slow_turns)), size - 1);
  if (last == first) last += 0.001;  // a step instead of a ramp, as first published
  rotary.kept.offset = last / (last - first);
  rotary.kept.by_pair = -1 / (last - first);
  rotary.magnitude = yarn_magnitude(mscale) / yarn_magnitude(mscale_all_dim);
  return rotary;
}

double RotaryScaling::yarn_magnitude(double x) const { return 0.1 * x * std::log(factor) + 1; }

}  // namespace trireme::model

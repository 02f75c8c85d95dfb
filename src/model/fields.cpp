#include "src/model/fields.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::model {
namespace {

/// Gets or sets the nested member at the end of `path`.
template <auto... path>
FieldValue get_at(const ModelConfig& config) {
  const auto& value = (config.*....*path);
  using T = std::remove_cvref_t<decltype(value)>;
  if constexpr (std::is_enum_v<T> || (std::is_integral_v<T> && !std::is_same_v<T, bool>)) {
    return static_cast<std::int64_t>(value);
  } else {
    return value;
  }
}
template <auto... path>
void set_at(ModelConfig& config, const FieldValue& value) {
  auto& member = (config.*....*path);
  using T = std::remove_cvref_t<decltype(member)>;
  if constexpr (std::is_same_v<T, int>) {  // clamps: a value that does not fit stays out of range
    member = static_cast<int>(std::min<std::int64_t>(std::get<std::int64_t>(value), std::numeric_limits<int>::max()));
  } else if constexpr (std::is_enum_v<T>) {
    member = static_cast<T>(std::get<std::int64_t>(value));
  } else {
    member = std::get<T>(value);
  }
}

constexpr std::string_view activation_names[] = {"", "tanh", "erf", "", "squared-relu"};
constexpr std::string_view gate_names[] = {"", "tanh", "", "", "", "silu"};
constexpr std::string_view gelu_names[] = {"", "tanh", "erf"};
constexpr std::string_view normalization_names[] = {"LayerNorm", "RMSNorm"};
constexpr std::string_view position_names[] = {"learned_absolute", "rope", "alibi"};
constexpr std::string_view scaling_names[] = {"none", "llama3", "yarn"};
constexpr std::string_view placement_names[] = {"pre", "post"};
constexpr std::string_view output_names[] = {"pretraining", "classes", "choices", "spans"};
constexpr std::string_view family_names[] = {"gpt", "bert"};
constexpr std::string_view score_names[] = {"softmax", "sigmoid"};
constexpr std::string_view balance_names[] = {"aux_loss", "seq_aux_loss", "global_aux_loss", "none"};
constexpr std::string_view target_names[] = {"all-linear", "qkv", "proj", "fc1", "fc2"};
constexpr std::string_view router_type_names[] = {"", "fp32"};
constexpr std::string_view drop_names[] = {"probs", "position"};

bool is_bert(const ModelConfig& config) { return config.is_bert(); }
bool is_task(const ModelConfig& config) { return !config.predicts_tokens(); }
bool rotates(const ModelConfig& config) { return config.position_embedding == PositionEmbedding::rope; }
bool is_scaled(const ModelConfig& config) { return config.rotary_scaling.kind != RotaryScalingKind::none; }
bool is_llama3(const ModelConfig& config) { return config.rotary_scaling.kind == RotaryScalingKind::llama3; }
bool is_yarn(const ModelConfig& config) { return config.rotary_scaling.kind == RotaryScalingKind::yarn; }
bool has_alibi(const ModelConfig& config) { return config.position_embedding == PositionEmbedding::alibi; }
bool has_experts(const ModelConfig& config) { return config.experts.any(); }
bool has_router_bias(const ModelConfig& config) { return config.experts.router_bias; }
bool has_qk_norm(const ModelConfig& config) { return config.qk_norm; }
bool has_ahead(const ModelConfig& config) { return config.ahead.depths > 0; }
bool is_latent(const ModelConfig& config) { return config.latent.used; }
bool has_adapters(const ModelConfig& config) { return config.adapters.any(); }
bool is_parallel(const ModelConfig& config) { return config.parallel_residual; }

constexpr Need needs_rotary = {rotates, "<position_embedding_type> rope"};
constexpr Need needs_yarn = {is_yarn, "<position_embedding_type> yarn and <yarn_rotary_scaling_factor>"};
constexpr Need needs_latent = {is_latent,
                               "<multi_latent_attention>, <position_embedding_type> rope and <disable_bias_linear>"};
constexpr Need needs_experts = {has_experts, "<num_experts> and <disable_bias_linear>"};
constexpr Need needs_adapters = {has_adapters, "<lora_rank>"};
constexpr Need needs_bert = {is_bert, "a BERT: give <model> bert-336m or <model_type> bert"};

/// Values of the rows of ExpertConfig::balance. A term that only one of them has lacks the other's part, which
/// `validate` refuses.
std::string coefficients_of(const std::vector<BalanceTerm>& terms) {
  std::vector<std::string> texts;
  for (const BalanceTerm& term : terms) texts.push_back(fmt::format("{}", term.coefficient));
  return fmt::format("{}", fmt::join(texts, ","));
}
void set_coefficients(std::vector<BalanceTerm>& terms, std::string_view text) {
  const std::vector<std::string_view> items = split(text, ',');
  TRIREME_CHECK(!items.empty(), ConfigError, "the list of coefficients of balance losses is empty");
  terms.resize(items.size(), {terms.front().loss});
  for (std::size_t i = 0; i < items.size(); ++i) terms[i].coefficient = parse_number<double>(items[i]).value_or(NAN);
}
std::string losses_of(const std::vector<BalanceTerm>& terms) {
  std::vector<std::string_view> texts;
  for (const BalanceTerm& term : terms) texts.push_back(balance_names[static_cast<std::size_t>(term.loss)]);
  return fmt::format("{}", fmt::join(texts, ","));
}
void set_losses(std::vector<BalanceTerm>& terms, std::string_view text) {
  const std::vector<std::string_view> items = split(text, ',');
  TRIREME_CHECK(!items.empty(), ConfigError, "the list of balance losses is empty; its least is 'none'");
  const std::size_t before = terms.size();
  terms.resize(items.size(), {.coefficient = NAN});
  for (std::size_t i = 0; i < items.size(); ++i) {
    terms[i].loss = static_cast<BalanceLoss>(std::ranges::find(balance_names, items[i]) - std::begin(balance_names));
  }
  if (items.size() < before) terms.back().coefficient = NAN;
}

std::string targets_of(const LowRankAdapters& adapters) {
  std::vector<std::string_view> texts;
  for (std::size_t i = 0; i < adapters.targets.size(); ++i) {
    if (adapters.targets[i]) texts.push_back(target_names[i + 1]);
  }
  return fmt::format("{}", fmt::join(texts, ","));
}
void set_targets(LowRankAdapters& adapters, std::string_view text) {
  const std::vector<std::string_view> items = split(text, ',');
  const bool all = std::ranges::find(items, target_names[0]) != items.end();
  for (std::size_t i = 0; i < adapters.targets.size(); ++i) {
    adapters.targets[i] = all || std::ranges::find(items, target_names[i + 1]) != items.end();
  }
}

constexpr double max_factor = 1e6;
constexpr double max_adapter_rank = 1 << 16;
constexpr double max_depths = 16;

/// Marks the rotary frequencies, which dedicated code reads and writes.
constexpr ConfigKeys rope_keys = {"", "rope_parameters.", ""};

#define TRIREME_AT(...) .get = get_at<__VA_ARGS__>, .set = set_at<__VA_ARGS__>
using C = ModelConfig;
using A = LowRankAdapters;
using E = ExpertConfig;
using L = LatentAttention;
using M = MultiTokenPrediction;
using R = RotaryScaling;

// clang-format off
constexpr Field table[] = {
    {TRIREME_AT(&C::family), .names = family_names, .option = "model-type", .log = ", BERT"},
    {TRIREME_AT(&C::layers), .role = FieldRole::size, .range = between(1, max_layers), .attribute = "layers",
     .since = "kind", .option = "num-layers", .help = "Transformer layers.",
     .keys = {"n_layer", "num_hidden_layers", "num_hidden_layers"}, .megatron = "encoder_num_layers"},
    {TRIREME_AT(&C::hidden), .role = FieldRole::size, .range = countable(), .attribute = "hidden", .since = "kind",
     .option = "hidden-size", .help = "Width of the residual stream.",
     .keys = {"n_embd", "hidden_size", "hidden_size"}},
    {TRIREME_AT(&C::heads), .role = FieldRole::size, .range = countable(), .attribute = "heads", .since = "kind",
     .option = "num-attention-heads", .help = "Attention heads.",
     .keys = {"n_head", "num_attention_heads", "num_attention_heads"}},
    {TRIREME_AT(&C::kv_channels), .role = FieldRole::size, .range = countable(), .attribute = "kv_channels",
     .since = "kv_channels", .option = "kv-channels",
     .help = "Channels of a head; default the preset's, else hidden size / attention heads.",
     .keys = {"", "head_dim", ""}},
    {TRIREME_AT(&C::ffn_hidden), .role = FieldRole::size, .range = between(1, 4 * countable().max),
     .attribute = "ffn_hidden", .since = "kind", .option = "ffn-hidden-size",
     .help = "Width of the feed-forward block; default 4 x hidden size, with <swiglu> or <geglu> two thirds of that down to a"
             " multiple of 64.",
     .keys = {"n_inner", "intermediate_size", "intermediate_size"}},
    {TRIREME_AT(&C::vocabulary), .role = FieldRole::size, .range = countable(), .attribute = "vocabulary",
     .since = "kind", .option = "vocab-size",
     .help = "True size of the vocabulary; default a GPT preset's, else the corpus'.",
     .keys = {"vocab_size", "vocab_size", "vocab_size"}},
    {TRIREME_AT(&C::max_positions), .role = FieldRole::size, .range = countable(), .attribute = "max_positions",
     .since = "kind", .option = "max-position-embeddings",
     .help = "Longest sequence; default the preset's, else the sequence length.",
     .keys = {"n_positions", "max_position_embeddings", "max_position_embeddings"}},
    {TRIREME_AT(&C::activation), .names = activation_names, .attribute = "gelu", .since = "kind",
     .log = ", activation {}", .keys = {"activation_function", "", "hidden_act"}},
    {TRIREME_AT(&C::activation), .names = gelu_names, .option = "gelu",
     .help = "Form of the activation; default tanh."},
    {TRIREME_AT(&C::activation), .names = activation_names, .option = "squared-relu",
     .help = "Activation max(x, 0)^2 instead of GELU.", .flag = static_cast<int>(Activation::squared_relu)},
    {TRIREME_AT(&C::hidden_dropout), .role = FieldRole::training, .range = between(0, 0.99),
     .option = "hidden-dropout", .placeholder = "P",
     .help = "Probability of dropping an element of a hidden state; default the preset's, else 0.1."},
    {TRIREME_AT(&C::attention_dropout), .role = FieldRole::training, .range = between(0, 0.99),
     .option = "attention-dropout", .placeholder = "P",
     .help = "Probability of dropping an attention weight; default the preset's, else 0.1."},
    {TRIREME_AT(&C::norm_epsilon), .range = at_least(0), .attribute = "norm_epsilon", .since = "kind",
     .option = "layernorm-epsilon,norm-epsilon",
     .help = "Added to the variance in normalisation; default the preset's, else 1e-5.",
     .keys = {"layer_norm_epsilon", "rms_norm_eps", "layer_norm_eps"}},
    {TRIREME_AT(&C::query_groups), .range = countable(), .attribute = "kv_heads", .since = "kv_heads",
     .option = "num-query-groups", .help = "Heads of keys and values with <group_query_attention>; default 1.",
     .log = ", {} query groups", .keys = {"", "num_key_value_heads", ""}},
    {TRIREME_AT(&C::latent, &L::used), .attribute = "latent_attention", .option = "multi-latent-attention",
     .help = "Compute keys and values, and with <q_lora_rank> queries, from latents (DeepSeek-V2).",
     .log = ", latent attention"},
    {TRIREME_AT(&C::latent, &L::query_rank), .range = between(0, countable().max), .attribute = "query_rank",
     .stored_if = is_latent, .option = "q-lora-rank",
     .help = "Width of the latent of queries; default 0, none.", .needs = needs_latent, .log = ", queries of rank {}"},
    {TRIREME_AT(&C::latent, &L::kv_rank), .range = countable(), .attribute = "kv_rank", .stored_if = is_latent,
     .option = "kv-lora-rank", .help = "Width of the latent of keys and values; default 32.", .needs = needs_latent,
     .log = ", keys and values of rank {}", .logs_default = true},
    {TRIREME_AT(&C::latent, &L::head_dim), .range = countable(), .attribute = "latent_head_dim",
     .stored_if = is_latent, .option = "qk-head-dim",
     .help = "Latent attention: channels of a head of queries and keys that do not rotate; default 128.",
     .needs = needs_latent, .log = ", {} plain", .logs_default = true},
    {TRIREME_AT(&C::latent, &L::rotary_dim), .range = countable(), .attribute = "latent_rotary_dim",
     .stored_if = is_latent, .option = "qk-pos-emb-head-dim",
     .help = "Latent attention: further channels of these heads, which rotate; default 64.", .needs = needs_latent,
     .log = " and {} rotating channels", .logs_default = true},
    {TRIREME_AT(&C::latent, &L::value_dim), .range = countable(), .attribute = "value_dim", .stored_if = is_latent,
     .option = "v-head-dim", .help = "Latent attention: channels of a head of values; default 128.",
     .needs = needs_latent, .log = ", {} of values", .logs_default = true},
    {TRIREME_AT(&C::normalization), .names = normalization_names, .attribute = "normalization", .since = "kv_heads",
     .option = "normalization", .help = "Kind of normalisation; default LayerNorm.", .log = ", {}"},
    {TRIREME_AT(&C::norm_1p), .attribute = "norm_1p", .since = "kv_channels", .option = "apply-layernorm-1p",
     .help = "Store the weights of norms as their difference from 1, which 16-bit types round more finely.",
     .log = ", norm weights around 1", .megatron = "layernorm_zero_centered_gamma"},
    {TRIREME_AT(&C::position_embedding), .names = position_names, .attribute = "positions", .since = "kv_heads",
     .option = "position-embedding-type", .log = ", {} positions"},
    {TRIREME_AT(&C::position_embedding), .names = position_names, .option = "use-rotary-position-embeddings",
     .help = "The same as <position_embedding_type> rope.", .flag = static_cast<int>(PositionEmbedding::rope)},
    {TRIREME_AT(&C::rotary_base), .range = above(0), .attribute = "rotary_base", .since = "kv_heads",
     .option = "rotary-base", .help = "Base of the rotary frequencies; default 10000.", .needs = needs_rotary,
     .keys = rope_keys},
    {TRIREME_AT(&C::rotary_base_local), .range = above(0), .attribute = "rotary_base_local",
     .option = "rotary-base-local",
     .help = "Base of the rotary frequencies in layers with a window, which are never scaled; default <rotary_base>.",
     .needs = {rotates, "<position_embedding_type> rope and <window_size>"},
     .log = " of base {} in layers with a window"},
    {TRIREME_AT(&C::rotary_percent), .range = above(0, 1), .attribute = "rotary_percent", .since = "kv_heads",
     .option = "rotary-percent", .help = "Fraction of a head's channels that rotate; default 1.",
     .needs = needs_rotary},
    {TRIREME_AT(&C::rotary_scaling, &R::kind), .names = scaling_names, .attribute = "rotary_scaling",
     .since = "kv_channels", .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::factor), .range = between(1, max_factor), .attribute = "rotary_factor",
     .stored_if = is_llama3, .option = "rope-scaling-factor",
     .help = "Divides low frequencies with <use_rope_scaling>; default the preset's, else 8.",
     .needs = {is_llama3, "<use_rope_scaling> and <position_embedding_type> rope"}, .log = " scaled by {} (Llama 3.1)",
     .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::factor), .range = between(1, max_factor), .attribute = "rotary_factor",
     .stored_if = is_yarn, .option = "yarn-rotary-scaling-factor,rotary-scaling-factor",
     .help = "Times as many positions as in an earlier training, with <position_embedding_type> yarn.",
     .needs = {is_yarn, "<position_embedding_type> yarn"}, .log = " scaled by {} (YaRN)", .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::positions), .range = countable(), .attribute = "rotary_positions",
     .stored_if = is_scaled, .option = "yarn-original-max-position-embeddings,original-max-position-embeddings",
     .help = "YaRN: positions of the earlier training; default 4096.", .needs = needs_yarn, .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::slow_turns), .range = at_least(0), .attribute = "rotary_slow_turns",
     .stored_if = is_scaled, .option = "yarn-beta-slow",
     .help = "YaRN: frequencies of pairs of channels with at most as many turns in these positions are divided by "
             "the factor; default 1.",
     .needs = needs_yarn, .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::fast_turns), .range = at_least(0), .attribute = "rotary_fast_turns",
     .stored_if = is_scaled, .option = "yarn-beta-fast",
     .help = "YaRN: pairs of channels with as many turns in these positions keep their frequency; default 32.",
     .needs = needs_yarn, .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::mscale), .range = at_least(0), .attribute = "rotary_mscale",
     .stored_if = is_scaled, .option = "yarn-mscale,mscale",
     .help = "YaRN: queries and keys grow by (0.1 X ln factor + 1) / (0.1 Y ln factor + 1); default X 1.",
     .needs = needs_yarn, .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::mscale_all_dim), .range = at_least(0), .attribute = "rotary_mscale_all_dim",
     .stored_if = is_scaled, .option = "yarn-mscale-all-dim,mscale-all-dim", .placeholder = "Y",
     .help = "YaRN: Y of <yarn_mscale>; default 0.", .needs = needs_yarn, .keys = rope_keys},
    {TRIREME_AT(&C::rotary_scaling, &R::interpolation), .range = between(1, max_factor),
     .attribute = "rotary_interpolation", .option = "rotary-seq-len-interpolation-factor",
     .help = "Divide rotary positions by X, for sequences X times as long as in an earlier training.",
     .needs = needs_rotary, .log = " divided by {}", .keys = rope_keys},
    {TRIREME_AT(&C::window, &AttentionWindow::left), .range = between(-1, countable().max),
     .attribute = "window", .option = "window-size", .log = ", attention to {} positions before"},
    {TRIREME_AT(&C::window, &AttentionWindow::layers), .attribute = "window_layers",
     .stored_if = [](const ModelConfig& config) { return config.window.any(); }, .option = "window-attn-skip-freq",
     .log = " in layers {}"},
    {TRIREME_AT(&C::qk_norm), .attribute = "qk_norm", .since = "kv_channels", .option = "qk-layernorm",
     .help = "Normalise the channels of each head of queries and keys, by the kind of <normalization>; with"
             " <multi_latent_attention> the latents.",
     .log = ", normalised queries and keys"},
    {TRIREME_AT(&C::qk_norm_across_heads), .attribute = "qk_norm_across_heads", .option = "qk-layernorm-across-heads",
     .help = "Normalise the channels of all heads together, with <qk_layernorm>.",
     .needs = {has_qk_norm, "<qk_layernorm>"}, .log = " across heads"},
    {TRIREME_AT(&C::gated), .attribute = "swiglu", .since = "kv_heads", .option = "swiglu",
     .help = "Gated feed-forward block, silu(gate) x up, instead of GELU.", .log = ", SwiGLU"},
    {.get = get_at<&C::gate>,
     .set = [](C& config, const FieldValue& value) {
       config.gate = static_cast<Activation>(std::get<std::int64_t>(value));
       if (config.gate != Activation::silu) config.gated = true;
     },
     .names = gate_names, .attribute = "gate", .option = "geglu",
     .help = "Gated feed-forward block, gelu(gate) x up, with GELU's tanh form.",
     .flag = static_cast<int>(Activation::gelu_tanh), .log = " with GELU instead of SiLU (GeGLU)"},
    {TRIREME_AT(&C::sandwich_norm), .attribute = "sandwich_norm", .option = "sandwich-norm",
     .help = "Normalise the results of attention and feed-forward block before they are added, too, as Gemma 2 does.",
     .log = ", norms before and after each branch"},
    {TRIREME_AT(&C::scaled_embedding), .attribute = "scaled_embedding", .option = "scale-embeddings",
     .help = "Multiply token embeddings by the square root of the hidden size.", .log = ", scaled embeddings"},
    {TRIREME_AT(&C::embedding_norm), .attribute = "embedding_norm", .option = "embed-layernorm",
     .help = "Normalise the token embeddings, by the kind of <normalization>, as BLOOM does.",
     .log = ", normalised embeddings"},
    {TRIREME_AT(&C::scaled_alibi), .attribute = "scaled_alibi", .option = "scale-alibi",
     .help = "Divide the biases by distance by the square root of a head's channels, as Falcon does.",
     .needs = {has_alibi, "<position_embedding_type> alibi"}, .log = ", biases by distance divided by the root of a head's channels"},
    {TRIREME_AT(&C::query_scalar), .range = countable(), .attribute = "query_scalar",
     .option = "query-pre-attn-scalar",
     .help = "Divide attention scores by the square root of N; default the channels of a head.",
     .log = ", scores over the root of {}"},
    {TRIREME_AT(&C::attention_soft_cap), .range = above(0), .attribute = "attention_soft_cap",
     .option = "attn-logit-softcapping", .help = "Attention scores x become X tanh(x / X).",
     .log = ", scores capped at {}"},
    {TRIREME_AT(&C::logit_soft_cap), .range = above(0), .attribute = "logit_soft_cap",
     .option = "final-logit-softcapping", .help = "Logits x of tokens become X tanh(x / X).",
     .log = ", logits capped at {}"},
    {TRIREME_AT(&C::linear_bias), .attribute = "linear_bias", .since = "kv_heads", .option = "disable-bias-linear",
     .help = "Linear layers have no biases.", .log = ", no biases", .megatron = "add_bias_linear"},
    {TRIREME_AT(&C::qkv_bias), .attribute = "qkv_bias", .since = "kv_channels", .option = "add-qkv-bias",
     .help = "Queries, keys and values have biases, even with <disable_bias_linear> or a preset without biases.",
     .log = " but of Q, K and V"},
    {TRIREME_AT(&C::tied_output), .attribute = "tied_output", .since = "kv_heads",
     .option = "untie-embeddings-and-output-weights",
     .help = "Give the output its own matrix instead of the token embedding's.", .log = ", untied output",
     .keys = {"tie_word_embeddings", "tie_word_embeddings", ""}},
    {TRIREME_AT(&C::parallel_residual), .attribute = "parallel_residual", .option = "parallel-residual",
     .help = "Attention and feed-forward block read the same input; both results are added to it.",
     .log = ", parallel attention and feed-forward"},
    {TRIREME_AT(&C::shared_norm), .attribute = "shared_norm", .option = "shared-norm",
     .help = "Attention and feed-forward block read one norm's result, with <parallel_residual>.",
     .needs = {is_parallel, "<parallel_residual>"}, .log = " with one norm"},
    {TRIREME_AT(&C::post_branch_norm), .attribute = "post_branch_norm", .option = "post-branch-norm",
     .help = "Normalise the results of attention and feed-forward block before they are added, not their inputs.",
     .log = ", norms after branches"},
    {TRIREME_AT(&C::experts, &E::count), .range = between(1, max_experts), .attribute = "experts",
     .option = "num-experts", .help = "Experts of a layer, of which each token uses <moe_router_topk>; default none.",
     .log = ", {} experts"},
    {TRIREME_AT(&C::experts, &E::layers), .attribute = "expert_layers", .stored_if = has_experts,
     .option = "moe-layer-freq", .log = " in layers {}"},
    {TRIREME_AT(&C::experts, &E::per_token), .range = between(1, max_experts), .attribute = "experts_per_token",
     .stored_if = has_experts, .option = "moe-router-topk", .help = "Experts that compute a token; default 2.",
     .needs = needs_experts, .log = ", {} a token", .logs_default = true},
    {TRIREME_AT(&C::experts, &E::ffn_hidden), .range = between(0, 4 * countable().max),
     .attribute = "expert_ffn_hidden", .stored_if = has_experts, .option = "moe-ffn-hidden-size",
     .help = "Width of an expert; default <ffn_hidden_size>.", .needs = needs_experts, .log = " of width {}"},
    {TRIREME_AT(&C::experts, &E::shared_hidden), .range = between(0, 4 * countable().max),
     .attribute = "shared_hidden", .stored_if = has_experts, .option = "moe-shared-expert-intermediate-size",
     .help = "Width of a shared expert, which computes every token; default 0, none.", .needs = needs_experts,
     .log = ", a shared one of width {}"},
    {TRIREME_AT(&C::experts, &E::score), .names = score_names, .attribute = "router_score", .stored_if = has_experts,
     .option = "moe-router-score-function", .help = "Scores of experts from the router's logits; default softmax.",
     .needs = needs_experts, .log = ", {} scores"},
    {TRIREME_AT(&C::experts, &E::pre_softmax), .attribute = "router_pre_softmax", .stored_if = has_experts,
     .option = "moe-router-pre-softmax",
     .help = "Weights of a token's experts are their softmax over all experts, not over the chosen ones.",
     .needs = needs_experts, .log = ", softmax over all"},
    {TRIREME_AT(&C::experts, &E::scaling), .range = above(0), .attribute = "router_scaling", .stored_if = has_experts,
     .option = "moe-router-topk-scaling-factor", .help = "Multiplies the weights of a token's experts; default 1.",
     .needs = needs_experts, .log = ", weights times {}"},
    {TRIREME_AT(&C::experts, &E::groups), .range = between(1, max_experts), .attribute = "router_groups",
     .stored_if = has_experts, .option = "moe-router-num-groups",
     .help = "Groups of experts, of which each token uses <moe_router_group_topk>.", .needs = needs_experts,
     .log = ", {} groups of experts"},
    {TRIREME_AT(&C::experts, &E::groups_per_token), .range = between(1, max_experts),
     .attribute = "router_groups_per_token", .stored_if = has_experts, .option = "moe-router-group-topk",
     .help = "Groups of experts that a token uses, with <moe_router_num_groups>.", .needs = needs_experts,
     .log = ", {} a token"},
    {.get = [](const C& config) -> FieldValue { return std::int64_t{config.experts.fp32_router}; },
     .set = [](C& config, const FieldValue& value) {
       config.experts.fp32_router = std::get<std::int64_t>(value) != 0;
     },
     .names = router_type_names, .attribute = "router_type", .option = "moe-router-dtype",
     .help = "Type in which routers compute logits; default that of <dtype>.", .needs = needs_experts,
     .log = ", routers in {}"},
    {TRIREME_AT(&C::experts, &E::router_bias), .attribute = "router_bias", .option = "moe-router-enable-expert-bias",
     .help = "Choose experts by sigmoid scores plus a bias, which each update moves against their load.",
     .needs = {has_experts, "<moe_router_score_function> sigmoid, <num_experts> and <disable_bias_linear>"},
     .log = ", chosen with a bias"},
    {TRIREME_AT(&C::experts, &E::bias_update_rate), .role = FieldRole::training, .range = at_least(0),
     .stored_if = has_router_bias, .option = "moe-router-bias-update-rate",
     .help = "Change of the bias in an update, with <moe_router_enable_expert_bias>; default 1e-3.",
     .needs = {has_router_bias,
               "<moe_router_enable_expert_bias>, <moe_router_score_function> sigmoid, <num_experts> and "
               "<disable_bias_linear>"},
     .log = " that moves by {} an update"},
    {.get = [](const C& config) -> FieldValue { return coefficients_of(config.experts.balance); },
     .set = [](C& config, const FieldValue& value) {
       set_coefficients(config.experts.balance, std::get<std::string>(value));
     },
     .is_list = true, .role = FieldRole::training, .range = at_least(0), .stored_if = has_experts,
     .option = "moe-aux-loss-coeff", .placeholder = "X",
     .help = "Coefficients of the losses that balance the load of the experts, one each; default the preset's, else 0.",
     .needs = needs_experts, .log = ", balance loss x {}"},
    {.get = [](const C& config) -> FieldValue { return losses_of(config.experts.balance); },
     .set = [](C& config, const FieldValue& value) {
       set_losses(config.experts.balance, std::get<std::string>(value));
     },
     .is_list = true, .item_names = balance_names, .role = FieldRole::training, .stored_if = has_experts,
     .option = "moe-router-load-balancing-type", .placeholder = "LOSS",
     .help = "Losses that balance the experts, added up: by micro-batch (aux_loss, the default), by sequence"
             " (seq_aux_loss), with the loads of the last global batch (global_aux_loss), none.",
     .needs = needs_experts, .log = " ({})"},
    {TRIREME_AT(&C::experts, &E::z_coefficient), .role = FieldRole::training, .range = at_least(0),
     .stored_if = has_experts, .option = "moe-z-loss-coeff",
     .help = "Coefficient of the z-loss, the mean square of the log-sum-exp of a router's logits; default 0.",
     .needs = needs_experts, .log = ", z-loss x {}"},
    {TRIREME_AT(&C::experts, &E::jitter_eps), .role = FieldRole::training, .range = between(0, 1),
     .stored_if = has_experts, .option = "moe-input-jitter-eps",
     .help = "Multiply the inputs of routers by random numbers from 1 - X to 1 + X, in training; default 0, none.",
     .needs = needs_experts, .log = ", router inputs times 1 +- {}"},
    {TRIREME_AT(&C::experts, &E::capacity_factor), .role = FieldRole::training, .range = at_least(0),
     .stored_if = has_experts, .option = "moe-expert-capacity-factor",
     .help = "An expert computes at most X times its even share of a micro-batch and drops the rest; default 0, no"
             " limit.",
     .needs = needs_experts, .log = ", capacity factor {}"},
    {.get = [](const C& config) -> FieldValue { return std::int64_t{config.experts.drop_by_position}; },
     .set = [](C& config, const FieldValue& value) {
       config.experts.drop_by_position = std::get<std::int64_t>(value) != 0;
     },
     .names = drop_names, .role = FieldRole::training, .stored_if = has_experts, .option = "moe-token-drop-policy",
     .help = "Tokens that an expert drops beyond its capacity: those of smallest weight (probs, the default) or the"
             " last.",
     .needs = needs_experts, .log = ", dropping by {}"},
    {TRIREME_AT(&C::ahead, &M::depths), .range = between(1, max_depths), .attribute = "mtp_depths",
     .option = "mtp-num-layers",
     .help = "Modules that predict further tokens in training, each with a transformer layer; default none.",
     .log = ", {} modules ahead"},
    {TRIREME_AT(&C::ahead, &M::loss_factor), .role = FieldRole::training, .range = at_least(0),
     .stored_if = has_ahead, .option = "mtp-loss-scaling-factor",
     .help = "Factor of the mean loss of the modules of <mtp_num_layers>; default 0.1.",
     .needs = {has_ahead, "<mtp_num_layers> and <position_embedding_type> rope"}, .log = " whose loss counts {}"},
    {TRIREME_AT(&C::adapters, &A::rank), .role = FieldRole::adapter, .range = between(1, max_adapter_rank),
     .attribute = "lora_rank", .option = "lora-rank",
     .help = "Train adapters of rank N of linear layers (LoRA), and no other weight; default none.",
     .log = ", adapters of rank {}"},
    {TRIREME_AT(&C::adapters, &A::alpha), .role = FieldRole::adapter, .range = above(0), .attribute = "lora_alpha",
     .stored_if = has_adapters, .option = "lora-alpha",
     .help = "Adapters are multiplied by X / <lora_rank>; default 32.", .needs = needs_adapters, .log = " and alpha {}",
     .logs_default = true},
    {TRIREME_AT(&C::adapters, &A::rank_stabilised), .role = FieldRole::adapter, .attribute = "lora_rank_stabilised",
     .stored_if = has_adapters, .option = "use-rslora",
     .help = "Multiply adapters by <lora_alpha> / sqrt(<lora_rank>) instead (rsLoRA).", .needs = needs_adapters,
     .log = " (rank-stabilised)"},
    {.get = [](const C& config) -> FieldValue { return targets_of(config.adapters); },
     .set = [](C& config, const FieldValue& value) { set_targets(config.adapters, std::get<std::string>(value)); },
     .is_list = true, .item_names = target_names, .role = FieldRole::adapter, .attribute = "lora_targets",
     .stored_if = has_adapters, .option = "lora-targets", .placeholder = "LAYER",
     .help = "Linear layers with adapters: qkv, proj (attention's output), fc1, fc2, or all-linear, the default.",
     .needs = needs_adapters, .log = " on {}"},
    {TRIREME_AT(&C::norm_placement), .names = placement_names, .attribute = "norm_placement", .stored_if = is_bert,
     .option = "apply-residual-connection-post-layernorm",
     .help = "BERT: normalise each sum of residual and branch, as first published, not each branch's input.",
     .flag = static_cast<int>(NormPlacement::post), .needs = needs_bert, .log = ", post-norm layers"},
    {TRIREME_AT(&C::binary_head), .attribute = "binary_head", .stored_if = is_bert, .option = "bert-no-binary-head",
     .help = "BERT: leave out token types and the prediction of the segments' order; samples have one segment.",
     .needs = needs_bert, .log = ", no binary head", .megatron = "bert_binary_head"},
    {TRIREME_AT(&C::output), .names = output_names, .attribute = "output", .keys = {"", "", "architectures.0"}},
    {TRIREME_AT(&C::classes), .range = at_least(1), .attribute = "classes", .stored_if = is_task,
     .keys = {"", "", "id2label.length"}},
};
// clang-format on
#undef TRIREME_AT

/// Returns `experts` with defaults for all settings that have no effect beside dense blocks of width `ffn_hidden`.
ExpertConfig canonical(const ExpertConfig& experts, std::int64_t ffn_hidden) {
  if (!experts.any()) return {};
  ExpertConfig result = experts;
  if (experts.ffn_hidden == ffn_hidden) result.ffn_hidden = 0;
  if (experts.layers.find('0') == std::string::npos) result.layers.clear();
  if (experts.score != RouterScore::softmax) result.pre_softmax = false;
  if (experts.groups == 1) result.groups_per_token = 1;
  if (!experts.router_bias) result.bias_update_rate = ExpertConfig().bias_update_rate;
  result.balance = experts.balance_terms();
  if (result.balance.empty()) result.balance = ExpertConfig().balance;
  if (experts.capacity_factor == 0) result.drop_by_position = false;
  return result;
}

}  // namespace

std::span<const Field> fields() { return table; }

ModelConfig canonical(const ModelConfig& config) {
  const ModelConfig plain;
  ModelConfig result = config;
  if (config.query_groups == config.heads) result.query_groups = 0;
  if (config.latent.used || config.attention_columns() == config.hidden) result.kv_channels = 0;
  if (config.linear_bias) result.qkv_bias = false;
  if (config.gated) result.activation = plain.activation;
  if (!config.latent.used) result.latent = plain.latent;
  if (config.query_scalar == config.head_dim()) result.query_scalar = 0;
  if (!rotates(config)) {
    result.rotary_base = plain.rotary_base;
    result.rotary_percent = plain.rotary_percent;
  }
  if (!has_alibi(config)) result.scaled_alibi = false;
  if (config.ahead.depths == 0) result.ahead = plain.ahead;
  if (!config.adapters.any()) result.adapters = plain.adapters;
  result.experts = canonical(config.experts, config.ffn_hidden);
  return result;
}

ModelConfig resolved(const ModelConfig& config) {
  ModelConfig result = config;
  result.query_groups = config.kv_heads();
  result.kv_channels = config.head_dim();
  if (config.query_scalar == 0) result.query_scalar = config.head_dim();
  result.qkv_bias = config.has_qkv_bias();
  if (config.experts.any()) result.experts.ffn_hidden = config.expert_ffn_hidden();
  return result;
}

}  // namespace trireme::model

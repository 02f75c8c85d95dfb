#include "src/app/run_config/model_options.hpp"

#include <algorithm>
#include <tuple>

#include "src/model/presets.hpp"

namespace trireme::app {

void PositionOptions::declare(Options& options) {
  options.add_choice<std::optional<Kind>>(
      "position-embedding-type", &kind,
      {{"learned_absolute", Kind::learned_absolute}, {"rope", Kind::rope}, {"yarn", Kind::yarn}},
      "Positions: a learned table (default), rotation of queries and keys, or that with YaRN's frequencies.");
  options.add_flag("use-rotary-position-embeddings", &rotary, "The same as --position-embedding-type rope.");
  options.add("rotary-base", &rotary_base, "X", "Base of the rotary frequencies; default 10000.", at_least(0));
  options.add("rotary-percent", &rotary_percent, "X", "Fraction of a head's channels that rotate; default 1.",
              between(0, 1));
  options.add("rotary-seq-len-interpolation-factor", &interpolation, "X",
              "Divide rotary positions by X, for sequences X times as long as in an earlier training.", at_least(1));
  options.add_flag("use-rope-scaling", &llama3_scaling,
                   "Scale the rotary frequencies as Llama 3.1 does, for more than 8192 positions.");
  options.add("rope-scaling-factor", &llama3_factor, "X",
              "Divides low frequencies with --use-rope-scaling; default the preset's, else 8.", at_least(1));
  options.add("yarn-rotary-scaling-factor,rotary-scaling-factor", &yarn_factor, "X",
              "Times as many positions as in an earlier training, with --position-embedding-type yarn.", at_least(1));
  options.add("yarn-original-max-position-embeddings,original-max-position-embeddings", &yarn_positions, "N",
              "YaRN: positions of the earlier training; default 4096.", countable());
  options.add("yarn-beta-fast", &yarn_beta_fast, "X",
              "YaRN: pairs of channels with as many turns in these positions keep their frequency; default 32.",
              at_least(0));
  options.add("yarn-beta-slow", &yarn_beta_slow, "X",
              "YaRN: frequencies of pairs with at most as many turns are divided by the factor; default 1.",
              at_least(0));
  options.add("yarn-mscale,mscale", &yarn_mscale, "X",
              "YaRN: queries and keys grow by (0.1 X ln factor + 1) / (0.1 Y ln factor + 1); default X 1.",
              at_least(0));
  options.add("yarn-mscale-all-dim,mscale-all-dim", &yarn_mscale_all_dim, "Y", "YaRN: Y of --yarn-mscale; default 0.",
              at_least(0));
}

void PositionOptions::apply(model::ModelConfig& config, Problems& problems) const {
  problems.expect(!rotary || kind != Kind::learned_absolute,
                  "--use-rotary-position-embeddings and --position-embedding-type learned_absolute exclude each other");
  if (kind || rotary) {
    config.position_embedding =
        kind == Kind::learned_absolute ? model::PositionEmbedding::learned_absolute : model::PositionEmbedding::rope;
  }
  const bool rotates = config.position_embedding == model::PositionEmbedding::rope;
  problems.expect((!rotary_base && !rotary_percent && !interpolation) || rotates,
                  "--rotary-base, --rotary-percent and --rotary-seq-len-interpolation-factor need "
                  "--position-embedding-type rope");
  problems.expect(!llama3_scaling || (rotates && kind != Kind::yarn),
                  "--use-rope-scaling needs --position-embedding-type rope");
  config.rotary_base = rotary_base.value_or(config.rotary_base);
  config.rotary_percent = rotary_percent.value_or(config.rotary_percent);
  if (!rotates) config.rotary_scaling = {};
  apply_scaling(config.rotary_scaling, problems);
}

void PositionOptions::apply_scaling(model::RotaryScaling& scaling, Problems& problems) const {
  using model::RotaryScalingKind;
  const bool is_yarn = kind == Kind::yarn;
  const bool yarn_value =
      yarn_factor || yarn_positions || yarn_beta_fast || yarn_beta_slow || yarn_mscale || yarn_mscale_all_dim;
  problems.expect(is_yarn || !yarn_value,
                  "--yarn-rotary-scaling-factor and the other options of YaRN need --position-embedding-type yarn");
  problems.expect(!is_yarn || yarn_factor,
                  "--position-embedding-type yarn needs --yarn-rotary-scaling-factor: how many times as many positions "
                  "as in the earlier training");
  if (is_yarn) {
    scaling = {RotaryScalingKind::yarn,        yarn_factor.value_or(1),     yarn_positions.value_or(4096),
               yarn_beta_slow.value_or(1),     yarn_beta_fast.value_or(32), yarn_mscale.value_or(1),
               yarn_mscale_all_dim.value_or(0)};
  } else if (llama3_scaling && scaling.kind != RotaryScalingKind::llama3) {
    scaling = model::RotaryScaling::llama3(8);
  }
  problems.expect(!llama3_factor || scaling.kind == RotaryScalingKind::llama3,
                  "--rope-scaling-factor needs --use-rope-scaling");
  if (scaling.kind == RotaryScalingKind::llama3) scaling.factor = llama3_factor.value_or(scaling.factor);
  scaling.interpolation = interpolation.value_or(scaling.interpolation);
}

void ModelOptions::declare_dropout(Options& options) {
  options.add("hidden-dropout", &hidden_dropout, "P",
              "Probability of dropping an element of a hidden state; default the preset's, else 0.1.",
              between(0, 0.99));
  options.add("attention-dropout", &attention_dropout, "P",
              "Probability of dropping an attention weight; default the preset's, else 0.1.", between(0, 0.99));
}

void ModelOptions::declare(Options& options) {
  options.section("Model");
  options.add(
      "model", &preset, "NAME",
      "Preset: " + model::preset_names() +
          ". gpt2-8.3b has the 24 heads of 128 that were trained, gpt2-8.3b-scaling the 32 of 96 of the "
          "scaling study. A preset sets positions, dropout and a GPT's vocabulary, too; single options override it.");
  options.add_choice<std::optional<model::ModelFamily>>(
      "model-type", &family, {{"gpt", model::ModelFamily::gpt}, {"bert", model::ModelFamily::bert}},
      "Kind of model without a preset: gpt predicts the next token (default), bert masked tokens.");
  options.add("num-layers", &layers, "N", "Transformer layers.", layer_count());
  options.add("hidden-size", &hidden, "N", "Width of the residual stream.", countable());
  options.add("num-attention-heads", &heads, "N", "Attention heads.", countable());
  options.add("kv-channels", &kv_channels, "N",
              "Channels of a head; default the preset's, else hidden size / attention heads.", countable());
  options.add("ffn-hidden-size", &ffn_hidden, "N",
              "Width of the feed-forward block; default 4 x hidden size, with --swiglu two thirds of that down to a "
              "multiple of 64.",
              countable());
  options.add("max-position-embeddings", &max_positions, "N",
              "Longest sequence; default the preset's, else the sequence length.", countable());
  options.add("vocab-size", &vocabulary, "N", "True size of the vocabulary; default a GPT preset's, else the corpus'.",
              countable());
  options.add_choice<std::optional<Activation>>("gelu", &activation,
                                                {{"tanh", Activation::gelu_tanh}, {"erf", Activation::gelu_erf}},
                                                "Form of the activation; default tanh.");
  options.add_flag("squared-relu", &squared_relu, "Activation max(x, 0)^2 instead of GELU.");
  declare_dropout(options);
  options.add("layernorm-epsilon,norm-epsilon", &norm_epsilon, "X",
              "Added to the variance in normalisation; default the preset's, else 1e-5.", at_least(0));
  options.add_choice<std::optional<model::Normalization>>(
      "normalization", &normalization,
      {{"LayerNorm", model::Normalization::layer_norm}, {"RMSNorm", model::Normalization::rms_norm}},
      "Kind of normalisation; default LayerNorm.");
  options.add_flag("apply-layernorm-1p", &norm_1p,
                   "Store the weights of norms as their difference from 1, which 16-bit types round more finely.");
  positions.declare(options);
  window.declare(options);
  options.add_flag("swiglu", &swiglu, "Gated feed-forward block, silu(gate) x up, instead of GELU.");
  options.add_flag("group-query-attention", &group_query_attention,
                   "Let several heads of queries share a head of keys and values.");
  options.add("num-query-groups", &query_groups, "N",
              "Heads of keys and values with --group-query-attention; default 1.", countable());
  options.add_flag("untie-embeddings-and-output-weights", &untied_output,
                   "Give the output its own matrix instead of the token embedding's.");
  options.add_flag("disable-bias-linear", &no_linear_bias, "Linear layers have no biases.");
  options.add_flag("add-qkv-bias", &qkv_bias,
                   "Queries, keys and values have biases, with --disable-bias-linear and presets without biases, too.");
  options.add_flag("qk-layernorm", &qk_norm,
                   "Normalise the channels of each head of queries and keys, by the kind of --normalization.");
  options.add_flag("apply-residual-connection-post-layernorm", &post_norm,
                   "BERT: normalise each sum of residual and branch, as first published, not each branch's input.");
  options.add_flag("bert-no-binary-head", &no_binary_head,
                   "BERT: leave out token types and the prediction of the segments' order; samples have one segment.");
}

std::int64_t ModelOptions::default_sequence_length() const {
  Problems problems;
  const std::int64_t preset_positions = known_config(problems).max_positions;
  TRIREME_CHECK(max_positions || has_base(), ConfigError,
                "--seq-length must be given: without --model and --max-position-embeddings it has no default");
  return max_positions.value_or(preset_positions);
}

model::ModelConfig ModelOptions::config(std::int64_t sequence_length, std::int64_t corpus_vocabulary) const {
  Problems problems;
  const model::ModelConfig known = known_config(problems);
  model::ModelConfig config = known;
  apply_variants(config, problems);
  apply_bert(config, problems);
  config.layers = layers.value_or(config.layers);
  window.apply(config, problems);
  config.hidden = hidden.value_or(config.hidden);
  config.heads = heads.value_or(config.heads);
  config.kv_channels = kv_channels.value_or(config.kv_channels);
  const bool as_known = has_base() && config.hidden == known.hidden && config.swiglu == known.swiglu;
  config.ffn_hidden =
      ffn_hidden.value_or(as_known ? known.ffn_hidden : model::default_ffn_hidden(config.hidden, config.swiglu));
  config.hidden_dropout = hidden_dropout.value_or(config.hidden_dropout);
  config.attention_dropout = attention_dropout.value_or(config.attention_dropout);
  config.norm_epsilon = norm_epsilon.value_or(config.norm_epsilon);
  apply_positions(config, sequence_length, problems);
  apply_vocabulary(config, corpus_vocabulary, problems);
  problems.expect(
      config.ffn_hidden > 0,
      fmt::format("--swiglu at --hidden-size {}: two thirds of 4 x {} are less than 64 columns; give --ffn-hidden-size",
                  config.hidden, config.hidden));
  if (config.ffn_hidden > 0) problems.attempt([&] { model::validate(config); });
  problems.report();
  return config;
}

std::vector<std::string> ModelOptions::take(const model::ModelConfig& stored) {
  ModelOptions shape;
  shape.checkpoint = stored;
  shape.preset = preset;
  shape.family = family;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.kv_channels = kv_channels;
  shape.ffn_hidden = ffn_hidden;
  shape.max_positions = max_positions;
  shape.vocabulary = vocabulary;
  shape.hidden_dropout = hidden_dropout;
  shape.attention_dropout = attention_dropout;
  const auto attributes_on = [](ModelOptions options, const model::ModelConfig& base) {
    options.checkpoint = base;
    return model::attributes_of(options.config(1, 1));
  };
  const Attributes taken = attributes_on(shape, stored);
  Attributes given;
  try {
    given = attributes_on(*this, stored);
  } catch (const ConfigError&) {  // such as --gelu beside the checkpoint's SwiGLU
    model::ModelConfig plain;
    plain.family = stored.family;
    plain.output = stored.output;
    plain.classes = stored.classes;
    std::tie(plain.layers, plain.hidden, plain.heads, plain.ffn_hidden, plain.max_positions, plain.vocabulary) =
        std::tie(stored.layers, stored.hidden, stored.heads, stored.ffn_hidden, stored.max_positions,
                 stored.vocabulary);
    given = attributes_on(*this, plain);
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : given.texts()) {
    const std::string there = taken.contains(name) ? taken.get<std::string>(name) : "none";
    if (name != "model.kind" && there != value) {
      lines.push_back(fmt::format("the model's {} is the checkpoint's {}, in place of {}",
                                  name.substr(std::string_view("model.").size()), there, value));
    }
  }
  *this = shape;
  return lines;
}

model::ModelConfig ModelOptions::known_config(Problems& problems) const {
  if (checkpoint) {
    problems.expect(preset.empty(), "--use-checkpoint-args and --model exclude each other: both say the whole model");
    problems.expect(!family || *family == checkpoint->family,
                    fmt::format("--model-type: the checkpoint holds a {}: leave the option out, or give another --load",
                                checkpoint->is_bert() ? "BERT" : "GPT"));
    return *checkpoint;
  }
  if (preset.empty()) {
    TRIREME_CHECK(layers && hidden && heads, ConfigError,
                  "the model's shape is missing: give --model, or --num-layers, --hidden-size and "
                  "--num-attention-heads");
    model::ModelConfig config;
    config.family = family.value_or(config.family);
    return config;
  }
  const model::ModelConfig config = model::preset(preset);
  problems.expect(!family || *family == config.family,
                  fmt::format("--model {} is a {}: leave out --model-type, or give another --model", preset,
                              config.is_bert() ? "BERT" : "GPT"));
  return config;
}

void ModelOptions::apply_bert(model::ModelConfig& config, Problems& problems) const {
  problems.expect(config.is_bert() || (!post_norm && !no_binary_head),
                  "--apply-residual-connection-post-layernorm and --bert-no-binary-head are options of a BERT: give "
                  "--model bert-336m or --model-type bert");
  if (!config.is_bert()) return;
  if (post_norm) config.norm_placement = model::NormPlacement::post;
  config.binary_head = config.binary_head && !no_binary_head;
}

void ModelOptions::apply_positions(model::ModelConfig& config, std::int64_t sequence_length, Problems& problems) const {
  config.max_positions = max_positions.value_or(has_base() ? config.max_positions : sequence_length);
  const bool rotary = config.position_embedding == model::PositionEmbedding::rope;
  // Rotary positions have no table that could be too short.
  if (rotary && !max_positions && !checkpoint) config.max_positions = std::max(config.max_positions, sequence_length);
  problems.attempt([&] { model::check_sequence_length(config, sequence_length); });
}

void ModelOptions::apply_vocabulary(model::ModelConfig& config, std::int64_t corpus_vocabulary,
                                    Problems& problems) const {
  // WordPiece vocabularies differ in size, and the tokenizer adds [BOS] and [EOS] to them.
  const bool is_corpus = !checkpoint && (preset.empty() || config.is_bert());
  config.vocabulary = vocabulary.value_or(is_corpus ? corpus_vocabulary : config.vocabulary);
  problems.expect(
      config.vocabulary >= corpus_vocabulary,
      vocabulary ? fmt::format("--vocab-size {} is smaller than the corpus' vocabulary of {} tokens", config.vocabulary,
                               corpus_vocabulary)
      : checkpoint
          ? fmt::format("the vocabulary of the checkpoint has {} tokens, the corpus' {}: build the corpus with "
                        "the model's tokenizer",
                        config.vocabulary, corpus_vocabulary)
          : fmt::format("the vocabulary of --model {} has {} tokens, the corpus' {}: build the corpus with the "
                        "model's tokenizer, or give --vocab-size {}",
                        preset, config.vocabulary, corpus_vocabulary, corpus_vocabulary));
}

std::string ModelOptions::preset_values(const model::ModelConfig& config) const {
  if (preset.empty()) return "";
  std::string text;
  const auto add = [&](bool given, const char* name, auto value) {
    if (!given) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  add(vocabulary.has_value() || config.is_bert(), "vocab-size", config.vocabulary);
  add(max_positions.has_value(), "max-position-embeddings", config.max_positions);
  add(hidden_dropout.has_value(), "hidden-dropout", config.hidden_dropout);
  add(attention_dropout.has_value(), "attention-dropout", config.attention_dropout);
  return text;
}

void ModelOptions::apply_variants(model::ModelConfig& config, Problems& problems) const {
  config.normalization = normalization.value_or(config.normalization);
  config.norm_1p = config.norm_1p || norm_1p;
  positions.apply(config, problems);
  config.swiglu = config.swiglu || swiglu;
  problems.expect(activation.has_value() + squared_relu + config.swiglu <= 1,
                  "--gelu, --squared-relu and --swiglu exclude each other");
  config.activation = squared_relu ? Activation::squared_relu : activation.value_or(config.activation);
  problems.expect(!query_groups || group_query_attention,
                  fmt::format("--num-query-groups {} needs --group-query-attention", query_groups.value_or(0)));
  if (group_query_attention) config.query_groups = query_groups.value_or(1);
  config.tied_output = config.tied_output && !untied_output;
  config.linear_bias = config.linear_bias && !no_linear_bias;
  config.qkv_bias = config.qkv_bias || qkv_bias;
  config.qk_norm = config.qk_norm || qk_norm;
}

void InitialisationOptions::declare(Options& options) {
  options.add_choice("init-method", &method,
                     {{"normal", model::InitMethod::normal}, {"hashed-uniform", model::InitMethod::hashed_uniform}},
                     "Initial weights: normal deviates of the seed, or a formula of name and index alone.");
  options.add("init-method-std", &std, "X", "Standard deviation of normal initial weights.", at_least(0));
  options.add("init-scale", &scale, "X", "Multiplies the initial matrices of the layers.", at_least(0));
}

void InitialisationOptions::check(const Options& options, Problems& problems) const {
  problems.expect(method == model::InitMethod::normal || !options.given("init-method-std"),
                  "--init-method-std needs --init-method normal: hashed-uniform weights have ranges of their own");
}

}  // namespace trireme::app

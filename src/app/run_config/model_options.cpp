#include "src/app/run_config/model_options.hpp"

#include <algorithm>

#include "src/model/presets.hpp"

namespace trireme::app {

void ModelOptions::declare(Options& options) {
  options.section("Model");
  options.add(
      "model", &preset, "NAME",
      "Preset: " + model::preset_names() +
          ". gpt2-8.3b has the 24 heads of 128 that were trained, gpt2-8.3b-scaling the 32 of 96 of the scaling study. "
          "A preset also sets positions, dropout and a GPT's vocabulary; single options override it.");
  options.add_choice<std::optional<model::ModelFamily>>(
      "model-type", &family, {{"gpt", model::ModelFamily::gpt}, {"bert", model::ModelFamily::bert}},
      "Kind of model without a preset: gpt predicts the next token (default), bert masked tokens.");
  fields.declare(options);
  options.add_flag("group-query-attention", &group_query_attention,
                   "Grouped-query attention: several query heads share a head of keys and values.");
  options.add_choice<std::optional<Positions>>(
      "position-embedding-type", &positions,
      {{"learned_absolute", Positions::learned_absolute},
       {"rope", Positions::rope},
       {"alibi", Positions::alibi},
       {"yarn", Positions::yarn}},
      "Positions: a learned table (default), rotation of queries and keys, biases of scores by distance (ALiBi), or "
      "rotation with YaRN's frequencies.");
  options.add_choice<std::optional<Positions>>(
      "rope-type", &rotation, {{"rope", Positions::rope}, {"yarn", Positions::yarn}},
      "The same as --position-embedding-type, for rotary positions: Megatron Core's flag for latent attention.");
  options.add_flag("use-rope-scaling", &llama3_scaling,
                   "Scale the rotary frequencies as Llama 3.1 does, for more than 8192 positions.");
  window.declare(options);
  experts.declare(options);
}

std::int64_t ModelOptions::default_sequence_length() const {
  Problems problems;
  const std::int64_t preset_positions = known_config(problems).max_positions;
  const auto given = fields.integer("max-position-embeddings");
  TRIREME_CHECK(given || has_base(), ConfigError,
                "--seq-length must be given: without --model and --max-position-embeddings it has no default");
  return given.value_or(preset_positions);
}

model::ModelConfig ModelOptions::config(std::int64_t sequence_length, std::int64_t corpus_vocabulary,
                                        std::optional<std::int64_t> needed) const {
  Problems problems;
  const model::ModelConfig known = known_config(problems);
  model::ModelConfig config = known;
  apply_form(config, problems);
  const bool as_known = has_base() && config.hidden == known.hidden && config.gated == known.gated;
  if (!fields.given("ffn-hidden-size")) {
    config.ffn_hidden = as_known ? known.ffn_hidden : model::default_ffn_hidden(config.hidden, config.gated);
  }
  apply_positions(config, sequence_length, problems);
  apply_vocabulary(config, corpus_vocabulary, needed.value_or(corpus_vocabulary), problems);
  problems.expect(
      config.ffn_hidden > 0,
      fmt::format("--{} at --hidden-size {}: two thirds of 4 x {} are less than 64 columns; give --ffn-hidden-size",
                  config.gate == Activation::silu ? "swiglu" : "geglu", config.hidden, config.hidden));
  if (config.ffn_hidden > 0) problems.attempt([&] { model::validate(config); });
  problems.report();
  return config;
}

std::vector<std::string> ModelOptions::take(const model::ModelConfig& stored) {
  ModelOptions shape;
  shape.checkpoint = stored;
  shape.preset = preset;
  shape.family = family;
  shape.fields = fields;
  shape.fields.forget_form();
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
    for (const model::Field& field : model::fields()) {
      if (field.role == model::FieldRole::size) field.set(plain, field.get(stored));
    }
    given = attributes_on(*this, plain);
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : given.texts()) {
    const std::string there = taken.contains(name) ? taken.get<std::string>(name) : "none";
    if (name != "model.kind" && there != value) {
      lines.push_back(fmt::format("the model's {} is the checkpoint's {}, instead of {}",
                                  name.substr(std::string_view("model.").size()), there, value));
    }
  }
  *this = shape;
  return lines;
}

model::ModelConfig ModelOptions::known_config(Problems& problems) const {
  if (checkpoint) {
    problems.expect(preset.empty(),
                    "--use-checkpoint-args and --model exclude each other: both define the entire model");
    problems.expect(!family || *family == checkpoint->family,
                    fmt::format("--model-type: the checkpoint holds a {}: leave the option out, or give another --load",
                                checkpoint->is_bert() ? "BERT" : "GPT"));
    return *checkpoint;
  }
  if (preset.empty()) {
    const bool has_shape =
        fields.given("num-layers") && fields.given("hidden-size") && fields.given("num-attention-heads");
    TRIREME_CHECK(has_shape, ConfigError,
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

void ModelOptions::apply_form(model::ModelConfig& config, Problems& problems) const {
  using model::RotaryScalingKind;
  problems.expect(!rotation || !positions || positions == rotation || positions == Positions::rope,
                  "--rope-type and --position-embedding-type name different positions: leave one out");
  const std::optional<Positions> chosen = rotation ? rotation : positions;
  const bool is_yarn = chosen == Positions::yarn;
  for (const auto& [other, name] : {std::pair{Positions::learned_absolute, "position-embedding-type learned_absolute"},
                                    {Positions::alibi, "position-embedding-type alibi"}}) {
    problems.exclude(!fields.given("use-rotary-position-embeddings") || chosen != other,
                     "use-rotary-position-embeddings", name);
  }
  if (chosen) {
    config.position_embedding =
        is_yarn ? model::PositionEmbedding::rope : static_cast<model::PositionEmbedding>(*chosen);
  }
  problems.expect(!is_yarn || fields.given("yarn-rotary-scaling-factor"),
                  "--position-embedding-type yarn needs --yarn-rotary-scaling-factor: the number of positions over "
                  "that of the earlier training");
  if (is_yarn) {
    config.rotary_scaling = {RotaryScalingKind::yarn, 1, 4096};
  } else if (rotation && config.rotary_scaling.kind == RotaryScalingKind::yarn) {
    config.rotary_scaling = {};  // instead of the preset's
  } else if (llama3_scaling && config.rotary_scaling.kind != RotaryScalingKind::llama3) {
    config.rotary_scaling = model::RotaryScaling::llama3(8);
  }
  const std::int64_t query_groups = group_query_attention ? 1 : config.query_groups;
  fields.apply(config);
  const auto groups = fields.integer("num-query-groups");
  if (!group_query_attention || !groups) config.query_groups = query_groups;
  const bool rotates = config.position_embedding == model::PositionEmbedding::rope;
  problems.expect(!llama3_scaling || (rotates && !is_yarn), "--use-rope-scaling needs --position-embedding-type rope");
  if (!rotates) config.rotary_scaling = {};
  fields.check(config, problems);
  if (fields.given("swiglu") && !fields.given("geglu")) config.gate = Activation::silu;  // instead of the preset's
  problems.expect(fields.given("gelu") + fields.given("squared-relu") + config.gated <= 1,
                  "--gelu, --squared-relu and --swiglu exclude each other");
  problems.expect(!fields.given("swiglu") || !fields.given("geglu"), "--swiglu and --geglu exclude each other");
  problems.expect(!groups || group_query_attention,
                  fmt::format("--num-query-groups {} needs --group-query-attention", groups.value_or(0)));
  window.apply(config, problems);
  experts.apply(fields, config, problems);
}

void ModelOptions::apply_positions(model::ModelConfig& config, std::int64_t sequence_length, Problems& problems) const {
  const bool is_given = fields.given("max-position-embeddings");
  if (!is_given && !has_base()) config.max_positions = sequence_length;
  const bool has_table = config.position_embedding == model::PositionEmbedding::learned_absolute;
  // Other positions have no table that could be too short.
  if (!has_table && !is_given && !checkpoint) config.max_positions = std::max(config.max_positions, sequence_length);
  problems.attempt([&] { model::check_sequence_length(config, sequence_length); });
}

void ModelOptions::apply_vocabulary(model::ModelConfig& config, std::int64_t corpus_vocabulary, std::int64_t needed,
                                    Problems& problems) const {
  // WordPiece vocabularies differ in size, and the tokenizer adds [BOS] and [EOS] to them.
  const bool is_corpus = !checkpoint && (preset.empty() || config.is_bert());
  const bool is_given = fields.given("vocab-size");
  if (!is_given && is_corpus) config.vocabulary = corpus_vocabulary;
  problems.expect(
      config.vocabulary >= (is_given ? corpus_vocabulary : needed),
      is_given ? fmt::format("--vocab-size {} is smaller than the corpus' vocabulary of {} tokens", config.vocabulary,
                             corpus_vocabulary)
      : checkpoint
          ? fmt::format("the vocabulary of the checkpoint has {} tokens, the corpus' {}: build the corpus with the "
                        "model's tokenizer",
                        config.vocabulary, corpus_vocabulary)
          : fmt::format("the vocabulary of --model {} has {} tokens, the corpus' {}: build the corpus with the "
                        "model's tokenizer, or give --vocab-size {}",
                        preset, config.vocabulary, corpus_vocabulary, corpus_vocabulary));
}

std::string ModelOptions::preset_values(const model::ModelConfig& config) const {
  if (preset.empty()) return "";
  std::string text;
  for (const model::Field& field : model::fields()) {
    const bool is_corpus = field.name() == "vocab-size" && config.is_bert();
    const bool is_implied = !field.is_used(config) || (field.stored_if != nullptr && field.is_default(config));
    const bool is_set = (field.role == model::FieldRole::training && !is_implied) ||
                        field.name() == "max-position-embeddings" || (field.name() == "vocab-size" && !is_corpus);
    if (!is_set || fields.given(field.name())) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name(), field.text(config));
  }
  return text;
}

void InitialisationOptions::declare(Options& options) {
  options.add_choice("init-method", &method,
                     {{"normal", model::InitMethod::normal}, {"hashed-uniform", model::InitMethod::hashed_uniform}},
                     "Initial weights: normal deviates of the seed, or a formula of name and index only.");
  options.add("init-method-std", &std, "X", "Standard deviation of normal initial weights.", at_least(0));
  options.add("init-scale", &scale, "X", "Multiplies the initial matrices of the layers.", at_least(0));
  options.add_flag("no-scaled-init", &not_scaled,
                   "Draw the matrices before each residual sum like the others, not divided by the root of twice the "
                   "layers.");
}

void InitialisationOptions::check(const Options& options, Problems& problems) const {
  problems.need(options, {"init-method-std"}, method == model::InitMethod::normal,
                "--init-method normal: hashed-uniform weights have fixed ranges");
}

}  // namespace trireme::app

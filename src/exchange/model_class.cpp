#include "src/exchange/model_class.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "src/base/check.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

using model::ModelConfig;

const Family& family_of(ModelClass model_class) {
  return *std::ranges::find_if(families(), [&](const Family& family) {
    return std::ranges::count(family.classes, model_class, &ClassFacts::id);
  });
}

ModelClass nearest_class(const ModelConfig& config) {
  const auto family = std::ranges::find_if(families(), [&](const Family& f) { return f.is_nearest(config); });
  return std::ranges::find_if(family->classes, [&](const ClassFacts& facts) { return facts.is_nearest(config); })->id;
}

/// All classes, in the order of the families.
std::vector<const ClassFacts*> all_classes() {
  std::vector<const ClassFacts*> classes;
  for (const Family& family : families()) {
    for (const ClassFacts& facts : family.classes) classes.push_back(&facts);
  }
  return classes;
}

/// Returns the difference of a field from the models of a class, for a message.
std::string misfit(const model::Field& field, const ModelConfig& config, const ModelConfig& like) {
  if (field.is_flag()) {
    return field.get(config) == field.flag_value()
               ? fmt::format("{}: no model of the class has it", field.tag())
               : fmt::format("without {}: all models of the class have it", field.tag());
  }
  return fmt::format("{} {}: all models of the class have {}", field.tag(), field.text(config),
                     field.names.empty() ? "the default" : field.text(like));
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> all = {gpt2_family(), qwen_family(), mistral_family(), llama_family(),
                                          bert_family()};
  return all;
}

const ClassFacts& facts_of(ModelClass model_class) {
  return *std::ranges::find(family_of(model_class).classes, model_class, &ClassFacts::id);
}

std::string_view name_of(ModelClass model_class) { return facts_of(model_class).name; }

std::string model_class_names() {
  std::vector<std::string_view> names;
  for (const ClassFacts* facts : all_classes()) names.push_back(facts->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

ModelClass model_class_from(std::string_view name) {
  const std::vector<const ClassFacts*> classes = all_classes();
  const auto found = std::ranges::find(classes, name, &ClassFacts::name);
  TRIREME_CHECK(found != classes.end(), DataError, "the model class '{}' is not one of those that can be read: {}",
                name, model_class_names());
  return (*found)->id;
}

ConfigForm config_form(ModelClass model_class) { return family_of(model_class).form; }

ModelConfig class_defaults(ModelClass model_class) {
  const ClassFacts& facts = facts_of(model_class);
  ModelConfig config;
  model::set_fields(config, facts.defaults);
  config.output = facts.output;
  // The class itself takes any number of choices; RACE's questions have four.
  if (config.output == model::ModelOutput::choices) config.classes = 4;
  return config;
}

std::string_view config_key(const model::Field& field, ModelClass model_class) {
  switch (config_form(model_class)) {
    case ConfigForm::gpt2:
      return field.keys.gpt2;
    case ConfigForm::llama:
      return field.keys.llama;
    default:
      return field.keys.bert;
  }
}

ModelClass model_class_of(const ModelConfig& config) {
  const ModelClass result = nearest_class(config);
  const ClassFacts& facts = facts_of(result);
  const ModelConfig ours = model::canonical(config), like = model::canonical(class_defaults(result));
  std::vector<std::string> misfits;
  if (!config.is_bert() && !config.predicts_tokens())
    misfits.emplace_back("heads of tasks are exported of a BERT alone");
  for (const model::Field& field : model::fields()) {
    const bool is_stored = !field.attribute.empty() && (field.stored_if == nullptr || field.stored_if(config));
    // An export has plain weights of norms. Keys of a form that some of its classes lack have a fact.
    const bool is_setting = !config_key(field, result).empty() &&
                            (field.attribute != "linear_bias" || facts.has_bias_settings) &&
                            (field.attribute != "window" || facts.has_window);
    if (!is_stored || is_setting || field.attribute == "norm_1p" || field.attribute == "output") continue;
    if (field.get(ours) != field.get(like)) misfits.push_back(misfit(field, ours, like));
  }
  if (config.rotary_scaling.interpolation != 1 && config.rotary_scaling.kind != model::RotaryScalingKind::none) {
    misfits.emplace_back(
        "<rotary_seq_len_interpolation_factor> beside another scaling: the class scales positions in one way");
  }
  TRIREME_CHECK(misfits.empty(), ConfigError, "the model cannot be exported as {}:\n  {}", name_of(result),
                fmt::join(misfits, "\n  "));
  return result;
}

void map_layer(TensorMapBuilder& map, const std::string& parameter, const std::string& tensor) {
  for (const char* suffix : {".weight", ".bias"}) {
    if (map.has(parameter + suffix)) map.same(parameter + suffix, tensor + suffix);
  }
}

TensorMap tensor_map(ModelClass model_class, const ModelConfig& config, const MapOptions& options) {
  const Family& family = family_of(model_class);
  TRIREME_CHECK(family.may_lack_tokens || options.vocabulary_rows == 0 || options.vocabulary_rows >= config.vocabulary,
                ConfigError, "the tensors have {} tokens, fewer than the {} of the vocabulary", options.vocabulary_rows,
                config.vocabulary);
  return family.map(config, options);
}

std::vector<std::string> other_names(ModelClass model_class, const std::string& tensor) {
  const Family& family = family_of(model_class);
  std::vector<std::string> names;
  if (tensor.starts_with(family.base)) names.push_back(tensor.substr(family.base.size()));
  for (const auto& [now, before] : family.older) {
    if (!tensor.ends_with(now)) continue;
    names.push_back(tensor.substr(0, tensor.size() - now.size()) + std::string(before));
  }
  return names;
}

bool is_buffer(std::string_view tensor) {
  return std::ranges::any_of(families(), [&](const Family& family) {
    return std::ranges::any_of(family.buffers, [&](std::string_view suffix) { return tensor.ends_with(suffix); });
  });
}

}  // namespace trireme::exchange

#include "src/exchange/model_class.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/check.hpp"
#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

using model::ModelConfig;

/// Returns how a field differs from the models of a class, for a message.
std::string misfit(const model::Field& field, const ModelConfig& config, const ModelConfig& like) {
  if (field.is_flag()) {
    return field.get(config) == field.flag_value()
               ? fmt::format("{}: no model of the class has it", field.tag())
               : fmt::format("without {}: all models of the class have it", field.tag());
  }
  return fmt::format("{} {}: all models of the class have {}", field.tag(), field.text(config),
                     field.names.empty() || field.text(like).empty() ? "the default" : field.text(like));
}

/// Classes that differ in one part from a supported one, and this part.
constexpr std::pair<std::string_view, std::string_view> unsupported[] = {
    {"Qwen2MoeForCausalLM", ": its shared expert has a sigmoid gate, which is not supported"}};

}  // namespace

std::span<const ModelClass> model_classes() {
#define TRIREME_MAKE_FAMILY(name) name##_family(),
  static const std::vector<ModelClass> all = [] {
    std::vector<ModelClass> classes;
    for (const std::vector<ModelClass>& family : {TRIREME_FAMILIES(TRIREME_MAKE_FAMILY)}) {
      classes.insert(classes.end(), family.begin(), family.end());
    }
    return classes;
  }();
#undef TRIREME_MAKE_FAMILY
  return all;
}

std::string model_class_names() {
  std::vector<std::string_view> names;
  for (const ModelClass& model_class : model_classes()) names.push_back(model_class.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const ModelClass& model_class_from(std::string_view name) {
  const auto found = std::ranges::find(model_classes(), name, &ModelClass::name);
  if (found == model_classes().end()) {
    const auto* const reason = std::ranges::find(unsupported, name, [](const auto& entry) { return entry.first; });
    throw DataError("the model class '{}' is not supported{}. Try one of {}", name,
                    reason == std::end(unsupported) ? "" : reason->second, model_class_names());
  }
  return *found;
}

ModelConfig class_defaults(const ModelClass& model_class) {
  ModelConfig config;
  model::set_fields(config, model_class.defaults);
  config.output = model_class.output;
  // The class itself takes any number of choices; RACE's questions have four.
  if (config.output == model::ModelOutput::choices) config.classes = 4;
  return config;
}

std::string_view config_key(const model::Field& field, const ModelClass& model_class) {
  if (field.attribute.empty()) return "";
  const auto own = std::ranges::find(model_class.own_keys, field.attribute,
                                     [](const auto& attribute_and_key) { return attribute_and_key.first; });
  return own != model_class.own_keys.end() ? own->second : field.keys.*model_class.keys;
}

std::string_view config_key(std::string_view attribute, const ModelClass& model_class) {
  return config_key(*std::ranges::find(model::fields(), attribute, &model::Field::attribute), model_class);
}

const ModelClass& model_class_of(const ModelConfig& config, std::string_view name) {
  const ModelClass& result =
      name.empty()
          ? *std::ranges::find_if(model_classes(), [&](const ModelClass& candidate) { return candidate.fits(config); })
          : model_class_from(name);
  const ModelConfig ours = model::canonical(config), like = model::canonical(class_defaults(result));
  std::vector<std::string> misfits;
  if (config.is_bert() != like.is_bert() || (config.is_bert() && config.output != like.output)) {
    misfits.emplace_back("the class is of another kind of model");
  }
  if (config.experts.count == 0 && like.experts.count > 0) {
    misfits.emplace_back("without <num_experts>: all models of the class have experts");
  }
  if (!config.is_bert() && !config.predicts_tokens())
    misfits.emplace_back("task heads can only be exported for a BERT");
  for (const model::Field& field : model::fields()) {
    const bool is_stored = !field.attribute.empty() && field.is_used(config);
    const bool is_setting = !config_key(field, result).empty();
    // An export has plain norm weights. The type of the routers' logits is one of computation.
    const bool is_left_out =
        field.attribute == "norm_1p" || field.attribute == "output" || field.attribute == "router_type";
    if (!is_stored || is_setting || is_left_out) continue;
    if (field.get(ours) != field.get(like)) misfits.push_back(misfit(field, ours, like));
  }
  if (config.rotary_scaling.interpolation != 1 && config.rotary_scaling.kind != model::RotaryScalingKind::none) {
    misfits.emplace_back(
        "<rotary_seq_len_interpolation_factor> with another scaling: the class has only one kind of scaling");
  }
  const bool scales =
      config.rotary_scaling.kind != model::RotaryScalingKind::none || config.rotary_scaling.interpolation != 1;
  if (!config_key("rotary_base_local", result).empty() && config.window.any() && config.rotary_base_local == 0 &&
      scales) {
    misfits.emplace_back(
        "scaled frequencies without <rotary_base_local>: the class does not scale those of layers with a window");
  }
  TRIREME_CHECK(misfits.empty(), ConfigError, "the model cannot be exported as {}:\n  {}", result.name,
                fmt::join(misfits, "\n  "));
  return result;
}

void take_modules(std::int64_t depths, const TensorSource& source, ModelConfig& config) {
  const std::string first = fmt::format("model.layers.{}.eh_proj.weight", config.layers);
  if (depths <= 0 || std::ranges::count(source.tensors(), first, &ForeignTensor::name) == 0) return;
  const auto* const field = std::ranges::find(model::fields(), "mtp_depths", &model::Field::attribute).base();
  TRIREME_CHECK(field->range.contains(static_cast<double>(depths)), DataError, "num_nextn_predict_layers {} must be {}",
                depths, field->range.text());
  field->set(config, depths);
}

TensorMap tensor_map(const ModelClass& model_class, const ModelConfig& config, const MapOptions& options) {
  MapOptions resolved = options;
  if (!options.rotary) resolved.rotary = model_class.rotary;
  return model_class.map(config, resolved);
}

std::vector<std::string> other_names(const ModelClass& model_class, const std::string& tensor) {
  std::vector<std::string> names;
  if (tensor.starts_with(model_class.base)) names.push_back(tensor.substr(model_class.base.size()));
  for (const auto& [now, before] : model_class.older) {
    if (!tensor.ends_with(now)) continue;
    names.push_back(tensor.substr(0, tensor.size() - now.size()) + std::string(before));
  }
  std::string fused = tensor;
  for (const auto& [now, there] : model_class.fused) {
    if (const std::size_t at = fused.find(now); at != fused.npos) fused.replace(at, now.size(), there);
  }
  if (fused != tensor) names.push_back(fused);
  return names;
}

bool is_buffer(std::string_view tensor) {
  return std::ranges::any_of(model_classes(), [&](const ModelClass& model_class) {
    return std::ranges::any_of(model_class.buffers, [&](std::string_view suffix) { return tensor.ends_with(suffix); });
  });
}

}  // namespace trireme::exchange

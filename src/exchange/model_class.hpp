#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/exchange/tensor_map.hpp"
#include "src/exchange/tensor_source.hpp"
#include "src/model/fields.hpp"

/// Model classes of Hugging Face's transformers that import and export support. Each family of classes is a file in
/// `families`.
namespace trireme::exchange {

/// A setting of config.json that has one value in all supported models of a class. If the file lacks it, the value is
/// the same.
struct FixedSetting {
  std::string_view key;
  std::variant<bool, std::int64_t, double, std::string_view> value;
  std::string_view reason;  ///< why other values are refused
  bool is_written = false;
};

struct MapOptions {
  std::optional<RotaryLayout> rotary = {};  ///< layout of queries and keys; empty: that of the class
  /// If there are more than tokens of the model, the last are padding and left out. A BERT may have fewer: its further
  /// tokens are never predicted (their bias is -10000).
  TokenRows vocabulary_rows = {};
  bool writes_copies = false;  ///< also maps tensors that repeat others, for an export
  /// Returns whether the files of an import have a tensor. Without it, for an export, they have those of the class.
  std::function<bool(const std::string&)> has_tensor = {};
};

/// A model class of transformers.
struct ModelClass {
  std::string_view name;  ///< "LlamaForCausalLM"
  std::string_view type;  ///< model_type of its config.json
  /// Words of model::set_fields: how the model of a config.json without settings differs from GPT-2.
  std::string defaults;
  /// Returns whether a model has the parts of this class rather than of a later one.
  bool (*fits)(const model::ModelConfig&);
  std::string_view model::ConfigKeys::*keys;  ///< the class's keys in the table of fields
  /// Keys that differ from those: attribute of the field, and key. Empty, or with a dot, as in the table.
  std::vector<std::pair<std::string_view, std::string_view>> own_keys = {};
  /// Keys of older files, and the present ones, which precede.
  std::vector<std::pair<std::string_view, std::string_view>> older_keys = {};
  std::vector<FixedSetting> fixed = {};
  model::ModelOutput output = model::ModelOutput::pretraining;
  std::string_view tanh_gelu = "gelu_new";     ///< its name for GELU by tanh; all names are read
  bool has_mlp_bias = false;                   ///< mlp_bias is a setting beside attention_bias, and has the same value
  RotaryLayout rotary = RotaryLayout::halves;  ///< layout of queries and keys, unless the file names another
  /// Every Nth layer has no window if the file does not list the layers' types; 0: windows are in all layers or none.
  std::int64_t window_frequency = 0;
  bool ffn_follows_hidden = false;  ///< without its setting, the feed-forward width is 4 x the hidden size

  /// Maps all parameters of a model.
  TensorMap (*map)(const model::ModelConfig&, const MapOptions&);
  std::string_view base;  ///< prefix of tensors that files of the model without its head lack
  /// Suffixes of tensor names, and what they were in older files.
  std::vector<std::pair<std::string_view, std::string_view>> older = {};
  /// Parts of tensor names, and what they are in files whose experts are fused: see `fused_experts.hpp`.
  std::vector<std::pair<std::string_view, std::string_view>> fused = {};
  std::vector<std::string_view> buffers = {};   ///< suffixes of tensors that are not weights
  std::string_view fuller = {};                 ///< class that counts instead if the files have all of its tensors
  std::vector<std::string_view> left_out = {};  ///< weights that no model here has; import leaves them out
  std::string_view exported_as = {};            ///< class of an export, if the head is one of those weights
};

/// Returns all classes, in the order of the families.
std::span<const ModelClass> model_classes();
/// Returns all names, for messages.
std::string model_class_names();
/// Returns the class of this name; DataError, with the known ones, for another name.
const ModelClass& model_class_from(std::string_view name);

/// Returns the model of a class whose config.json has no settings.
model::ModelConfig class_defaults(const ModelClass& model_class);
/// Returns the key of a field in the config.json of a class; empty if the class has no such setting.
std::string_view config_key(const model::Field& field, const ModelClass& model_class);
/// The same, of the field that has this attribute.
std::string_view config_key(std::string_view attribute, const ModelClass& model_class);

/// Returns the class that computes the same as a model of this shape: the one of this name, or without a name the first
/// that fits. Throws one ConfigError that lists every part of the model that the class lacks, with the reason.
const ModelClass& model_class_of(const model::ModelConfig& config, std::string_view name = "");

/// Gives `config` the modules that predict further tokens, `depths` of them by its file, if the source has their
/// tensors: files of transformers lack them. DataError for more than are possible.
void take_modules(std::int64_t depths, const TensorSource& source, model::ModelConfig& config);

/// Returns the names and layouts of the tensors of a class.
TensorMap tensor_map(const ModelClass& model_class, const model::ModelConfig& config, const MapOptions& options = {});

/// Returns other names of this tensor in files, best first: without the prefix of the base model, and names from older
/// files.
std::vector<std::string> other_names(const ModelClass& model_class, const std::string& tensor);

/// Returns whether a tensor that files may hold is not a weight: masks, positions and frequencies.
bool is_buffer(std::string_view tensor);

}  // namespace trireme::exchange

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "src/base/range.hpp"
#include "src/model/model_config.hpp"

namespace trireme::model {

/// Value of a field. An enumeration's value is its index among the field's names.
using FieldValue = std::variant<bool, std::int64_t, double, std::string>;

enum class FieldRole {
  form,     ///< any other property
  size,     ///< a dimension
  adapter,  ///< an addition of fine-tuning, which <use_checkpoint_args> leaves
  /// A property of training only. Checkpoints store it as training.OPTION, if `stored_if` holds or is null.
  training
};

/// Condition under which a field has an effect, and its name in messages.
struct Need {
  bool (*met)(const ModelConfig&) = nullptr;
  std::string_view words = "";
};

/// Key of a field in config.json, by the naming that a model class follows. Empty: the class has no such setting, and
/// all its models have the value of `exchange::class_defaults`. A key with a dot is a path, read by dedicated code.
struct ConfigKeys {
  std::string_view gpt2 = "";
  std::string_view llama = "";
  std::string_view bert = "";
};

/// A property of a model: one row of the table that drives options, validation, the log, checkpoints and foreign
/// formats. Texts name options in angle brackets, as messages do.
struct Field {
  FieldValue (*get)(const ModelConfig&) = nullptr;
  void (*set)(ModelConfig&, const FieldValue&) = nullptr;
  std::span<const std::string_view> names = {};  ///< names of an enumeration, in its order; "": cannot be chosen
  /// The value is a text of several words, separated by commas: of `item_names`, or without any numbers in `range`.
  bool is_list = false;
  std::span<const std::string_view> item_names = {};
  FieldRole role = FieldRole::form;
  Range range = {};  ///< bounds a number; ModelConfig's default is valid even outside it

  std::string_view attribute = "";  ///< name in checkpoints, after "model."; empty: not stored by this row
  /// Another attribute, present in exactly those checkpoints that store this one. Empty: stored if `stored_if` holds,
  /// or without `stored_if` if the value is not the default.
  std::string_view since = "";
  bool (*stored_if)(const ModelConfig&) = nullptr;

  std::string_view option = "";       ///< names, separated by commas
  std::string_view placeholder = "";  ///< name of the number in the help; default N, for a real number X
  std::string_view help = "";         ///< empty: dedicated code declares the option, or there is none
  int flag = -1;                      ///< value of an enumeration that the option, without a value, chooses
  Need needs = {};

  std::string_view log = "";  ///< text in the log if the value is not the default, with {} for the value
  bool logs_default = false;  ///< logs the default, too, if `stored_if` holds
  ConfigKeys keys = {};
  /// Names among the arguments in Megatron-LM's checkpoints, separated by commas, in addition to the option's names
  /// with underscores.
  std::string_view megatron = "";

  bool is_flag() const { return flag >= 0 || std::holds_alternative<bool>(get(ModelConfig())); }
  /// Value that the bare option sets: `flag`, or the opposite of the default.
  FieldValue flag_value() const;
  bool is_default(const ModelConfig& config) const { return get(config) == get(ModelConfig()); }
  /// First name of the option; without an option, the attribute.
  std::string_view name() const;
  /// Returns the name in angle brackets, for messages.
  std::string tag() const;
  /// Full name of the attribute in a checkpoint.
  std::string key() const;
  /// Returns whether the field affects `config`: checkpoints and the log then have it.
  bool is_used(const ModelConfig& config) const { return stored_if == nullptr || stored_if(config); }
  /// Reads the value from a checkpoint. CheckpointError if it is missing, malformed or out of range.
  FieldValue read(const Attributes& attributes) const;
  /// Index of `text` among `names`, if it is one of them.
  std::optional<std::int64_t> index_of(std::string_view text) const;
  /// Returns whether `text` is such a list, of at least one item.
  bool admits_list(std::string_view text) const;
  /// Selectable names, or those of the items of a list, separated by commas.
  std::string names_text() const;
  /// Description of the items of a list.
  std::string items_text() const;
  /// The value, if it is a number.
  std::optional<double> number(const ModelConfig& config) const;
  /// Value as text: the name of an enumeration value; a number in its shortest form.
  std::string text(const FieldValue& value) const;
  std::string text(const ModelConfig& config) const { return text(get(config)); }
};

/// Returns the table, in the order of the help. A row follows those that its conditions read.
std::span<const Field> fields();

/// Returns `config` with defaults for all settings that have no effect.
ModelConfig canonical(const ModelConfig& config);

/// Returns `config` with the actual numbers instead of 0, and `qkv_bias` set if the layers have those biases.
ModelConfig resolved(const ModelConfig& config);

/// Sets fields from words as on a command line, without dashes: "hidden-size 64 qk-layernorm normalization RMSNorm".
/// Throws ConfigError for an unknown field or an invalid value.
void set_fields(ModelConfig& config, std::string_view words);

}  // namespace trireme::model

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/range.hpp"
#include "src/model/model_config.hpp"

namespace trireme::model {

/// Value of a field. That of an enumeration is its index among the field's names.
using FieldValue = std::variant<bool, std::int64_t, double, std::string>;

enum class FieldRole {
  form,     ///< any property but the others
  size,     ///< a dimension
  training  ///< property of training alone: checkpoints hold it as training.OPTION
};

/// Condition under which a field is of use, and the words that name it in messages.
struct Need {
  bool (*met)(const ModelConfig&) = nullptr;
  std::string_view words = "";
};

/// Key of a field in config.json, by the kind of the model's class. Empty: the class has no such setting, and every
/// model of the class has the value of `exchange::class_defaults`. A key with a dot is a path, which code reads.
struct ConfigKeys {
  std::string_view gpt2 = "";
  std::string_view llama = "";
  std::string_view bert = "";
};

/// A fact of a model: one row of the table that the options, their check, the log, checkpoints and the formats of
/// others read. Names of options stand in angle brackets in texts, as in messages.
struct Field {
  /// The value in a configuration.
  FieldValue (*get)(const ModelConfig&) = nullptr;
  void (*set)(ModelConfig&, const FieldValue&) = nullptr;
  std::span<const std::string_view> names =
      {};  ///< names of an enumeration's values, in its order; "": cannot be chosen
  FieldRole role = FieldRole::form;
  Range range = {};  ///< range of a number; the default of ModelConfig is valid, too

  std::string_view attribute = "";  ///< name in checkpoints, behind "model."; empty: not stored by this row
  /// Attribute of the oldest checkpoints that have this one; newer ones all have it. Empty: it is stored where
  /// `stored_if` holds, or without that where the value is not the default.
  std::string_view since = "";
  bool (*stored_if)(const ModelConfig&) = nullptr;

  std::string_view option = "";       ///< names, separated by commas
  std::string_view placeholder = "";  ///< name of the number in the help; default N, of a real number X
  std::string_view help = "";         ///< empty: the option is declared by code of its own, or there is none
  int flag = -1;                      ///< value of an enumeration that the option, without a value, chooses
  Need needs = {};

  std::string_view log = "";  ///< text of the log where the value is not the default, with {} for the value
  ConfigKeys keys = {};
  /// Further names among the options of Megatron-LM's checkpoints, separated by commas. Beside them the names of the
  /// option, with underscores.
  std::string_view megatron = "";

  bool is_flag() const { return flag >= 0 || std::holds_alternative<bool>(get(ModelConfig())); }
  /// Value that the option without a value sets: `flag`, or the opposite of the default.
  FieldValue flag_value() const;
  bool is_default(const ModelConfig& config) const { return get(config) == get(ModelConfig()); }
  /// First name of the option; without an option, the attribute.
  std::string_view name() const;
  /// Name in angle brackets, for messages.
  std::string tag() const;
  /// Name of the attribute of a checkpoint.
  std::string key() const { return "model." + std::string(attribute); }
  /// Value in a checkpoint. CheckpointError if it is missing, malformed or out of range.
  FieldValue read(const Attributes& attributes) const;
  /// Index of `text` among `names`, if it is one of them.
  std::optional<std::int64_t> index_of(std::string_view text) const;
  /// Names that can be chosen, separated by commas.
  std::string names_text() const;
  /// The value, if it is a number.
  std::optional<double> number(const ModelConfig& config) const;
  /// Value as a text: a name of an enumeration; a number in its shortest form.
  std::string text(const ModelConfig& config) const;
};

/// Returns the table, in the order of the help. A row comes after those that its conditions read.
std::span<const Field> fields();

/// Returns `config` in the form of few numbers: settings without effect have their defaults.
ModelConfig canonical(const ModelConfig& config);

/// Returns `config` with the numbers that its defaults of 0 stand for, and with biases as layers have them.
ModelConfig resolved(const ModelConfig& config);

/// Sets fields by words as of a command line, without dashes: "hidden-size 64 qk-layernorm normalization RMSNorm".
/// Throws ConfigError for a word that is no field, or no value of it.
void set_fields(ModelConfig& config, std::string_view words);

}  // namespace trireme::model

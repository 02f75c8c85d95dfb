#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/model/fields.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

constexpr Range layer_count() { return between(1, model::max_layers); }

/// Options of the rows of model::fields() that have a help text.
class FieldOptions {
 public:
  /// Declares the options, of one role or of all.
  void declare(Options& options, std::optional<model::FieldRole> role = std::nullopt);
  /// Returns the given value, if any, of the option with the first name `option`.
  std::optional<model::FieldValue> value(std::string_view option) const;
  std::optional<std::int64_t> integer(std::string_view option) const;
  bool given(std::string_view option) const { return value(option).has_value(); }
  void set(std::string_view option, const model::FieldValue& value);
  void apply(model::ModelConfig& config) const;
  /// Reports given options that do not apply to `config`.
  void check(const model::ModelConfig& config, Problems& problems) const;
  /// Drops the given values, except for sizes and settings of training.
  void forget_form();

 private:
  struct Slot {
    std::optional<std::int64_t> integer;
    std::optional<double> number;
    std::vector<std::string> items;
    bool flag = false;
  };
  std::optional<model::FieldValue> value_of(std::size_t row) const;

  std::vector<Slot> slots_ = std::vector<Slot>(model::fields().size());
};

/// Options of sliding-window attention.
struct WindowOptions {
  std::optional<std::string> size;
  std::optional<std::string> skip_frequency;

  void declare(Options& options);
  /// Applies the options to `config`, whose number of layers is known.
  void apply(model::ModelConfig& config, Problems& problems) const;
};

/// Options of experts that are not rows of the table.
struct ExpertOptions {
  std::optional<std::string> layer_frequency;

  void declare(Options& options);
  /// Applies the options to `config`, which has the values of `fields`.
  void apply(const FieldOptions& fields, model::ModelConfig& config, Problems& problems) const;
};

/// Options of a model's shape.
struct ModelOptions {
  enum class Positions { learned_absolute, rope, alibi, yarn };

  std::string preset;
  std::optional<model::ModelFamily> family;
  FieldOptions fields;
  std::optional<Positions> positions;
  std::optional<Positions> rotation;  ///< --rope-type
  bool llama3_scaling = false;
  bool group_query_attention = false;
  WindowOptions window;
  ExpertOptions experts;
  std::optional<model::ModelConfig> checkpoint;  ///< model of a checkpoint, instead of a preset

  void declare(Options& options);
  /// Takes the model of a checkpoint, as Megatron-LM's --use-checkpoint-args does. A given shape stays; everything else
  /// comes from the checkpoint. Returns a line for each given value that it overrides.
  std::vector<std::string> take(const model::ModelConfig& stored);
  void declare_training(Options& options) { fields.declare(options, model::FieldRole::training); }
  /// Returns the default sequence length: the given positions, or else the preset's. Throws ConfigError if there are
  /// neither.
  std::int64_t default_sequence_length() const;
  /// Returns the requested configuration: the values of the checkpoint or preset, unless an option overrides them.
  /// Without either, positions default to the sequence length and the vocabulary to the corpus'. A BERT's vocabulary
  /// always defaults to the corpus'. It has at least `needed` tokens, by default all of the corpus'. Throws one
  /// ConfigError that lists all problems.
  model::ModelConfig config(std::int64_t sequence_length, std::int64_t corpus_vocabulary,
                            std::optional<std::int64_t> needed = {}) const;
  /// Lists the values of `config` that the preset has set besides the shape, as "name value, ..."; empty without a
  /// preset.
  std::string preset_values(const model::ModelConfig& config) const;

 private:
  bool has_base() const { return checkpoint.has_value() || !preset.empty(); }
  /// Returns the checkpoint's or the preset's configuration, or one of the model type without a shape.
  model::ModelConfig known_config(Problems& problems) const;
  /// Applies the options that do not depend on the data to `config`, which has the values of `known_config`.
  void apply_form(model::ModelConfig& config, Problems& problems) const;
  void apply_positions(model::ModelConfig& config, std::int64_t sequence_length, Problems& problems) const;
  void apply_vocabulary(model::ModelConfig& config, std::int64_t corpus_vocabulary, std::int64_t needed,
                        Problems& problems) const;
};

/// Options of initial weights.
struct InitialisationOptions {
  model::InitMethod method = model::InitMethod::normal;
  double std = 0.02;
  double scale = 1;
  bool not_scaled = false;  ///< residual matrices are initialised as the others

  void declare(Options& options);
  void check(const Options& options, Problems& problems) const;
};

}  // namespace trireme::app

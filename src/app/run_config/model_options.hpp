#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/run_config/problems.hpp"
#include "src/app/run_config/window_options.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

/// Range of a number of layers.
constexpr Range layer_count() { return between(1, model::max_layers); }

/// Options of positions: a learned table or rotary positions, and the scaling of their frequencies.
struct PositionOptions {
  enum class Kind { learned_absolute, rope, yarn };
  std::optional<Kind> kind;
  bool rotary = false;
  std::optional<double> rotary_base;
  std::optional<double> rotary_percent;
  bool llama3_scaling = false;
  std::optional<double> llama3_factor;
  std::optional<double> yarn_factor;
  std::optional<std::int64_t> yarn_positions;
  std::optional<double> yarn_beta_fast;
  std::optional<double> yarn_beta_slow;
  std::optional<double> yarn_mscale;
  std::optional<double> yarn_mscale_all_dim;
  std::optional<double> interpolation;

  void declare(Options& options);
  /// Applies the options to `config`, which has the preset's values.
  void apply(model::ModelConfig& config, Problems& problems) const;

 private:
  void apply_scaling(model::RotaryScaling& scaling, Problems& problems) const;
};

/// Options of a model's shape.
struct ModelOptions {
  std::string preset;
  std::optional<model::ModelFamily> family;
  std::optional<int> layers;
  std::optional<std::int64_t> hidden;
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> kv_channels;
  std::optional<std::int64_t> ffn_hidden;
  std::optional<std::int64_t> max_positions;
  std::optional<std::int64_t> vocabulary;
  std::optional<Activation> activation;
  bool squared_relu = false;
  std::optional<double> hidden_dropout;
  std::optional<double> attention_dropout;
  std::optional<double> norm_epsilon;
  std::optional<model::Normalization> normalization;
  bool norm_1p = false;
  PositionOptions positions;
  WindowOptions window;
  bool swiglu = false;
  bool group_query_attention = false;
  std::optional<std::int64_t> query_groups;
  bool untied_output = false;
  bool no_linear_bias = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool post_norm = false;
  bool no_binary_head = false;
  std::optional<model::ModelConfig> checkpoint;  ///< model of a checkpoint, in the place of a preset

  void declare(Options& options);
  /// Takes the model of a checkpoint, as Megatron-LM's --use-checkpoint-args does. A shape that was given stays; all
  /// else is the checkpoint's. Returns a line for each value that was given otherwise.
  std::vector<std::string> take(const model::ModelConfig& stored);
  /// Declares the options that no checkpoint holds.
  void declare_dropout(Options& options);
  /// Returns the sequence length of a run that gives none: the positions given, or else the preset's. Throws
  /// ConfigError where there are neither.
  std::int64_t default_sequence_length() const;
  /// Returns the configuration asked for. The values of a checkpoint or preset hold where no option overrides them;
  /// without one, positions default to the sequence length and the vocabulary to the corpus'. A BERT's vocabulary is
  /// always the corpus'. Throws one ConfigError that lists what is missing or does not fit.
  model::ModelConfig config(std::int64_t sequence_length, std::int64_t corpus_vocabulary) const;
  /// Lists the values of `config` beside the shape that the preset has set, as "name value, ..."; empty without a
  /// preset.
  std::string preset_values(const model::ModelConfig& config) const;

 private:
  bool has_base() const { return checkpoint.has_value() || !preset.empty(); }
  /// Returns the checkpoint's or the preset's configuration, or one of the model type without a shape.
  model::ModelConfig known_config(Problems& problems) const;
  /// Applies the differences from GPT-2 to `config`.
  void apply_variants(model::ModelConfig& config, Problems& problems) const;
  /// Applies BERT's own options to `config`.
  void apply_bert(model::ModelConfig& config, Problems& problems) const;
  void apply_positions(model::ModelConfig& config, std::int64_t sequence_length, Problems& problems) const;
  void apply_vocabulary(model::ModelConfig& config, std::int64_t corpus_vocabulary, Problems& problems) const;
};

/// Options of initial weights.
struct InitialisationOptions {
  model::InitMethod method = model::InitMethod::normal;
  double std = 0.02;
  double scale = 1;

  void declare(Options& options);
  void check(const Options& options, Problems& problems) const;
};

}  // namespace trireme::app

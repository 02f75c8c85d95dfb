#pragma once

#include <optional>
#include <string>

#include "mpi/run_main.hpp"
#include "src/app/options/options.hpp"
#include "src/backend/backend.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/model/gpt_config.hpp"
#include "src/parallel/pipeline/pipeline_layout.hpp"

namespace trireme::app {

/// The ranges of a number of ranks along one axis of the grid, and of a number of layers or of chunks of them.
constexpr Range rank_count() { return between(1, 99999); }  // names of checkpoints' files have five digits
constexpr Range layer_count() { return between(1, model::max_layers); }

/// Options of a model's shape.
struct ModelOptions {
  std::string preset;
  std::optional<int> layers;
  std::optional<std::int64_t> hidden;
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> ffn_hidden;
  std::optional<std::int64_t> max_positions;
  std::optional<std::int64_t> vocabulary;
  std::optional<Activation> activation;
  std::optional<double> hidden_dropout;
  std::optional<double> attention_dropout;
  double norm_epsilon = 1e-5;
  std::optional<model::Normalization> normalization;
  std::optional<model::PositionEmbedding> position_embedding;
  bool rotary_positions = false;
  std::optional<double> rotary_base;
  std::optional<double> rotary_percent;
  bool swiglu = false;
  bool group_query_attention = false;
  std::optional<std::int64_t> query_groups;
  bool untied_output = false;
  bool no_linear_bias = false;

  void declare(Options& options);
  /// The configuration asked for. A preset's values hold where no option overrides them; without one, positions default
  /// to the sequence length and the vocabulary to the corpus'. Throws ConfigError where something is missing or does
  /// not fit.
  model::GptConfig config(std::int64_t sequence_length, std::int64_t corpus_vocabulary) const;
  /// The values of `config` beside the shape that the preset has set, as "name value, ..."; empty without a preset.
  std::string preset_values(const model::GptConfig& config) const;

 private:
  /// Applies the differences from GPT-2 to `config`.
  void apply_variants(model::GptConfig& config) const;
  void apply_positions(model::GptConfig& config, std::int64_t sequence_length) const;
  void apply_vocabulary(model::GptConfig& config, std::int64_t corpus_vocabulary) const;
};

/// The option `--schedule`.
void declare_schedule(Options& options, std::optional<parallel::ScheduleKind>* schedule);

/// Options of the device and what lies between devices, for every command that runs a model. What only a GPU can do is
/// refused where the backend is the CPU.
struct DeviceOptions {
  BackendChoice backend = BackendChoice::automatic;
  std::optional<DeviceTransport> communicator;
  bool check_launches = false;
  bool allow_tf32 = false;
  bool deterministic = false;
  std::string gemm_cache;
  double timeout_minutes = 10;
  double startup_timeout_minutes = mpi::default_startup_timeout_minutes;

  void declare(Options& options);
  /// Options of the backend of one rank.
  BackendOptions backend_options(int world_rank, int local_rank) const;
  /// ConfigError, listing them, where there are options that this backend has no use for. `reason` is why it is this
  /// one.
  void check(const Options& options, const Backend& backend, const std::string& reason) const;
};

/// The option `--startup-timeout-minutes`, which counts before MPI and the command's own options are there.
double startup_timeout_minutes(const std::vector<std::string>& arguments);

/// ConfigError where `backend` cannot train in `dtype`.
void check_training_type(const Backend& backend, DType dtype);

/// Options of the grid and the device, for every command that runs a model.
struct GridOptions {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  parallel::PipelineSplit cut;  ///< without its list of layers, which is `pipeline_layout`
  std::string pipeline_layout;
  DeviceOptions device;
  std::int64_t vocabulary_multiple = 128;
  std::int64_t padded_vocabulary = 0;

  void declare(Options& options);
  /// The grid alone, without the device.
  void declare_layout(Options& options, const std::string& title);
  /// How the layers are to be shared out. ConfigError where the list of layers is none.
  parallel::PipelineSplit pipeline_split() const;
};

}  // namespace trireme::app

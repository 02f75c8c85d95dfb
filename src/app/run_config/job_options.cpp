#include "src/app/run_config/job_options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "src/app/options/printable.hpp"
#include "src/model/presets.hpp"

namespace trireme::app {

void ModelOptions::declare(Options& options) {
  options.section("Model");
  options.add("model", &preset, "NAME",
              "Preset: " + model::preset_names() +
                  ". gpt2-8.3b has the 24 heads of 128 that were trained, gpt2-8.3b-scaling the 32 of 96 of the "
                  "scaling study. A preset sets vocabulary, positions and dropout, too; single options override it.");
  options.add("num-layers", &layers, "N", "Transformer layers.", layer_count());
  options.add("hidden-size", &hidden, "N", "Width of the residual stream.", countable());
  options.add("num-attention-heads", &heads, "N", "Attention heads.", countable());
  options.add("ffn-hidden-size", &ffn_hidden, "N",
              "Width of the feed-forward block; default 4 x hidden size, with --swiglu two thirds of that down to a "
              "multiple of 64.",
              countable());
  options.add("max-position-embeddings", &max_positions, "N",
              "Longest sequence; default the preset's, else the sequence length.", countable());
  options.add("vocab-size", &vocabulary, "N", "True size of the vocabulary; default the preset's, else the corpus'.",
              countable());
  options.add_choice<std::optional<Activation>>("gelu", &activation,
                                                {{"tanh", Activation::gelu_tanh}, {"erf", Activation::gelu_erf}},
                                                "Form of the activation; default tanh.");
  options.add("hidden-dropout", &hidden_dropout, "P",
              "Probability of dropping an element of a hidden state; default the preset's, else 0.1.",
              between(0, 0.99));
  options.add("attention-dropout", &attention_dropout, "P",
              "Probability of dropping an attention weight; default the preset's, else 0.1.", between(0, 0.99));
  options.add("layernorm-epsilon,norm-epsilon", &norm_epsilon, "X", "Added to the variance in normalisation.",
              at_least(0));
  options.add_choice<std::optional<model::Normalization>>(
      "normalization", &normalization,
      {{"LayerNorm", model::Normalization::layer_norm}, {"RMSNorm", model::Normalization::rms_norm}},
      "Kind of normalisation; default LayerNorm.");
  options.add_choice<std::optional<model::PositionEmbedding>>(
      "position-embedding-type", &position_embedding,
      {{"learned_absolute", model::PositionEmbedding::learned_absolute}, {"rope", model::PositionEmbedding::rope}},
      "Positions: a learned table (default), or rotation of queries and keys.");
  options.add_flag("use-rotary-position-embeddings", &rotary_positions, "The same as --position-embedding-type rope.");
  options.add("rotary-base", &rotary_base, "X", "Base of the rotary frequencies; default 10000.", at_least(0));
  options.add("rotary-percent", &rotary_percent, "X", "Share of a head's channels that rotate; default 1.",
              between(0, 1));
  options.add_flag("swiglu", &swiglu, "Gated feed-forward block, silu(gate) x up, instead of GELU.");
  options.add_flag("group-query-attention", &group_query_attention,
                   "Let several heads of queries share a head of keys and values.");
  options.add("num-query-groups", &query_groups, "N",
              "Heads of keys and values with --group-query-attention; default 1.", countable());
  options.add_flag("untie-embeddings-and-output-weights", &untied_output,
                   "Give the output its own matrix instead of the token embedding's.");
  options.add_flag("disable-bias-linear", &no_linear_bias, "Linear layers have no biases.");
}

model::GptConfig ModelOptions::config(std::int64_t sequence_length, std::int64_t corpus_vocabulary) const {
  model::GptConfig config;
  if (!preset.empty()) {
    config = model::preset(preset);
  } else {
    TRIREME_CHECK(layers && hidden && heads, ConfigError,
                  "the model's shape is missing: give --model, or --num-layers, --hidden-size and "
                  "--num-attention-heads");
  }
  const model::GptConfig known = config;
  apply_variants(config);
  config.layers = layers.value_or(config.layers);
  config.hidden = hidden.value_or(config.hidden);
  config.heads = heads.value_or(config.heads);
  const bool as_known = !preset.empty() && config.hidden == known.hidden && config.swiglu == known.swiglu;
  config.ffn_hidden =
      ffn_hidden.value_or(as_known ? known.ffn_hidden : model::default_ffn_hidden(config.hidden, config.swiglu));
  TRIREME_CHECK(config.ffn_hidden > 0, ConfigError,
                "--swiglu at --hidden-size {}: two thirds of 4 x {} are less than 64 columns; give --ffn-hidden-size",
                config.hidden, config.hidden);
  config.hidden_dropout = hidden_dropout.value_or(config.hidden_dropout);
  config.attention_dropout = attention_dropout.value_or(config.attention_dropout);
  config.norm_epsilon = norm_epsilon;
  apply_positions(config, sequence_length);
  apply_vocabulary(config, corpus_vocabulary);
  model::validate(config);
  return config;
}

void ModelOptions::apply_positions(model::GptConfig& config, std::int64_t sequence_length) const {
  const bool from_preset = !preset.empty() && !max_positions;
  const bool rotary = config.position_embedding == model::PositionEmbedding::rope;
  config.max_positions = max_positions.value_or(preset.empty() ? sequence_length : config.max_positions);
  // Rotary positions have no table that could be too short.
  if (from_preset && rotary) config.max_positions = std::max(config.max_positions, sequence_length);
  TRIREME_CHECK(
      !from_preset || config.max_positions >= sequence_length, ConfigError,
      "--seq-length {} is longer than the {} positions of --model {}: give --max-position-embeddings {} for a "
      "longer table, or a shorter --seq-length",
      sequence_length, config.max_positions, preset, sequence_length);
  TRIREME_CHECK(config.max_positions >= sequence_length, ConfigError,
                "--max-position-embeddings {} is smaller than --seq-length {}", config.max_positions, sequence_length);
}

void ModelOptions::apply_vocabulary(model::GptConfig& config, std::int64_t corpus_vocabulary) const {
  config.vocabulary = vocabulary.value_or(preset.empty() ? corpus_vocabulary : config.vocabulary);
  TRIREME_CHECK(vocabulary || config.vocabulary >= corpus_vocabulary, ConfigError,
                "the vocabulary of --model {} has {} tokens, the corpus' {}: build the corpus with the model's "
                "tokenizer, or give --vocab-size {}",
                preset, config.vocabulary, corpus_vocabulary, corpus_vocabulary);
  TRIREME_CHECK(config.vocabulary >= corpus_vocabulary, ConfigError,
                "--vocab-size {} is smaller than the corpus' vocabulary of {} tokens", config.vocabulary,
                corpus_vocabulary);
}

std::string ModelOptions::preset_values(const model::GptConfig& config) const {
  if (preset.empty()) return "";
  std::string text;
  const auto add = [&](bool given, const char* name, auto value) {
    if (!given) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  add(vocabulary.has_value(), "vocab-size", config.vocabulary);
  add(max_positions.has_value(), "max-position-embeddings", config.max_positions);
  add(hidden_dropout.has_value(), "hidden-dropout", config.hidden_dropout);
  add(attention_dropout.has_value(), "attention-dropout", config.attention_dropout);
  return text;
}

void declare_schedule(Options& options, std::optional<parallel::ScheduleKind>* schedule) {
  std::vector<std::pair<std::string, std::optional<parallel::ScheduleKind>>> choices;
  for (const auto kind : {parallel::ScheduleKind::one_forward_one_backward, parallel::ScheduleKind::gpipe,
                          parallel::ScheduleKind::interleaved, parallel::ScheduleKind::zero_bubble}) {
    choices.emplace_back(parallel::to_string(kind), kind);
  }
  options.add_choice("schedule", schedule, choices,
                     "Order of forwards and backwards in a pipeline; default 1f1b, or interleaved where --vpp > 1.");
}

void ModelOptions::apply_variants(model::GptConfig& config) const {
  config.normalization = normalization.value_or(config.normalization);
  TRIREME_CHECK(!rotary_positions || position_embedding != model::PositionEmbedding::learned_absolute, ConfigError,
                "--use-rotary-position-embeddings and --position-embedding-type learned_absolute exclude each other");
  config.position_embedding =
      position_embedding.value_or(rotary_positions ? model::PositionEmbedding::rope : config.position_embedding);
  TRIREME_CHECK((!rotary_base && !rotary_percent) || config.position_embedding == model::PositionEmbedding::rope,
                ConfigError, "--rotary-base and --rotary-percent need --position-embedding-type rope");
  config.rotary_base = rotary_base.value_or(config.rotary_base);
  config.rotary_percent = rotary_percent.value_or(config.rotary_percent);
  config.swiglu = config.swiglu || swiglu;
  TRIREME_CHECK(!activation || !config.swiglu, ConfigError, "--gelu and --swiglu exclude each other");
  config.activation = activation.value_or(config.activation);
  TRIREME_CHECK(!query_groups || group_query_attention, ConfigError,
                "--num-query-groups {} needs --group-query-attention", query_groups.value_or(0));
  if (group_query_attention) config.query_groups = query_groups.value_or(1);
  config.tied_output = config.tied_output && !untied_output;
  config.linear_bias = config.linear_bias && !no_linear_bias;
}

void GridOptions::declare_layout(Options& options, const std::string& title) {
  options.section(title);
  options.add("tensor-model-parallel-size,tp", &tensor, "N", "Ranks that divide every layer.", rank_count());
  options.add("pipeline-model-parallel-size,pp", &pipeline, "N", "Ranks that divide the layers among them.",
              rank_count());
  options.add(
      "context-parallel-size,cp", &context, "N",
      "Ranks that divide each sequence: each holds two chunks of it, and attention passes keys and values round.",
      rank_count());
  options.add("num-virtual-stages-per-pipeline-rank,vpp", &cut.chunks, "N",
              "Chunks of layers on each pipeline rank; default 1.", layer_count());
  options.add("num-layers-per-virtual-pipeline-stage", &cut.layers_per_chunk, "N", "The same, as layers per chunk.",
              layer_count());
  options.add("pipeline-model-parallel-layout", &pipeline_layout, "N,N,...",
              "Layers of every chunk in the order in which data passes them (chunk 0 of each rank, then chunk 1 ...); "
              "the first and the last may have none.");
  options.add("decoder-first-pipeline-num-layers", &cut.first_stage, "N",
              "Layers of the first pipeline rank; the others share the rest equally.", layer_count());
  options.add("decoder-last-pipeline-num-layers", &cut.last_stage, "N", "Layers of the last pipeline rank.",
              layer_count());
  options.add_flag("standalone-embedding-stage", &cut.standalone_embedding,
                   "The first pipeline rank holds the embedding and no layers.");
  options.add(
      "make-vocab-size-divisible-by", &vocabulary_multiple, "N",
      "The vocabulary is padded to a multiple of this times the tensor ranks; padding takes no part in the loss.",
      countable());
  options.add("padded-vocab-size", &padded_vocabulary, "N",
              "Pad the vocabulary to this size instead; 0: by the multiple.", between(0, countable().greatest));
}

void GridOptions::declare(Options& options) {
  declare_layout(options, "Grid (data ranks: ranks / (tensor x pipeline x context))");
  device.declare(options);
}

namespace {

void declare_startup_timeout(Options& options, double* minutes) {
  options.add("startup-timeout-minutes", minutes, "X",
              "A job whose ranks have not all reached MPI_Init after this time ends with exit code 7; 0: they wait for "
              "ever.",
              at_least(0));
}

}  // namespace

double startup_timeout_minutes(const std::vector<std::string>& arguments) {
  double minutes = mpi::default_startup_timeout_minutes;
  Options options("trireme", "");
  declare_startup_timeout(options, &minutes);
  options.parse_known(arguments);
  return minutes;
}

void DeviceOptions::declare(Options& options) {
  options.section("Device");
  options.add_choice("backend", &backend,
                     {{"auto", BackendChoice::automatic}, {"cpu", BackendChoice::cpu}, {"cuda", BackendChoice::cuda}},
                     "auto takes the GPU where every rank can use one, else the CPU where none can.");
  options.add_choice<std::optional<DeviceTransport>>(
      "communicator", &communicator, {{"nccl", DeviceTransport::nccl}, {"staged", DeviceTransport::staged}},
      "How GPUs communicate: nccl (the default), or staged through host memory by MPI, which is slow and lets several "
      "ranks share a GPU.");
  options.add("distributed-timeout-minutes", &timeout_minutes, "X",
              "A rank that has waited this long for others ends the job with exit code 7 and names those that do not "
              "answer; 0: ranks wait for ever.",
              at_least(0));
  declare_startup_timeout(options, &startup_timeout_minutes);
  options.add_flag("deterministic-mode", &deterministic,
                   "Compute the same bits in every run on one grid, on GPUs too: products use cuBLASLt's first "
                   "suggestion that runs, not the fastest. The CPU always does.");
  options.add_flag("allow-tf32", &allow_tf32, "GPU: products of fp32 may round their inputs to TF32 (10 bits).");
  options.add("gemm-cache", &gemm_cache, "FILE",
              "GPU: file with the fastest algorithm of each product, or 'none'; default trireme/gemm_algorithms in the "
              "user's cache folder.");
  options.add_flag("check-launches", &check_launches,
                   "GPU: wait for every kernel, so that an error names the one that caused it; slow.");
}

namespace {

/// By the XDG base directories; empty where the user has no home.
std::string default_gemm_cache() {
  const char* caches = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (caches != nullptr && *caches == '/') return std::string(caches) + "/trireme/gemm_algorithms";
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/trireme/gemm_algorithms";
  return "";
}

}  // namespace

BackendOptions DeviceOptions::backend_options(int world_rank, int local_rank) const {
  BackendOptions options;
  options.world_rank = world_rank;
  options.local_rank = local_rank;
  options.check_launches = check_launches;
  options.allow_reduced_precision = allow_tf32;
  options.deterministic = deterministic;
  options.max_wait_s = 60 * timeout_minutes;
  if (gemm_cache != "none") options.algorithm_cache = gemm_cache.empty() ? default_gemm_cache() : gemm_cache;
  return options;
}

void DeviceOptions::check(const Options& options, const Backend& backend, const std::string& reason) const {
  if (backend.supports(Capability::algorithm_cache)) {
    TRIREME_CHECK(!deterministic || gemm_cache.empty() || gemm_cache == "none", ConfigError,
                  "--gemm-cache {} keeps the fastest algorithms, which --deterministic-mode does not look for: leave "
                  "one of them out",
                  gemm_cache);
  }
  std::string idle;
  for (const auto& [name, capability] : {std::pair{"communicator", Capability::device_communicators},
                                         {"allow-tf32", Capability::reduced_precision},
                                         {"gemm-cache", Capability::algorithm_cache},
                                         {"check-launches", Capability::launch_checks},
                                         {"cuda-graphs", Capability::graphs}}) {
    if (options.given(name) && !backend.supports(capability))
      idle += (idle.empty() ? "--" : ", --") + std::string(name);
  }
  TRIREME_CHECK(idle.empty(), ConfigError, "{}: for GPUs alone, and this job runs on the backend {} ({}); leave out {}",
                idle, backend.name(), reason, idle.find(',') == std::string::npos ? "the option" : "these options");
}

void check_training_type(const Backend& backend, DType dtype) {
  TRIREME_CHECK(backend.supports(Capability::fp64_training) || dtype != DType::fp64, ConfigError,
                "--dtype fp64: the CUDA backend computes in fp32, bf16 and fp16; use --backend cpu");
}

parallel::PipelineSplit GridOptions::pipeline_split() const {
  parallel::PipelineSplit result = cut;
  for (std::size_t begin = 0; !pipeline_layout.empty() && begin <= pipeline_layout.size();) {
    const std::size_t end = std::min(pipeline_layout.find(',', begin), pipeline_layout.size());
    int layers = 0;
    const char* last = pipeline_layout.data() + end;
    const auto [stop, error] = std::from_chars(pipeline_layout.data() + begin, last, layers);
    TRIREME_CHECK(error == std::errc() && stop == last && layers >= 0 && layers <= model::max_layers, ConfigError,
                  "--pipeline-model-parallel-layout {}: '{}' is not a number of layers", shortened(pipeline_layout),
                  shortened(pipeline_layout.substr(begin, end - begin)));
    result.layers.push_back(layers);
    begin = end + 1;
  }
  return result;
}

}  // namespace trireme::app

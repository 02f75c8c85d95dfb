#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/model/fields.hpp"
#include "tests/support/training_run.hpp"

// Runs of small models that PyTorch computed in fp64. Compile with TRIREME_FIXTURES, their folder.

namespace trireme::test {

struct SyntheticRun {
  TrainingRunConfig config;
  std::int64_t parameters = 0;
  Curve curve;

  /// Keeps only the first steps.
  void shorten(std::int64_t steps) {
    config.steps = steps;
    curve.loss.resize(static_cast<std::size_t>(steps));
    curve.grad_norm.resize(static_cast<std::size_t>(steps));
  }
};

/// Returns how a run of this name compares with one of this program.
inline Comparison comparison_of(const std::string& name) {
  return name == "synthetic" || name == "llama" ? Comparison::pytorch : Comparison::pytorch_hot;
}

/// Runs of a file of tests/fixtures.
inline nlohmann::json runs_of(const std::string& file) {
  const char* elsewhere = std::getenv("TRIREME_FIXTURES");  // where the program was carried to
  std::ifstream stream(std::string(elsewhere != nullptr ? elsewhere : TRIREME_FIXTURES) + "/" + file);
  return nlohmann::json::parse(stream)["runs"];
}

/// Reads the fields that the runs of all models have.
inline SyntheticRun run_from(const nlohmann::json& run) {
  const nlohmann::json& shape = run["config"];
  SyntheticRun result;
  TrainingRunConfig& config = result.config;
  config.model.layers = shape["L"];
  config.model.hidden = shape["H"];
  config.model.heads = shape["heads"];
  config.model.ffn_hidden = shape.value("F", 4 * config.model.hidden);
  config.model.vocabulary = shape["V"];
  config.model.max_positions = shape["T"];
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  config.s = shape["T"];
  config.batch = shape["B"];
  config.init_method = model::InitMethod::hashed_uniform;
  config.init_scale = shape.value("scale", 1.0);
  config.steps = 20;
  result.parameters = run["parameters"];
  result.curve = {run["loss"], run["grad_norm"], {}};
  return result;
}

/// Sets what the options of a run's `shape` change in a GPT-2.
inline void set_form(const nlohmann::json& shape, model::ModelConfig& model) {
  model.query_groups = shape.value("kv_heads", 0);
  model.kv_channels = shape.value("kv_channels", 0);
  if (shape.value("norm", "") == "RMSNorm") model.normalization = model::Normalization::rms_norm;
  if (shape.value("positions", "") == "rope") model.position_embedding = model::PositionEmbedding::rope;
  model.rotary_base = shape.value("rotary_base", model.rotary_base);
  model.rotary_percent = shape.value("rotary_percent", model.rotary_percent);
  model.gated = shape.value("swiglu", model.gated);
  model.linear_bias = shape.value("linear_bias", model.linear_bias);
  model.qk_norm = shape.value("qk_norm", false);
  if (const std::string scaling = shape.value("scaling", ""); !scaling.empty()) {
    const bool yarn = scaling == "yarn";
    model.rotary_scaling = {yarn ? model::RotaryScalingKind::yarn : model::RotaryScalingKind::llama3,
                            shape["factor"],
                            shape["original_positions"],
                            shape[yarn ? "beta_slow" : "low"],
                            shape[yarn ? "beta_fast" : "high"],
                            shape.value("mscale", 1.0),
                            shape.value("mscale_all_dim", 0.0)};
  }
  model.rotary_scaling.interpolation = shape.value("interpolation", 1.0);
  if (shape.contains("window")) {
    model.window.left = shape["window"];
    for (const int layer : shape.value("window_layers", std::vector<int>())) {
      model.window.layers += layer == 0 ? '0' : '1';
    }
  }
  model.qkv_bias = shape.value("qkv_bias", false);
  model.norm_1p = shape.value("norm_1p", false);
  if (shape.value("squared_relu", false)) model.activation = Activation::squared_relu;
  model.tied_output = shape.value("tied_output", model.tied_output);
  model.ahead.depths = shape.value("mtp", 0);
  model.ahead.loss_factor = shape.value("mtp_factor", model.ahead.loss_factor);
}

/// "synthetic", or "synthetic_hot", whose initial matrices are 16 times as large; "llama", "llama_hot", and "mixed" of
/// both families; "modules_ahead" and "module_ahead_tied", which predict further tokens; the others have the layers of
/// the models that name them.
inline SyntheticRun synthetic_run(const std::string& name) {
  const bool is_gpt2 = name.starts_with("synthetic");
  const nlohmann::json run =
      runs_of(is_gpt2 ? "synthetic_runs.json" : "llama_runs.json")[is_gpt2 ? name + "_fp64" : name];
  SyntheticRun result = run_from(run);
  set_form(run["config"], result.config.model);
  return result;
}

/// Adapters of a GPT-2, a Llama or a DeepSeek.
inline SyntheticRun adapter_run(const std::string& name) {
  const nlohmann::json run = runs_of("adapters/runs.json")[name];
  const nlohmann::json& shape = run["config"];
  SyntheticRun result = run_from(run);
  set_form(shape, result.config.model);
  if (shape.contains("options")) model::set_fields(result.config.model, shape["options"].get<std::string>());
  model::set_fields(result.config.model,
                    fmt::format("lora-rank {} lora-alpha {} lora-targets {}{}", shape["rank"].get<int>(),
                                shape["alpha"].get<double>(), shape["targets"].get<std::string>(),
                                shape.value("rslora", false) ? " use-rslora" : ""));
  return result;
}

/// A BERT: arrangement a (post-norm) or b (pre-norm) and form of GELU, as "bert_a_erf", "bert_b_tanh" and
/// "bert_b_hot_erf".
inline SyntheticRun bert_run(const std::string& name) {
  const nlohmann::json run = runs_of("bert_runs.json")[name];
  SyntheticRun result = run_from(run);
  model::ModelConfig& model = result.config.model;
  model.family = model::ModelFamily::bert;
  if (run["config"]["arch"] == "a") model.norm_placement = model::NormPlacement::post;
  model.activation = run["config"]["gelu"] == "erf" ? Activation::gelu_erf : Activation::gelu_tanh;
  result.config.bert_rows = result.config.batch;
  return result;
}

}  // namespace trireme::test

#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/training_run.hpp"

// Runs of a small model that PyTorch computed in fp64. Compile with TRIREME_FIXTURES, the folder they are in.

namespace trireme::test {

struct SyntheticRun {
  TrainingRunConfig config;
  std::int64_t parameters = 0;
  Curve curve;

  /// Only so many steps of it.
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

/// "synthetic", or "synthetic_hot", whose initial matrices are 16 times as large; "llama", "llama_hot", and "mixed" of
/// both families.
inline SyntheticRun synthetic_run(const std::string& name) {
  const bool is_gpt2 = name.starts_with("synthetic");
  const char* elsewhere = std::getenv("TRIREME_FIXTURES");  // where the program was carried to
  std::ifstream file(std::string(elsewhere != nullptr ? elsewhere : TRIREME_FIXTURES) +
                     (is_gpt2 ? "/synthetic_runs.json" : "/llama_runs.json"));
  const nlohmann::json run = nlohmann::json::parse(file)["runs"][is_gpt2 ? name + "_fp64" : name];
  const nlohmann::json& shape = run["config"];
  SyntheticRun result;
  TrainingRunConfig& config = result.config;
  config.model.layers = shape["L"];
  config.model.hidden = shape["H"];
  config.model.heads = shape["heads"];
  config.model.query_groups = shape.value("kv_heads", 0);
  config.model.ffn_hidden = shape.value("F", 4 * config.model.hidden);
  config.model.vocabulary = shape["V"];
  config.model.max_positions = shape["T"];
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  if (shape.value("norm", "") == "RMSNorm") config.model.normalization = model::Normalization::rms_norm;
  if (shape.value("positions", "") == "rope") config.model.position_embedding = model::PositionEmbedding::rope;
  config.model.rotary_base = shape.value("rotary_base", config.model.rotary_base);
  config.model.rotary_percent = shape.value("rotary_percent", config.model.rotary_percent);
  config.model.swiglu = shape.value("swiglu", config.model.swiglu);
  config.model.linear_bias = shape.value("linear_bias", config.model.linear_bias);
  config.model.tied_output = shape.value("tied_output", config.model.tied_output);
  config.s = shape["T"];
  config.batch = shape["B"];
  config.init_method = model::InitMethod::hashed_uniform;
  config.init_scale = shape.value("scale", 1.0);
  config.steps = 20;
  result.parameters = run["parameters"];
  result.curve = {run["loss"], run["grad_norm"]};
  return result;
}

}  // namespace trireme::test

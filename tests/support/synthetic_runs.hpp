#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/training_run.hpp"

// Runs of a small model that PyTorch computed in fp64. Compile with TRIREME_FIXTURES, the folder they are in.

namespace trireme::test {

struct SyntheticRun {
  RunConfig config;
  std::int64_t parameters = 0;
  Curve curve;
};

/// "synthetic", or "synthetic_hot", whose initial matrices are 16 times as large.
inline SyntheticRun synthetic_run(const std::string& name) {
  const char* elsewhere = std::getenv("TRIREME_FIXTURES");  // where the program was carried to
  std::ifstream file(std::string(elsewhere != nullptr ? elsewhere : TRIREME_FIXTURES) + "/synthetic_runs.json");
  const nlohmann::json run = nlohmann::json::parse(file)["runs"][name + "_fp64"];
  const nlohmann::json& shape = run["config"];
  SyntheticRun result;
  RunConfig& config = result.config;
  config.model.layers = shape["L"];
  config.model.hidden = shape["H"];
  config.model.heads = shape["heads"];
  config.model.ffn_hidden = 4 * config.model.hidden;
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
  result.curve = {run["loss"], run["grad_norm"]};
  return result;
}

}  // namespace trireme::test

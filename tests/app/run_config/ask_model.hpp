#pragma once

#include <string>

#include "src/app/run_config/model_options.hpp"
#include "tests/app/words.hpp"

namespace trireme::app {

/// Model that a command line asks for.
struct Asked {
  model::ModelConfig config;
  std::string preset_values;
};

inline Asked ask(const Words& words, std::int64_t sequence_length, std::int64_t corpus_vocabulary) {
  ModelOptions model;
  Options options("test", "");
  model.declare(options);
  options.parse(words);
  const model::ModelConfig config = model.config(sequence_length, corpus_vocabulary);
  return {config, model.preset_values(config)};
}

}  // namespace trireme::app

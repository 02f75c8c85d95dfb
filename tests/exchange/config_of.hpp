#pragma once

#include <string>

#include "io/huggingface/config_json.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::io {

/// Returns the model of a config.json that begins with the class: `LlamaForCausalLM"], "hidden_size": 64`.
inline model::ModelConfig config_of(const std::string& settings) {
  return parse_config_json("{\"architectures\": [\"" + settings + "}", "config.json").config;
}
/// Returns the message of its error.
inline std::string error_of(const std::string& settings) {
  return test::message_of<DataError>([&] { config_of(settings); });
}

}  // namespace trireme::io

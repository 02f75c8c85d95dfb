#pragma once

#include <string>

#include "src/exchange/adapters.hpp"

namespace trireme::io {

/// Parses the adapter_config.json of PEFT; `path` is for messages. `targets` are not set: the tensors tell them. Throws
/// DataError if it is damaged, or lists all settings that are not supported.
model::LowRankAdapters parse_adapter_json(const std::string& text, const std::string& path);
model::LowRankAdapters read_adapter_json(const std::string& path);

/// Returns the content of adapter_config.json. `predicts_next` says whether the model is one that PEFT calls CAUSAL_LM.
std::string adapter_json(const exchange::PeftAdapters& peft, bool predicts_next);

}  // namespace trireme::io

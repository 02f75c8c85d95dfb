#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

/// Reads how a BPE in `file`, a tokenizer.json, changes and cuts text: its `normalizer`, `pre_tokenizer` and, if it has
/// `characters`, its `decoder`. Throws DataError naming the part that cannot be reproduced exactly; `path` is for
/// messages.
void read_huggingface_form(const nlohmann::json& file, const std::string& path, data::BpeVocabulary& vocabulary);

/// Sets these parts of a tokenizer.json.
void write_huggingface_form(const data::BpeVocabulary& vocabulary, nlohmann::ordered_json& file);

}  // namespace trireme::io

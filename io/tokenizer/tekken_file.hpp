#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/tokenizer/huggingface_file.hpp"

namespace trireme::io {

/// Returns whether `file` is Mistral's tekken.json, not a tokenizer.json.
bool is_tekken(const nlohmann::json& file);

/// Reads a tekken.json: a byte-level BPE of tiktoken, whose special tokens have the first ids. Files without
/// 'special_tokens' have those of version v3. As in mistral-common, special tokens without a name are <SPECIAL_N>, and
/// tokens beyond 'default_vocab_size' are left out. Names of special tokens in texts are ordinary text. Throws
/// DataError naming the part that is damaged; `path` is for messages.
data::BpeVocabulary read_tekken(const nlohmann::json& file, const std::string& path, const EndNames& end);

/// Sets the roles of the special tokens of a tokenizer made from tekken.json. Returns what a tokenizer.json says of
/// them: `added_tokens`, and a `post_processor` that puts the token of the beginning before a text, as mistral-common
/// does.
nlohmann::json tekken_settings(data::Tokenizer& tokenizer);

}  // namespace trireme::io

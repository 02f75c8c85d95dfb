#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

inline constexpr const char* tokenizer_settings_name = "tokenizer_config.json";
/// Name under which `SpecialTokens::files` holds the member of tokenizer.json.
inline constexpr const char* post_processor_name = "post_processor";

/// Sets the special tokens of a tokenizer by the files of its folder: added tokens and post-processor of
/// tokenizer.json, whose content is `file` (null if there is none), the roles of tokenizer_config.json or
/// special_tokens_map.json, and the ends of generation_config.json. As in transformers, `add_bos_token` and
/// `add_eos_token` count only without tokenizer.json. These files and chat_template.jinja are kept for exports. Throws
/// IoError, or DataError if a file is damaged or the post-processor is unsupported.
void read_special_tokens(const std::string& folder, const nlohmann::json& file, data::Tokenizer& tokenizer);

/// Reads generation_config.json of a folder, if it is there, and keeps it: its `eos_token_id`, one or a list, end
/// generation. A warning names those outside a vocabulary of this size.
void read_generation_config(const std::string& folder, std::int64_t vocabulary_size, data::SpecialTokens& special);

/// Returns the token that tokenizer_config.json in `folder` names as `role`, "eos_token"; empty if there is none.
std::string named_token(const std::string& folder, const char* role);

/// Returns the chat template, text of Jinja: that of chat_template.jinja, or the one, or the one named "default", of
/// tokenizer_config.json; empty if there is none.
std::string chat_template_of(const data::SpecialTokens& special);

}  // namespace trireme::io

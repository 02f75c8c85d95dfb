#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

inline constexpr const char* tokenizer_settings_name = "tokenizer_config.json";
/// File of the default chat template.
inline constexpr const char* chat_template_name = "chat_template.jinja";
/// Name under which `SpecialTokens::files` holds the member of tokenizer.json.
inline constexpr const char* post_processor_name = "post_processor";

/// Sets the special tokens of a tokenizer by the files of its folder: added tokens and post-processor of
/// tokenizer.json, whose content is `file` (null if there is none), the roles of tokenizer_config.json or
/// special_tokens_map.json, and the ends of generation_config.json. As in transformers, `add_bos_token` and
/// `add_eos_token` count only without tokenizer.json. These files, added_tokens.json and those of chat templates are
/// kept for exports. Throws IoError, or DataError if a file is damaged, or has a post-processor or settings that are
/// unsupported.
void read_special_tokens(const std::string& folder, const nlohmann::json& file, data::Tokenizer& tokenizer);

/// Reads generation_config.json of a folder, if it is there, and keeps it: its `eos_token_id`, one or a list, end
/// generation. A warning names those outside a vocabulary of this size.
void read_generation_config(const std::string& folder, std::int64_t vocabulary_size, data::SpecialTokens& special);

/// Returns the token that tokenizer_config.json in `folder` names as `role`, "eos_token"; empty if there is none.
std::string named_token(const std::string& folder, const char* role);

/// Returns the chat templates, texts of Jinja, by name: "default" is that of chat_template.jinja, others those of
/// additional_chat_templates. Without these files they are those of tokenizer_config.json, one or a list, or else that
/// of chat_template.json.
std::map<std::string, std::string> chat_templates_of(const data::SpecialTokens& special);

/// Returns the names of special tokens by role, "bos_token", as transformers passes them to chat templates.
std::map<std::string, std::string> named_tokens_of(const data::Tokenizer& tokenizer);

}  // namespace trireme::io

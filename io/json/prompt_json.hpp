#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/infer/generation.hpp"

namespace trireme::io {

/// A line of a file of prompts.
struct PromptLine {
  std::string id;                    ///< the "id" as JSON; empty where there is none
  std::optional<std::string> text;   ///< "prompt"
  std::vector<std::int32_t> tokens;  ///< "tokens", where there is no "prompt"
  std::optional<std::int64_t> max_new_tokens;
};

/// Reads a line of JSON: an object with a string "prompt" or a list of ids "tokens", and optional an "id", a string or
/// a whole number, and "max_new_tokens". Other members are left out. Throws DataError that begins with `where` and says
/// what is missing or of another type.
PromptLine parse_prompt(std::string_view line, const std::string& where);

/// Returns a line of JSON, without its end: {"id", "text", "tokens", "finish_reason"}, and where the continuation has
/// log-probabilities {"logprobs", "top_logprobs"}: of each token, and a list of [token, log-probability] for each. `id`
/// is JSON. Bytes of `text` that are not UTF-8 become U+FFFD.
std::string continuation_json(const std::string& id, const std::string& text, const infer::Continuation& continuation);

}  // namespace trireme::io

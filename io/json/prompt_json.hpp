#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/infer/generation.hpp"

namespace trireme::io {

/// A line of a prompt file.
struct PromptLine {
  std::string id;                    ///< the "id" as JSON; empty if none
  std::optional<std::string> text;   ///< "prompt"
  std::vector<std::int32_t> tokens;  ///< "tokens", if there is no "prompt"
  std::optional<std::int64_t> max_new_tokens;
};

/// Parses a line of JSON: an object with a string "prompt" or a list of ids "tokens". Optional are an "id", a string or
/// an integer, and "max_new_tokens". Other members are ignored. Throws DataError that begins with `where` and says what
/// is missing or of another type.
PromptLine parse_prompt(std::string_view line, const std::string& where);

/// Prompt, sample and checkpoint of a continuation.
struct ContinuationLabels {
  std::string id;                              ///< as JSON
  std::optional<std::int64_t> sample = {};     ///< number among the continuations of a prompt, from 1
  std::optional<std::int64_t> iteration = {};  ///< iteration of the checkpoint
  std::optional<std::int64_t> likeliest = {};  ///< number of likeliest tokens beside each one's own; none: without both
};

/// Returns a line of JSON without newline: the labels, {"text", "tokens", "finish_reason"}, and if the continuation has
/// log-probabilities {"logprobs", "top_logprobs"}: one per token, null if NaN, and a list of [token, log-probability]
/// for each. Bytes of `text` that are not UTF-8 become U+FFFD.
std::string continuation_json(const ContinuationLabels& labels, const std::string& text,
                              const infer::Continuation& continuation);

}  // namespace trireme::io

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/template/value.hpp"

namespace trireme::io {

/// A conversation to continue or to learn.
struct Chat {
  std::string id;  ///< the "id" as JSON; empty if none
  std::optional<std::int64_t> max_new_tokens;
  /// Variables of a chat template: "messages", "tools", "documents", and the members of "chat_template_kwargs".
  data::jinja::Entries variables;
};

/// Returns a conversation of these messages, mappings, without tools.
Chat chat_of(data::jinja::Values messages);

/// Parses JSON as a value of templates. Throws DataError "`where`:column: not JSON: ...", or naming `where` for a value
/// that is too large or too deep.
data::jinja::Value parse_value(std::string_view text, const std::string& where);

/// Parses a conversation: a list of messages, objects with a "role", or an object with "messages", or in the form of
/// ShareGPT with "conversations", objects with "from" and "value". Optional are "tools" and "documents", lists, and
/// "chat_template_kwargs", an object; a null is as if it were missing. Other members are ignored. Throws DataError that
/// begins with `where`.
Chat parse_chat(std::string_view text, const std::string& where);
/// Likewise of a prompt, with "id" and "max_new_tokens" as in a line of prompts.
Chat parse_chat_prompt(std::string_view text, const std::string& where);

/// Returns the text of a conversation, for filters and comparisons: of each message its content, of which parts count
/// that have a "text", and its "tool_calls" as JSON, with empty lines between.
std::string text_of_chat(const Chat& chat);

/// Returns whether the text is one value of JSON, not several lines of them.
bool is_one_value(std::string_view text);

}  // namespace trireme::io

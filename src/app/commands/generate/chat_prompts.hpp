#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/json/chat_json.hpp"
#include "src/data/template/template.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {

/// Makes prompts of conversations by a model's chat template.
class ChatPrompts {
 public:
  /// `choice` names one of the tokenizer's templates or a file; if empty, it is "tool_use" for a conversation with
  /// tools, if there is one, else "default". `tokenizer` must live longer. Throws DataError for a template that cannot
  /// be parsed, ConfigError if there is none.
  ChatPrompts(const data::Tokenizer& tokenizer, const std::string& choice);

  /// Returns the ids of a conversation up to where the model answers. The template writes all special tokens; their
  /// names in messages are special tokens, too, as in transformers. Throws DataError that begins with `where`.
  std::vector<std::int32_t> tokens(const io::Chat& chat, const std::string& where) const;

 private:
  const data::Tokenizer& tokenizer_;
  std::map<std::string, data::jinja::Template> templates_;  // "default", "tool_use"
  std::map<std::string, std::string> named_tokens_;
};

}  // namespace trireme::app

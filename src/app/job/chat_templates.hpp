#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/json/chat_json.hpp"
#include "src/data/template/template.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {

/// Writes conversations by a tokenizer's chat template. The template writes all special tokens; their names in messages
/// are special tokens, too, as in transformers.
class ChatTemplates {
 public:
  /// `choice` names one of the tokenizer's templates or a file; if empty, it is "tool_use" for a conversation with
  /// tools, if there is one, else "default". `tokenizer` must live longer. Throws DataError for a template that cannot
  /// be parsed, ConfigError if there is none.
  ChatTemplates(const data::Tokenizer& tokenizer, const std::string& choice);

  /// Returns the ids of a conversation up to where the model answers. Throws DataError that begins with `where`.
  std::vector<std::int32_t> prompt(const io::Chat& chat, const std::string& where) const;
  /// Returns the text of a conversation and the parts that a model learns, as `data::jinja::render_learned`. Throws
  /// DataError that begins with `where`. Thread-safe.
  data::jinja::Rendering learned(const io::Chat& chat, const std::string& where) const;
  /// The template of conversations without tools.
  const std::string& default_text() const { return default_text_; }
  /// Digest of the templates and the names of special tokens.
  const std::string& digest() const { return digest_; }

 private:
  void add(const std::string& role, const std::string& name, const std::string& text);
  /// Returns what `render(template, variables)` returns, with the template of a conversation and its variables.
  template <class Render>
  auto rendered(const io::Chat& chat, const std::string& where, const Render& render) const;

  const data::Tokenizer& tokenizer_;
  data::SpecialTokenParser parser_;
  std::map<std::string, data::jinja::Template> templates_;  // "default", "tool_use"
  std::map<std::string, std::string> named_tokens_;
  std::string default_text_;
  std::string digest_;
};

}  // namespace trireme::app

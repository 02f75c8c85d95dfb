#include "src/app/job/text_tokens.hpp"

#include "src/base/check.hpp"

namespace trireme::app {

TextTokens::TextTokens(const data::Tokenizer& its_tokenizer) : tokenizer(its_tokenizer) {
  if (tokenizer.end_of_document() >= 0) end.push_back(tokenizer.end_of_document());
}

std::vector<std::int32_t> TextTokens::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens = begin;
  if (!text.empty()) {
    tokenizer.encode(text, tokens);
  } else if (tokens.empty()) {
    TRIREME_CHECK(tokenizer.end_of_document() >= 0, DataError,
                  "the prompt is empty, and this tokenizer has no token that begins or ends a text: give the prompt at "
                  "least one character");
    tokens.push_back(tokenizer.end_of_document());
  }
  return tokens;
}

std::string TextTokens::decode(const std::vector<std::int32_t>& tokens) const {
  std::string text;
  tokenizer.decode(tokens, text);
  return text;
}

}  // namespace trireme::app

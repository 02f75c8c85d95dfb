#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {

/// Tokens around the texts of a tokenizer.
struct TextTokens {
  const data::Tokenizer& tokenizer;
  std::vector<std::int32_t> begin;  ///< precede every text
  std::vector<std::int32_t> end;    ///< end a text

  explicit TextTokens(const data::Tokenizer& its_tokenizer);
  /// Returns the tokens of a prompt. An empty one becomes the tokens that begin a text or, if there are none, the token
  /// that ends a document. Throws DataError if there is neither.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the text of tokens.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
};

}  // namespace trireme::app

#include "src/app/job/prompt_tokens.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::app {

std::vector<std::int32_t> prompt_tokens(const data::Tokenizer& tokenizer, std::string_view text,
                                        const model::ModelConfig& model, const std::string& where) {
  std::vector<std::int32_t> tokens;
  try {
    tokens = tokenizer.encode_prompt(text);
  } catch (const DataError& error) {
    throw DataError("{}: {}", where, error.what());
  }
  if (tokens.empty()) {
    const std::int32_t beginning = tokenizer.special().beginning().value_or(tokenizer.end_of_document());
    TRIREME_CHECK(beginning >= 0, DataError,
                  "{}: the prompt is empty, and this tokenizer has no token that begins or ends a text: give it at "
                  "least one character",
                  where);
    tokens.push_back(beginning);
  }
  check_prompt(tokens, model, where);
  return tokens;
}

void check_prompt(const std::vector<std::int32_t>& tokens, const model::ModelConfig& model, const std::string& where) {
  TRIREME_CHECK(!tokens.empty(), DataError, "{}: \"tokens\" is empty: give it at least one token", where);
  TRIREME_CHECK(std::ssize(tokens) <= model.max_positions, DataError,
                "{}: the prompt has {} tokens, but the model has {} positions: shorten it", where, tokens.size(),
                model.max_positions);
  const std::int32_t greatest = *std::ranges::max_element(tokens);
  TRIREME_CHECK(greatest < model.vocabulary, DataError, "{}: token {} is not in the model's vocabulary of {}", where,
                greatest, model.vocabulary);
}

}  // namespace trireme::app

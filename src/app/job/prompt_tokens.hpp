#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

/// Returns the ids of a prompt, Tokenizer::encode_prompt, checked as below. An empty one has at least the token that
/// begins documents or, if there is none, the one that ends them. Throws DataError if there is neither.
std::vector<std::int32_t> prompt_tokens(const data::Tokenizer& tokenizer, std::string_view text,
                                        const model::ModelConfig& model, const std::string& where);

/// Throws DataError that begins with `where` unless `model` can continue these ids: at least one, at most its
/// positions, all in its vocabulary.
void check_prompt(const std::vector<std::int32_t>& tokens, const model::ModelConfig& model, const std::string& where);

}  // namespace trireme::app

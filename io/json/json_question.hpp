#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/data/tasks/zero_shot/multiple_choice.hpp"

namespace trireme::io {

/// Key names of a question's parts in multiple-choice data sets.
struct QuestionKeys {
  std::vector<std::string> context, choices, answer;
  std::vector<std::string> parts = {};  ///< keys of ChoiceQuestion::parts
};

/// Parses one JSON object. Under the first present key of each kind it holds a string, a list of strings, and the
/// answer: a number from 0, the same as a string, or a letter from A. The key "subject" may hold a string. An object
/// with the first key of `parts` holds strings under all of them, and needs no context. Throws DataError that begins
/// with `where` and says what is missing or of another type.
data::ChoiceQuestion json_question(std::string_view line, const QuestionKeys& keys, const std::string& where);

}  // namespace trireme::io

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/data/tasks/zero_shot/multiple_choice.hpp"

namespace trireme::io {

/// Names under which data sets of multiple choice keep the parts of a question.
struct QuestionKeys {
  std::vector<std::string> context, choices, answer;
  std::vector<std::string> parts = {};  ///< keys of ChoiceQuestion::parts
};

/// Reads a line of JSON, an object: under the first key of each kind that it has a string, a list of strings, and the
/// answer as a number from 0, the same in a string, or a letter from A. The key "subject" may have a string. An object
/// with the first key of `parts` has strings under all of them, and needs no context. Throws DataError that begins with
/// `where` and says what is missing or of another type.
data::ChoiceQuestion json_question(std::string_view line, const QuestionKeys& keys, const std::string& where);

}  // namespace trireme::io

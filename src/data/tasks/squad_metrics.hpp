#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "src/data/tasks/squad.hpp"

namespace trireme::data {

/// Normalises an answer as SQuAD's official programs do. In this order: lower case; ASCII punctuation removed; the
/// words "a", "an" and "the" replaced by a space; white space at the ends removed and collapsed elsewhere. Words end
/// where a letter, number or underscore meets another character.
std::string normalized_answer(std::string_view text);

/// Agreement of a prediction with one answer, each 0 to 1. `exact` compares the normalised texts. `f1` is 2 p r / (p +
/// r) with p and r the fractions of common words in the prediction and the answer, counted with multiplicity. If one
/// side has no words, `f1` is 0 in version 1.1; in version 2.0 it is 1 if neither side has any.
struct AnswerScore {
  double exact = 0, f1 = 0;
};
AnswerScore score_answer(std::string_view prediction, std::string_view answer, bool version_2);

/// Means over questions, in percent, as the official programs define them. NaN without questions.
struct SquadScores {
  struct Group {
    std::int64_t questions = 0;
    double exact = 0, f1 = 0;
  };
  Group all, with_answer, without_answer;
};

/// Scores predictions by question id: the best over a question's answers. In version 2.0 answers whose normal form is
/// empty do not count, and a question that has no others has the answer "". A question without prediction scores 0.
SquadScores score_squad(const SquadExamples& examples, const std::map<std::string, std::string>& predictions);

}  // namespace trireme::data

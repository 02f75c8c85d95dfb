#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tasks/squad.hpp"

namespace trireme::data {

struct SquadPredictionOptions {
  std::int64_t n_best = 20;             ///< positions tried per window, and answers kept
  std::int64_t max_answer_length = 30;  ///< in tokens
  double null_threshold = 0;            ///< greatest `null_odds` of a question with an answer
};

/// Logits of a window's positions as first and last token of the answer.
struct SpanLogits {
  std::span<const float> start, end;
};

struct SquadCandidate {
  std::string text;  ///< empty: no answer
  double start_logit = 0, end_logit = 0;
  double probability = 0;  ///< softmax of start_logit + end_logit over the candidates
};

struct SquadPrediction {
  std::string text;
  std::vector<SquadCandidate> n_best;  ///< the best first, with different texts
  /// Least sum of the logits of [CLS] over the windows, less the sum of the best answer; 0 in version 1.1.
  double null_odds = 0;
};

/// Chooses the answer to a question from the logits of its windows, as BERT's own program for SQuAD does (Devlin et al.
/// 2018). Candidates are pairs of the `n_best` best first and last positions of a window that lie in the context, in
/// order, at most `max_answer_length` tokens apart, and whose first token has the most context in this window: the
/// minimum of the tokens before and after it, plus 0.01 times the window's tokens. Ties keep their order. The text is
/// extracted from the context. With `has_impossible`, the question has no answer if `null_odds` exceeds the threshold.
SquadPrediction predict_answer(const SquadExamples& examples, std::int64_t question,
                               std::span<const SpanLogits> windows, const SquadPredictionOptions& options);

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

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// A question, and texts that may follow it.
struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> choices;
  std::int64_t answer = 0;   ///< index of the right choice
  std::string subject = {};  ///< subject that MMLU names in its prompt; may be empty
  /// HellaSwag's activity and both halves of its context, instead of `context`; empty for other questions.
  std::vector<std::string> parts = {};
};

/// Returns MMLU's prompt for a question: "The following are multiple choice
/// questions (with answers) about SUBJECT.\n\nQUESTION\nA. ...\nB. ...\nAnswer:". Its choices are the letters.
ChoiceQuestion lettered(const ChoiceQuestion& question);

/// Returns the question that the Language Model Evaluation Harness makes of HellaSwag's parts, "ACTIVITY: A B", where B
/// is `capitalized`. In it and in the choices " [title]" becomes ". ", other text in brackets is left out, and two
/// spaces become one.
ChoiceQuestion joined_parts(const ChoiceQuestion& question);

/// Questions of multiple choice. A choice is scored after its question and one space.
class MultipleChoice {
 public:
  explicit MultipleChoice(const Tokenizer& tokenizer) : tokenizer_(tokenizer), texts_(tokenizer.end_of_document()) {}

  /// Adds a question with UTF-8 texts. Its tokens are those of the question, followed by those that a choice adds to
  /// the joined text; trailing white space of the question belongs to the choice. An empty question becomes the token
  /// that ends documents. DataError if there are fewer than two choices, one is empty or adds no token, the answer is
  /// not one of them, or a text exceeds the limit.
  void add(const ChoiceQuestion& question, const LengthLimit& limit);

  std::int64_t size() const { return std::ssize(questions_); }
  /// The choices' texts, question after question.
  const ScoredTexts& texts() const { return texts_; }

  /// A question is answered by the choice with the largest sum of log-probabilities, the first on ties. The normalised
  /// answer is that of the largest sum divided by the choice's number of characters (code points).
  struct Result {
    std::int64_t correct = 0;
    std::int64_t correct_normalized = 0;
    Mean accuracy;
    Mean accuracy_normalized;
    Mean loss;  ///< mean over the questions of minus the right choice's sum of log-probabilities
  };
  Result result(std::span<const TextScore> scores) const;

 private:
  struct Question {
    std::int64_t first_text, answer;
    std::vector<std::int64_t> characters;  // one number per choice
  };

  const Tokenizer& tokenizer_;
  ScoredTexts texts_;
  std::vector<Question> questions_;
};

}  // namespace trireme::data

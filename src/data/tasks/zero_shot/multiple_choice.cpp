#include "src/data/tasks/zero_shot/multiple_choice.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

void replace_all(std::string_view old, std::string_view by, std::string& text) {
  for (std::size_t at = 0; (at = text.find(old, at)) != text.npos; at += by.size()) text.replace(at, old.size(), by);
}

/// Removes WikiHow's brackets and their content within a line.
std::string without_brackets(std::string_view given) {
  std::string text(stripped(given));
  replace_all(" [title]", ". ", text);
  for (std::size_t open = 0; (open = text.find('[', open)) != text.npos;) {
    const std::size_t end = text.find_first_of("]\n", open);
    if (end != text.npos && text[end] == ']') {
      text.erase(open, end - open + 1);
    } else {
      ++open;
    }
  }
  replace_all("  ", " ", text);
  return text;
}

}  // namespace

ChoiceQuestion joined_parts(const ChoiceQuestion& question) {
  TRIREME_CHECK(question.parts.size() == 3, DataError, "the question has {} parts instead of 3", question.parts.size());
  ChoiceQuestion result;
  result.answer = question.answer;
  result.context =
      without_brackets(question.parts[0] + ": " + question.parts[1] + " " + capitalized(question.parts[2]));
  for (const std::string& choice : question.choices) result.choices.push_back(without_brackets(choice));
  return result;
}

ChoiceQuestion lettered(const ChoiceQuestion& question) {
  constexpr std::size_t letters = 26;
  TRIREME_CHECK(question.choices.size() <= letters, DataError, "{} choices: there are letters for {}",
                question.choices.size(), letters);
  ChoiceQuestion result;
  result.answer = question.answer;
  if (!question.subject.empty()) {
    std::string spaced = question.subject;
    std::ranges::replace(spaced, '_', ' ');
    result.context = "The following are multiple choice questions (with answers) about " + spaced + ".\n\n";
  }
  result.context += stripped(question.context);
  for (std::size_t i = 0; i < question.choices.size(); ++i) {
    result.choices.emplace_back(1, static_cast<char>('A' + i));
    result.context += "\n" + result.choices.back() + ". " + question.choices[i];
  }
  result.context += "\nAnswer:";
  return result;
}

void MultipleChoice::add(const ChoiceQuestion& question, const LengthLimit& limit) {
  const std::int64_t choices = std::ssize(question.choices);
  TRIREME_CHECK(choices >= 2, DataError, "the question has {} choices: it needs at least 2", choices);
  TRIREME_CHECK(question.answer >= 0 && question.answer < choices, DataError,
                "the answer {} is not one of the {} choices, 0 to {}", question.answer, choices, choices - 1);
  const std::string_view context = std::string_view(question.context).substr(0, word_extent(question.context).end);
  std::vector<std::int32_t> context_ids = tokenizer_.encode_prompt(context);
  const bool bare = context_ids.empty();
  if (bare) context_ids.push_back(tokenizer_.end_of_document());

  Question added{.first_text = texts_.size(), .answer = question.answer, .characters = {}};
  std::vector<std::pair<std::vector<std::int32_t>, std::int64_t>> texts;  // ids and the number of scored ones
  for (const std::string& choice : question.choices) {
    TRIREME_CHECK(!choice.empty(), DataError, "choice {} is empty", texts.size());
    added.characters.push_back(count_characters(choice));
    std::vector<std::int32_t> ids = tokenizer_.encode_prompt(question.context + " " + choice);
    if (bare) ids.insert(ids.begin(), context_ids.begin(), context_ids.end());
    const std::int64_t scored = std::ssize(ids) - std::ssize(context_ids);
    TRIREME_CHECK(scored >= 1, DataError, "the choice '{}' adds no token to its question", choice);
    fit(limit, scored, ids);
    texts.emplace_back(std::move(ids), scored);
  }
  for (const auto& [ids, scored] : texts) texts_.add(ids, scored);
  questions_.push_back(std::move(added));
}

MultipleChoice::Result MultipleChoice::result(std::span<const TextScore> scores) const {
  Result result;
  TextScore right;
  for (const Question& question : questions_) {
    std::size_t best = 0, best_normalized = 0;
    const auto loss = [&](std::size_t i) { return scores[static_cast<std::size_t>(question.first_text) + i].loss; };
    const auto normalized = [&](std::size_t i) { return loss(i) / static_cast<double>(question.characters[i]); };
    for (std::size_t i = 1; i < question.characters.size(); ++i) {
      if (loss(i) < loss(best)) best = i;
      if (normalized(i) < normalized(best_normalized)) best_normalized = i;
    }
    const auto answer = static_cast<std::size_t>(question.answer);
    if (best == answer) ++result.correct;
    if (best_normalized == answer) ++result.correct_normalized;
    right.loss += loss(answer);
    right.squared_loss += loss(answer) * loss(answer);
  }
  const auto share = [&](std::int64_t correct) {
    return Mean::of(static_cast<double>(correct), static_cast<double>(correct), size());
  };
  result.accuracy = share(result.correct);
  result.accuracy_normalized = share(result.correct_normalized);
  result.loss = Mean::of(right.loss, right.squared_loss, size());
  return result;
}

}  // namespace trireme::data

#include "src/data/tasks/squad_metrics.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <vector>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/// Replaces the words "a", "an" and "the" by spaces.
std::string without_articles(std::string_view text) {
  std::string result, word;
  const auto finish_word = [&] {
    result += word == "a" || word == "an" || word == "the" ? " " : word;
    word.clear();
  };
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    if (c.size_bytes != 0 && (is_alphanumeric(c.code_point) || c.code_point == '_')) {
      word += bytes;
    } else {
      finish_word();
      result += bytes;
    }
  });
  finish_word();
  return result;
}

std::vector<std::string> words_of(std::string_view normalized) {
  std::vector<std::string> words;
  for (WordReader reader(normalized); reader.next();) words.emplace_back(reader.word());
  return words;
}

}  // namespace

std::string normalized_answer(std::string_view text) {
  std::string lower = lower_case(text);
  std::erase_if(lower, is_ascii_punctuation);
  const std::string rest = without_articles(lower);
  std::string result;
  for (WordReader words(rest); words.next();) {
    if (!result.empty()) result += ' ';
    result.append(rest, words.begin(), words.end() - words.begin());
  }
  return result;
}

AnswerScore score_answer(std::string_view prediction, std::string_view answer, bool version_2) {
  const std::string predicted = normalized_answer(prediction), expected = normalized_answer(answer);
  AnswerScore score{predicted == expected ? 1.0 : 0.0, 0};
  const std::vector<std::string> predicted_words = words_of(predicted), expected_words = words_of(expected);
  if (predicted_words.empty() || expected_words.empty()) {
    score.f1 = version_2 ? score.exact : 0;
    return score;
  }
  std::unordered_map<std::string, int> left;
  for (const std::string& word : expected_words) ++left[word];
  const auto common = std::ranges::count_if(predicted_words, [&](const std::string& word) { return left[word]-- > 0; });
  if (common == 0) return score;
  const double precision = static_cast<double>(common) / static_cast<double>(predicted_words.size());
  const double recall = static_cast<double>(common) / static_cast<double>(expected_words.size());
  score.f1 = 2 * precision * recall / (precision + recall);
  return score;
}

SquadScores score_squad(const SquadExamples& examples, const std::map<std::string, std::string>& predictions) {
  SquadScores scores;
  const bool version_2 = examples.file().has_impossible;
  for (const SquadExamples::Question& asked : examples.questions()) {
    AnswerScore best;
    const auto found = predictions.find(asked.question->id);
    if (found != predictions.end()) {
      const auto take = [&](std::string_view answer) {
        const AnswerScore score = score_answer(found->second, answer, version_2);
        best = {std::max(best.exact, score.exact), std::max(best.f1, score.f1)};
      };
      bool has_words = false;
      for (const SquadAnswer& answer : asked.question->answers) {
        if (version_2 && normalized_answer(answer.text).empty()) continue;
        has_words = true;
        take(answer.text);
      }
      if (version_2 && !has_words) take("");
    }
    for (SquadScores::Group* group :
         {&scores.all, asked.question->answers.empty() ? &scores.without_answer : &scores.with_answer}) {
      ++group->questions;
      group->exact += best.exact;
      group->f1 += best.f1;
    }
  }
  for (SquadScores::Group* group : {&scores.all, &scores.with_answer, &scores.without_answer}) {
    group->exact = 100 * group->exact / static_cast<double>(group->questions);
    group->f1 = 100 * group->f1 / static_cast<double>(group->questions);
  }
  return scores;
}

}  // namespace trireme::data

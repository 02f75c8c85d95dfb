#include "src/data/tasks/squad_answers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

/// Returns the positions of the greatest logits, the first of equal ones first.
std::vector<std::int64_t> best_positions(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int64_t> positions(logits.size());
  std::iota(positions.begin(), positions.end(), 0);
  count = std::min(count, std::ssize(positions));
  std::ranges::partial_sort(positions, positions.begin() + count, [&](std::int64_t a, std::int64_t b) {
    const float of_a = logits[static_cast<std::size_t>(a)], of_b = logits[static_cast<std::size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  positions.resize(static_cast<std::size_t>(count));
  return positions;
}

/// Returns the index of the window in which a context token has the most surrounding context.
std::int64_t best_window(std::span<const SquadWindow> windows, std::int64_t token) {
  std::int64_t best = 0;
  double best_score = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const std::int64_t before = token - windows[i].first_token;
    const std::int64_t after = windows[i].tokens - 1 - before;
    if (before < 0 || after < 0) continue;
    const double score = static_cast<double>(std::min(before, after)) + 0.01 * static_cast<double>(windows[i].tokens);
    if (score > best_score) best_score = score, best = static_cast<std::int64_t>(i);
  }
  return best;
}

/// Answer of the tokens [first, last] of the context.
struct Span {
  std::int64_t first = 0, last = 0;
  double start_logit = 0, end_logit = 0;
  double sum() const { return start_logit + end_logit; }
};

/// Returns the possible answers, the best first.
std::vector<Span> spans_of(const SquadExamples& examples, std::span<const SquadWindow> windows,
                           std::span<const SpanLogits> logits, const SquadPredictionOptions& options) {
  std::vector<Span> spans;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const SquadWindow& window = windows[i];
    const std::int64_t position = examples.context_position(window);
    const std::vector<std::int64_t> ends = best_positions(logits[i].end, options.n_best);
    for (const std::int64_t start : best_positions(logits[i].start, options.n_best)) {
      for (const std::int64_t end : ends) {
        const std::int64_t first = start - position + window.first_token, last = first + end - start;
        if (start < position || end < start || end >= position + window.tokens ||
            end - start >= options.max_answer_length || best_window(windows, first) != static_cast<std::int64_t>(i)) {
          continue;
        }
        spans.push_back({first, last, logits[i].start[static_cast<std::size_t>(start)],
                         logits[i].end[static_cast<std::size_t>(end)]});
      }
    }
  }
  std::ranges::stable_sort(spans, std::ranges::greater{}, &Span::sum);
  return spans;
}

void set_probabilities(std::vector<SquadCandidate>& candidates) {
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const SquadCandidate& c : candidates) best = std::max(best, c.start_logit + c.end_logit);
  for (SquadCandidate& c : candidates) sum += c.probability = std::exp(c.start_logit + c.end_logit - best);
  for (SquadCandidate& c : candidates) c.probability /= sum;
}

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

SquadPrediction predict_answer(const SquadExamples& examples, std::int64_t question,
                               std::span<const SpanLogits> windows, const SquadPredictionOptions& options) {
  const SquadExamples::Question& asked = examples.questions()[static_cast<std::size_t>(question)];
  const auto its_windows =
      std::span(examples.windows())
          .subspan(static_cast<std::size_t>(asked.first_window), static_cast<std::size_t>(asked.windows));
  SquadCandidate none;  // [CLS] of the window in which it is least likely
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const double start = windows[i].start[0], end = windows[i].end[0];
    if (i == 0 || start + end < none.start_logit + none.end_logit) none.start_logit = start, none.end_logit = end;
  }

  SquadPrediction prediction;
  const std::string& context = examples.file().paragraphs[static_cast<std::size_t>(asked.context)].context;
  const std::vector<TextToken>& tokens = examples.context(asked.context);
  for (const Span& span : spans_of(examples, its_windows, windows, options)) {
    if (std::ssize(prediction.n_best) >= options.n_best) break;
    const std::size_t begin = tokens[static_cast<std::size_t>(span.first)].begin;
    std::string text = context.substr(begin, tokens[static_cast<std::size_t>(span.last)].end - begin);
    if (std::ranges::any_of(prediction.n_best, [&](const SquadCandidate& c) { return c.text == text; })) continue;
    prediction.n_best.push_back({std::move(text), span.start_logit, span.end_logit, 0});
  }
  const bool has_answer = !prediction.n_best.empty();
  if (has_answer) prediction.text = prediction.n_best.front().text;
  if (examples.file().has_impossible || !has_answer) {
    const auto sum = [](const SquadCandidate& c) { return c.start_logit + c.end_logit; };
    if (examples.file().has_impossible && has_answer) {
      prediction.null_odds = sum(none) - sum(prediction.n_best.front());
      if (prediction.null_odds > options.null_threshold) prediction.text.clear();
    }
    const auto place =
        std::ranges::find_if(prediction.n_best, [&](const SquadCandidate& c) { return sum(c) < sum(none); });
    prediction.n_best.insert(place, none);
  }
  set_probabilities(prediction.n_best);
  return prediction;
}

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

#include "src/data/tasks/squad_predictions.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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
    const std::int64_t behind = windows[i].tokens - 1 - before;
    if (before < 0 || behind < 0) continue;
    const double score = static_cast<double>(std::min(before, behind)) + 0.01 * static_cast<double>(windows[i].tokens);
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

class SpanSearch {
 public:
  SpanSearch(const SquadExamples& examples, std::span<const SquadWindow> windows, const SquadPredictionOptions& options)
      : examples_(examples), windows_(windows), options_(options) {}

  void add(std::int64_t window, const SpanLogits& logits) {
    const SquadWindow& tokens = windows_[static_cast<std::size_t>(window)];
    const std::int64_t position = examples_.context_position(tokens);
    const std::vector<std::int64_t> ends = best_positions(logits.end, options_.n_best);
    for (const std::int64_t start : best_positions(logits.start, options_.n_best)) {
      for (const std::int64_t end : ends) {
        const std::int64_t first = start - position + tokens.first_token, last = first + end - start;
        if (start < position || end < start || end >= position + tokens.tokens ||
            end - start >= options_.max_answer_length || best_window(windows_, first) != window) {
          continue;
        }
        spans_.push_back(
            {first, last, logits.start[static_cast<std::size_t>(start)], logits.end[static_cast<std::size_t>(end)]});
      }
    }
  }

  std::vector<Span> finish() {
    std::ranges::stable_sort(spans_, [](const Span& a, const Span& b) { return a.sum() > b.sum(); });
    return std::move(spans_);
  }

 private:
  const SquadExamples& examples_;
  std::span<const SquadWindow> windows_;
  const SquadPredictionOptions& options_;
  std::vector<Span> spans_;
};

void set_probabilities(std::vector<SquadCandidate>& candidates) {
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const SquadCandidate& c : candidates) best = std::max(best, c.start_logit + c.end_logit);
  for (SquadCandidate& c : candidates) sum += c.probability = std::exp(c.start_logit + c.end_logit - best);
  for (SquadCandidate& c : candidates) c.probability /= sum;
}

}  // namespace

SquadPrediction predict_answer(const SquadExamples& examples, std::int64_t question,
                               std::span<const SpanLogits> windows, const SquadPredictionOptions& options) {
  const SquadExamples::Question& asked = examples.questions()[static_cast<std::size_t>(question)];
  const auto its_windows =
      std::span(examples.windows())
          .subspan(static_cast<std::size_t>(asked.first_window), static_cast<std::size_t>(asked.windows));
  SpanSearch search(examples, its_windows, options);
  SquadCandidate none;  // [CLS] of the window in which it is least likely
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const double start = windows[i].start[0], end = windows[i].end[0];
    if (i == 0 || start + end < none.start_logit + none.end_logit) none.start_logit = start, none.end_logit = end;
    search.add(static_cast<std::int64_t>(i), windows[i]);
  }

  SquadPrediction prediction;
  const std::string& context = examples.file().paragraphs[static_cast<std::size_t>(asked.context)].context;
  const std::vector<TextToken>& tokens = examples.context(asked.context);
  for (const Span& span : search.finish()) {
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

}  // namespace trireme::data

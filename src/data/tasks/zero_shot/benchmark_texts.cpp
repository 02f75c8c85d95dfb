#include "src/data/tasks/zero_shot/benchmark_texts.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

/// Returns the standard error, or none for fewer than two numbers.
std::optional<double> error_of(const Mean& mean) {
  return std::isnan(mean.standard_error) ? std::nullopt : std::optional(mean.standard_error);
}

BenchmarkMetric accuracy(std::string_view name, std::int64_t correct, std::int64_t examples) {
  const Mean mean = Mean::of(static_cast<double>(correct), static_cast<double>(correct), examples);
  return {name, mean.value, error_of(mean)};
}

/// Returns the standard deviation of exp(-mean) of resampled log-probabilities.
std::optional<double> bootstrapped_error(const std::vector<double>& log_probabilities, std::int64_t iterations) {
  constexpr std::int64_t block = 1000;
  if (log_probabilities.size() < 2 || iterations < 2) return std::nullopt;
  const std::int64_t size = std::min(block, iterations);
  const auto count = static_cast<double>(log_probabilities.size());
  std::vector<double> perplexities;
  for (std::int64_t seed = 0; seed < iterations / size; ++seed) {
    PythonRandom random(static_cast<std::uint64_t>(seed));
    for (std::int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (std::size_t draw = 0; draw < log_probabilities.size(); ++draw) {
        sum += log_probabilities[static_cast<std::size_t>(random.random() * count)];
      }
      perplexities.push_back(std::exp(-sum / count));
    }
  }
  double mean = 0, squares = 0;
  for (const double value : perplexities) mean += value / static_cast<double>(perplexities.size());
  for (const double value : perplexities) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(perplexities.size() - 1));
}

/// Returns the number of parts between stretches of white space, as Python's re.split counts them.
std::int64_t python_words(std::string_view text) {
  std::int64_t words = 1;
  bool after_space = false;
  for_each_character(text, [&](Utf8Character c, std::string_view) {
    const bool is_space = is_python_space(c.code_point);
    words += is_space && !after_space ? 1 : 0;
    after_space = is_space;
  });
  return words;
}

}  // namespace

void BenchmarkTexts::add(const TaskDocument& document, const std::string& before) {
  if (benchmark_.kind == BenchmarkKind::pages) {
    add_page(page_of(benchmark_, document));
    return;
  }
  ChoiceExample example = example_of(benchmark_, document);
  Example added{.first_text = texts_.size(), .answer = example.answer, .characters = {}};
  std::string context;
  std::vector<std::int32_t> context_ids;  // tokens of the last context, shared by most choices
  for (Continuation& choice : example.choices) {
    choice.context.insert(0, before);
    added.characters.push_back(choice.characters);
    if (context_ids.empty() || choice.context != context) {
      context = choice.context;
      context_ids = tokenizer_.encode_prompt(std::string_view(context).substr(0, word_extent(context).end));
    }
    add_continuation(choice, context_ids);
  }
  examples_.push_back(std::move(added));
}

void BenchmarkTexts::add_continuation(const Continuation& continuation, std::span<const std::int32_t> context_ids) {
  std::vector<std::int32_t> ids = tokenizer_.encode_prompt(continuation.context + continuation.text);
  if (context_ids.empty()) ids.insert(ids.begin(), beginning());
  const std::int64_t scored = std::ssize(ids) - std::max<std::int64_t>(std::ssize(context_ids), 1);
  TRIREME_CHECK(scored >= 1, DataError, "the text '{}' adds no token to its question", continuation.text);
  if (std::ssize(ids) - 1 > limit_.max_length) ++truncated_;
  fit(limit_, scored, ids);
  texts_.add(ids, scored);
}

void BenchmarkTexts::add_page(const std::string& page) {
  Example added{.first_text = texts_.size(), .answer = 0, .characters = {}};
  added.words = python_words(page);
  added.bytes = std::ssize(page);
  // A token before the text, even where the text begins with one, as lm-eval has it.
  std::vector<std::int32_t> ids = tokenizer_.encode_prompt(detokenized(page, Detokenizer::wikitext));
  ids.insert(ids.begin(), beginning());
  const std::int64_t start = texts_.append_ids(ids), targets = std::ssize(ids) - 1;
  for (std::int64_t done = 0; done < targets;) {
    const std::int64_t end = std::min(done + limit_.max_length, targets);
    const std::int64_t begin = std::max<std::int64_t>(end - limit_.max_length, 0);
    texts_.add(start + begin, end - begin + 1, end - done);
    added.characters.push_back(end - done);
    done = end;
  }
  examples_.push_back(std::move(added));
}

BenchmarkResult BenchmarkTexts::result(std::span<const TextScore> scores, std::int64_t bootstrap_iterations) const {
  BenchmarkResult result = benchmark_.kind == BenchmarkKind::choices ? result_of_choices(scores)
                           : benchmark_.kind == BenchmarkKind::word  ? result_of_words(scores, bootstrap_iterations)
                                                                     : result_of_pages(scores);
  result.examples = size();
  if (!std::isfinite(total(scores).loss)) {  // a choice's, perhaps, that no example has as its answer
    result.loss = {std::nan(""), std::nan("")};
    for (BenchmarkMetric& metric : result.metrics) metric.value = std::nan(""), metric.standard_error.reset();
  }
  return result;
}

BenchmarkResult BenchmarkTexts::result_of_choices(std::span<const TextScore> scores) const {
  std::int64_t correct = 0, correct_normalized = 0;
  double losses = 0, squares = 0;
  for (const Example& example : examples_) {
    std::size_t best = 0, best_normalized = 0;
    const auto loss = [&](std::size_t i) { return scores[static_cast<std::size_t>(example.first_text) + i].loss; };
    const auto normalized = [&](std::size_t i) { return loss(i) / static_cast<double>(example.characters[i]); };
    for (std::size_t i = 1; i < example.characters.size(); ++i) {
      if (loss(i) < loss(best)) best = i;
      if (normalized(i) < normalized(best_normalized)) best_normalized = i;
    }
    const auto answer = static_cast<std::size_t>(example.answer);
    correct += best == answer ? 1 : 0;
    correct_normalized += best_normalized == answer ? 1 : 0;
    losses += loss(answer);
    squares += loss(answer) * loss(answer);
  }
  BenchmarkResult result;
  result.metrics.push_back(accuracy("acc", correct, size()));
  if (benchmark_.normalizes) result.metrics.push_back(accuracy("acc_norm", correct_normalized, size()));
  result.loss = Mean::of(losses, squares, size());
  return result;
}

BenchmarkResult BenchmarkTexts::result_of_words(std::span<const TextScore> scores,
                                                std::int64_t bootstrap_iterations) const {
  std::vector<double> log_probabilities;
  std::int64_t correct = 0;
  double losses = 0, squares = 0;
  for (const TextScore& score : scores) {
    correct += score.wrong == 0 ? 1 : 0;
    log_probabilities.push_back(-score.loss);
    losses += score.loss;
    squares += score.loss * score.loss;
  }
  BenchmarkResult result;
  result.loss = Mean::of(losses, squares, size());
  result.metrics.push_back(
      {"perplexity", std::exp(result.loss.value), bootstrapped_error(log_probabilities, bootstrap_iterations), false});
  result.metrics.push_back(accuracy("acc", correct, size()));
  return result;
}

BenchmarkResult BenchmarkTexts::result_of_pages(std::span<const TextScore> scores) const {
  double words = 0, bytes = 0, losses = 0, squares = 0;
  for (const Example& example : examples_) {
    words += static_cast<double>(example.words);
    bytes += static_cast<double>(example.bytes);
    const double loss =
        total(scores.subspan(static_cast<std::size_t>(example.first_text), example.characters.size())).loss;
    losses += loss;
    squares += loss * loss;
  }
  BenchmarkResult result;
  result.loss = Mean::of(losses, squares, size());
  result.metrics = {{"word_perplexity", std::exp(losses / words), std::nullopt, false},
                    {"byte_perplexity", std::exp(losses / bytes), std::nullopt, false},
                    {"bits_per_byte", losses / bytes / std::numbers::ln2, std::nullopt, false}};
  return result;
}

BenchmarkMetric pooled(std::span<const BenchmarkResult> results, std::string_view name) {
  double examples = 0, sum = 0, variance = 0;
  bool has_error = true;
  for (const BenchmarkResult& result : results) {
    const BenchmarkMetric& metric = *std::ranges::find(result.metrics, name, &BenchmarkMetric::name);
    const auto n = static_cast<double>(result.examples);
    examples += n;
    sum += n * metric.value;
    has_error = has_error && metric.standard_error;
    if (has_error) variance += n * (n - 1) * *metric.standard_error * *metric.standard_error;
  }
  BenchmarkMetric group{name, sum / examples, std::nullopt};
  const double freedom = examples - static_cast<double>(results.size());
  if (has_error) group.standard_error = std::sqrt(variance / freedom / examples);
  return group;
}

}  // namespace trireme::data

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tasks/zero_shot/benchmark.hpp"
#include "src/data/tasks/zero_shot/scored_texts.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// A figure of a task, under lm-eval's name.
struct BenchmarkMetric {
  std::string_view name;
  double value = 0;
  std::optional<double> standard_error;
  bool higher_is_better = true;
};

/// Figures of a task's examples.
struct BenchmarkResult {
  std::int64_t examples = 0;
  std::vector<BenchmarkMetric> metrics;
  Mean loss;  ///< minus the log-probability of the right choice, or of the text; mean over the examples
};

/// Texts of a task's examples, and their figures. A choice is scored after its context, a page from its first token.
class BenchmarkTexts {
 public:
  BenchmarkTexts(const Benchmark& benchmark, const Tokenizer& tokenizer, const LengthLimit& limit)
      : benchmark_(benchmark), tokenizer_(tokenizer), limit_(limit), texts_(tokenizer.end_of_document()) {}

  /// Adds an example, behind the text `before`. Throws DataError if it is unusable, or a choice adds no token.
  ///
  /// A choice's tokens are those that it adds to its context's; white space at the end of the context belongs to the
  /// choice. A text begins with what the tokenizer puts before it. Before an empty context stands the tokenizer's BOS
  /// or, without one, the token that ends documents. Pages are cut into windows as long as the limit, the first behind
  /// this token, which do not overlap except that the last one is as long, too.
  void add(const TaskDocument& document, const std::string& before);

  const Benchmark& benchmark() const { return benchmark_; }
  std::int64_t size() const { return std::ssize(examples_); }
  /// All texts, example after example.
  const ScoredTexts& texts() const { return texts_; }
  /// Texts that lost their beginning.
  std::int64_t truncated() const { return truncated_; }

  /// Computes the figures from the texts' scores:
  ///
  /// * `acc`: examples whose right choice has the largest sum of log-probabilities, the first on ties; of the kind
  ///   `word`, whose tokens all are the most likely ones.
  /// * `acc_norm`: the same with each sum divided by the choice's characters (code points).
  /// * `perplexity`: exp(-mean over the examples of their sums). Its standard error is that of lm-eval's
  ///   `bootstrap_iterations` draws, in blocks of 1000 with the seeds 0, 1, ...; none for 0.
  /// * `word_perplexity`, `byte_perplexity`: exp(-sum over all pages / number), with the words (separated by white
  ///   space, plus one) or bytes of the pages as published; `bits_per_byte`: the logarithm of the latter to base 2.
  /// With a loss that is not finite, also of a wrong choice, the mean loss and all figures are NaN.
  BenchmarkResult result(std::span<const TextScore> scores, std::int64_t bootstrap_iterations) const;

 private:
  struct Example {
    std::int64_t first_text = 0, answer = 0;
    std::vector<std::int64_t> characters;  // one number per text
    std::int64_t words = 0, bytes = 0;     // size of a page
  };
  /// The token before texts without a context.
  std::int32_t beginning() const { return tokenizer_.special().bos.value_or(tokenizer_.end_of_document()); }
  void add_continuation(const Continuation& continuation, std::span<const std::int32_t> context_ids);
  void add_page(const std::string& page);
  BenchmarkResult result_of_choices(std::span<const TextScore> scores) const;
  BenchmarkResult result_of_words(std::span<const TextScore> scores, std::int64_t bootstrap_iterations) const;
  BenchmarkResult result_of_pages(std::span<const TextScore> scores) const;

  const Benchmark& benchmark_;
  const Tokenizer& tokenizer_;
  LengthLimit limit_;
  ScoredTexts texts_;
  std::vector<Example> examples_;
  std::int64_t truncated_ = 0;
};

/// A group of tasks: the mean of an accuracy, weighted by examples, and its pooled standard error
/// sqrt(sum(n (n - 1) e^2) / (N - tasks) / N). All results have the same metrics; returns that of `name`.
BenchmarkMetric pooled(std::span<const BenchmarkResult> results, std::string_view name);

}  // namespace trireme::data

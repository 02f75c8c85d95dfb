#pragma once

#include "src/base/hash.hpp"
#include "src/data/tasks/task_samples.hpp"
#include "src/model/model_config.hpp"

namespace trireme::test {

/// BERT's samples by a formula, with padding in three of four: number x of the stream NAME is splitmix64(fnv1a(NAME),
/// x). Sample i is row i mod `rows`. With s 48, 4 rows and BERT's vocabulary of 30522 it is the batch of
/// tests/fixtures/bert_runs.json. A model of a task gets labels instead of masked tokens: one of a single class values.
class FormulaBertSamples final : public data::SampleSource {
 public:
  FormulaBertSamples(const model::ModelConfig& model, std::int64_t s, std::int64_t rows)
      : model_(model), s_(s), rows_(rows), is_small_(model.vocabulary < 30000) {
    words_ = is_small_ ? model.vocabulary - first_word() : 29000;
  }

  std::int64_t size() const override { return 1 << 20; }
  std::int64_t sequence_length() const override { return s_; }
  std::int64_t length(std::int64_t index) const override {
    constexpr std::int64_t lengths[] = {48, 40, 33, 20};  // lengths where s is 48
    return s_ * lengths[index % rows_ % 4] / 48;
  }
  data::SampleFields fields() const override {
    return {.token_types = model_.binary_head,
            .length = true,
            .is_random = model_.binary_head || !model_.predicts_tokens(),
            .span_end = true,
            .last_token = true,
            .samples_per_label = model_.samples_per_label()};
  }

  void read(std::int64_t index, const data::SampleView& sample) const override {
    const std::int64_t row = index % rows_;
    const std::int64_t n = length(index), second = n / 2;
    for (std::int64_t t = 0; t < s_; ++t) {
      const std::int64_t x = row * s_ + t;
      const bool is_special = t == 0 || t == second || t >= n - 1;
      const auto word = static_cast<std::int32_t>(first_word() + below("bert.tokens", x, words_));
      const bool is_masked = model_.predicts_tokens() && !is_special && below("bert.mask", x, 100) < 15;
      std::int32_t token = t >= n ? 0 : t == 0 ? special(1) : is_special ? special(2) : word;
      if (is_masked) {
        const std::int64_t how = below("bert.how", x, 10);
        if (how < 8) token = special(3);
        if (how == 8) token = static_cast<std::int32_t>(first_word() + below("bert.random", x, words_));
      }
      const auto i = static_cast<std::size_t>(t);
      sample.tokens[i] = token;
      sample.labels[i] = is_masked ? word : -1;
      if (!sample.token_types.empty()) sample.token_types[i] = t <= second || t >= n ? 0 : 1;
    }
    if (!sample.length.empty()) sample.length[0] = static_cast<std::int32_t>(n);
    if (!sample.last_token.empty()) sample.last_token[0] = static_cast<std::int32_t>(n - 1);
    if (sample.is_random.empty()) return;
    const bool is_span = model_.output == model::ModelOutput::spans;
    const bool is_value = model_.output == model::ModelOutput::classes && model_.classes == 1;
    const std::int64_t label = below("bert.sop", row, is_span ? n : is_value ? 50 : model_.classes);
    sample.is_random[0] =
        is_value ? data::label_of_value(static_cast<double>(label) / 10) : static_cast<std::int32_t>(label);
    if (!sample.span_end.empty()) sample.span_end[0] = sample.is_random[0] / 2 + static_cast<std::int32_t>(n / 2);
  }

 private:
  static std::int64_t below(const char* stream, std::int64_t x, std::int64_t limit) {
    return static_cast<std::int64_t>(splitmix64(fnv1a(stream), static_cast<std::uint64_t>(x)) %
                                     static_cast<std::uint64_t>(limit));
  }
  std::int32_t special(std::int32_t number) const { return is_small_ ? number : 100 + number; }
  std::int64_t first_word() const { return is_small_ ? 4 : 1000; }

  model::ModelConfig model_;
  std::int64_t s_;
  std::int64_t rows_;
  bool is_small_;  // a vocabulary smaller than BERT's
  std::int64_t words_;
};

}  // namespace trireme::test

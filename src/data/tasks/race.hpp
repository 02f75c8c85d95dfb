#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tasks/task_samples.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

inline constexpr std::int64_t race_choices = 4;

/// An article of RACE (Lai et al. 2017) as in its file.
struct RaceArticle {
  std::string article;
  std::vector<std::string> questions;
  std::vector<std::vector<std::string>> options;  ///< four texts for each question
  std::vector<std::string> answers;               ///< a letter for each question, "A" to "D"
};

/// Reads a line of JSON as an article. Throws DataError that begins with `where`, the file and line.
using RaceParser = std::function<RaceArticle(std::string_view line, const std::string& where)>;

/// A question with four choices, each a sample.
struct RaceQuestion {
  std::int64_t article = 0;                          ///< its list of tokens
  std::array<std::int64_t, race_choices> choices{};  ///< lists of tokens: question with each choice
  std::int32_t label = 0;                            ///< index of the right one
};

struct RaceExamples {
  TokenLists lists;
  std::vector<RaceQuestion> questions;

  /// Returns the sample of a choice: A is question with choice, B the article.
  PackedPair packed(const RaceQuestion& question, std::size_t choice, std::int64_t max_length,
                    const PairTokens& tokens) const {
    return pack_pair(lists[question.choices[choice]], lists[question.article], max_length, tokens);
  }
};

/// Adds the questions of a file, one article per line, as Megatron-LM does. A choice replaces each "_" of its question,
/// or follows the question after a space. Both texts are cleaned. A question with its choice has at most
/// `max_qa_tokens`. Throws DataError "path:line: ..." through `bad` for a line that is not an article, an empty
/// article, a question without its answer or its four choices.
void add_race(const TaskFile& file, const RaceParser& parse, const Tokenizer& tokenizer, std::int64_t max_qa_tokens,
              BadLines& bad, RaceExamples& examples);

/// Returns the letters of the chosen answers, in the form of GLUE's submissions: a header, then the number of each
/// question, from 0 in the order of the files, and "A" to "D".
std::string race_predictions(std::span<const std::int32_t> classes);

/// Questions of RACE, of which each choice is a sample.
class RaceSamples final : public TaskSamples {
 public:
  RaceSamples(const TaskPacking& packing, RaceExamples examples)
      : TaskSamples(packing, race_choices), examples_(std::move(examples)) {}
  std::int64_t size() const override { return std::ssize(examples_.questions) * race_choices; }
  std::int32_t label(std::int64_t index) const override {
    return examples_.questions[static_cast<std::size_t>(index)].label;
  }

 private:
  PackedPair packed(std::int64_t index) const override;
  RaceExamples examples_;
};

}  // namespace trireme::data

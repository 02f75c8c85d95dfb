#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/data/text/regex.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/word_splitter.hpp"

namespace trireme::data {

/// The regular expression of a pattern.
std::string_view regex_of(WordPattern pattern);
/// Returns the pattern that one step cuts by, if there is one.
std::optional<WordPattern> pattern_of(const SplitStep& step);

/// Cuts words by these steps: by `BpeVocabulary::pattern` if one is enough.
void set_words(BpeVocabulary& vocabulary, std::vector<SplitStep> splits);

/// Expression of the pre-tokenizer Punctuation: a sign of ASCII or of Unicode's category P.
inline constexpr std::string_view punctuation = R"([!-/:-@\[-`{-~\p{P}])";

/// Steps of open models, by name.
struct NamedSplits {
  std::string name;
  std::vector<SplitStep> steps;
};
const std::vector<NamedSplits>& named_splits();

/// Finds runs of characters of a class, up to `most` at a time, as [CLASS], [CLASS]{1,3} and [CLASS]+ do.
struct RunFinder {
  bool (*contains)(char32_t) = nullptr;
  std::size_t most = 1;
  std::vector<Regex::Match> matches(std::string_view text) const;
};

/// Cuts text into words by any steps, one after another. A step with the expression of a `WordPattern` takes its
/// splitter, one of a class that is listed here a `RunFinder`, others Oniguruma.
class SplitWords {
 public:
  using Range = Regex::Match;

  /// Throws DataError if an expression is invalid.
  explicit SplitWords(std::vector<SplitStep> steps);

  /// Returns the words of a text, from left to right; none is empty.
  std::vector<Range> words(std::string_view text) const;
  /// Returns whether `text` has the same words as the texts before and after byte `at`, split separately. Of
  /// expressions that `cut_rules` does not list this is never so.
  bool can_cut(std::string_view text, std::size_t at) const;

 private:
  struct Step {
    SplitStep definition;
    std::variant<Regex, RunFinder, WordSplitter> expression;
  };
  static Step step_of(SplitStep definition);
  static void split(const Step& step, std::string_view text, std::size_t offset, std::vector<Range>& words);

  std::vector<Step> steps_;
};

}  // namespace trireme::data

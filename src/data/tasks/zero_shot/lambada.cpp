#include "src/data/tasks/zero_shot/lambada.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/check.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {

void add_lambada(std::string_view text, LambadaTarget target, const Tokenizer& tokenizer, const LengthLimit& limit,
                 ScoredTexts& examples) {
  std::vector<std::int32_t> ids;
  std::int64_t targets = 1;
  if (target == LambadaTarget::last_token) {
    ids = tokenizer.encode_prompt(text);
    TRIREME_CHECK(ids.size() > tokenizer.special().prefix.size(), DataError, "the text is empty");
  } else {
    const WordExtent words = word_extent(text);
    TRIREME_CHECK(words.end > 0, DataError, "the text has no word");
    ids = tokenizer.encode_prompt(stripped(text.substr(0, words.last_word)));
    const std::int64_t before = std::ssize(ids);
    const std::string last(text.substr(words.last_word, words.end - words.last_word));
    tokenizer.encode_continuation(" " + last, ids);
    targets = std::ssize(ids) - before;
  }
  targets = std::min(targets, std::ssize(ids) - 1);
  fit(limit, targets, ids);
  examples.add(ids, targets);
}

LambadaResult result_of(const ScoredTexts& examples, std::span<const TextScore> scores) {
  LambadaResult result;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].wrong == 0) ++result.correct;
    if (examples.scored(static_cast<std::int64_t>(i)) == 0) ++result.unscored;
  }
  const auto correct = static_cast<double>(result.correct);
  result.accuracy = Mean::of(correct, correct, std::ssize(scores));
  const TextScore sum = total(scores);
  result.loss = Mean::of(sum.loss, sum.squared_loss, examples.scored());
  return result;
}

}  // namespace trireme::data

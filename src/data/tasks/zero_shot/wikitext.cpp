#include "src/data/tasks/zero_shot/wikitext.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/base/check.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {

ScoredTexts overlapping_windows(std::span<const std::int32_t> ids, std::int64_t sequence_length, std::int64_t overlap,
                                std::int32_t padding) {
  TRIREME_CHECK(overlap <= sequence_length, ConfigError,
                "<overlapping_eval> {} exceeds the windows of <seq_length> {}: tokens between them would not be "
                "scored. Try at most {}",
                overlap, sequence_length, sequence_length);
  TRIREME_CHECK(!ids.empty(), DataError, "no windows: the text has no tokens");
  const std::int64_t stride = std::max<std::int64_t>(overlap, 1);
  const std::int64_t targets = std::ssize(ids) - 1;
  const std::int64_t windows = (std::max<std::int64_t>(targets - stride, 0) + stride - 1) / stride + 1;
  ScoredTexts result(padding);
  result.append_ids(ids);
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::int64_t own = std::min(sequence_length, targets - i * stride);
    const std::int64_t scored_before = i == 0 ? 0 : sequence_length - stride;
    result.add(i * stride, own + 1, std::max<std::int64_t>(own - scored_before, 0));
  }
  return result;
}

WikiText make_wikitext(std::string_view text, Detokenizer detokenizer, const Tokenizer& tokenizer,
                       std::int64_t sequence_length, std::int64_t overlap) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(detokenized(std::string(text), detokenizer), ids);
  TRIREME_CHECK(ids.size() >= 2, DataError, "the text has {} tokens: perplexity needs at least 2", ids.size());
  return {.windows = overlapping_windows(ids, sequence_length, overlap, tokenizer.end_of_document()),
          .original_tokens = std::ranges::count(stripped(text), ' ') + 1,
          .tokenized_tokens = std::ssize(ids)};
}

WikiTextResult result_of(const WikiText& set, std::span<const TextScore> scores) {
  constexpr double max_exponent = 20;
  const TextScore sum = total(scores);
  WikiTextResult result{};
  result.loss = Mean::of(sum.loss, sum.squared_loss, set.windows.scored());
  result.perplexity = std::exp(std::min(result.loss.value, max_exponent));
  result.adjusted_perplexity =
      set.original_tokens == 1
          ? std::numeric_limits<double>::infinity()
          : std::exp(std::min(sum.loss / static_cast<double>(set.original_tokens - 1), max_exponent));
  return result;
}

}  // namespace trireme::data

#include "src/data/gpt2_tokenizer.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view kTitle = "trireme byte-pair encoding 1";
// More than any vocabulary has; keeps a hostile payload from expanding into more memory than there is.
constexpr std::int64_t kGreatestCount = std::int64_t{1} << 24;
constexpr std::size_t kGreatestMergeBytes = std::size_t{1} << 28;

/// The payload's lines, one after another.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  std::string_view line() {
    ++number_;
    const std::size_t end = rest_.find('\n');
    TRIREME_CHECK(end != std::string_view::npos, DataError, "the embedded tokenizer is cut off at line {}", number_);
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  /// A line of `count` numbers from 0 to `greatest`, a space between two of them.
  template <std::size_t count>
  std::array<std::int64_t, count> numbers(std::int64_t greatest) {
    const std::string_view text = line();
    const char* at = text.data();
    const char* const end = at + text.size();
    std::array<std::int64_t, count> values{};
    bool good = true;
    for (std::size_t i = 0; i < count && good; ++i) {
      if (i > 0) good = at != end && *at++ == ' ';
      const auto [next, error] = std::from_chars(at, end, values[i]);
      good = good && error == std::errc{} && values[i] >= 0 && values[i] <= greatest;
      at = next;
    }
    TRIREME_CHECK(good && at == end, DataError, "the embedded tokenizer is damaged: line {} is '{}'", number_,
                  escape_bytes(text.substr(0, 80)));
    return values;
  }

  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  std::int64_t number_ = 0;
};

}  // namespace

Gpt2Tokenizer::Gpt2Tokenizer(BpeVocabulary vocabulary)
    : encoder_(vocabulary), tokens_(std::move(vocabulary.tokens)), end_of_document_(vocabulary.end_of_document) {}

void Gpt2Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  const char* const end = text.data() + text.size();
  for (const char* word = text.data(); word != end;) {
    const char* const word_end = splitter_.word_end(word, end);
    encoder_.encode(word, static_cast<std::size_t>(word_end - word), end, ids);
    word = word_end;
  }
}

void Gpt2Tokenizer::decode(std::span<const std::int32_t> ids, std::string& bytes) const {
  for (const std::int32_t id : ids) {
    TRIREME_CHECK(id >= 0 && id < vocabulary_size(), DataError, "token {} is not in the vocabulary of {} ids", id,
                  vocabulary_size());
    if (id != end_of_document_) bytes += tokens_[static_cast<std::size_t>(id)];
  }
}

std::string Gpt2Tokenizer::payload() const {
  std::string text = fmt::format("{}\n{} {} {}\n", kTitle, tokens_.size(), encoder_.merges().size(), end_of_document_);
  for (const std::string& token : tokens_) text += escape_bytes(token) + '\n';
  for (const auto& [left, right] : encoder_.merges()) text += fmt::format("{} {}\n", left, right);
  return text;
}

BpeVocabulary bpe_from_payload(std::string_view payload) {
  LineReader reader(payload);
  TRIREME_CHECK(reader.line() == kTitle, DataError, "the embedded tokenizer does not start with '{}'", kTitle);
  const auto [tokens, merges, end_of_document] = reader.numbers<3>(kGreatestCount);
  BpeVocabulary vocabulary;
  vocabulary.end_of_document = static_cast<std::int32_t>(end_of_document);
  for (std::int64_t id = 0; id < tokens; ++id) vocabulary.tokens.push_back(unescape_bytes(reader.line()));
  std::size_t merge_bytes = 0;
  for (std::int64_t rank = 0; rank < merges; ++rank) {
    const auto [left, right] = reader.numbers<2>(tokens - 1);
    vocabulary.merges.emplace_back(vocabulary.tokens[static_cast<std::size_t>(left)],
                                   vocabulary.tokens[static_cast<std::size_t>(right)]);
    merge_bytes += vocabulary.merges.back().first.size() + vocabulary.merges.back().second.size();
    TRIREME_CHECK(merge_bytes <= kGreatestMergeBytes, DataError,
                  "the embedded tokenizer is damaged: its first {} merges join more than {} bytes", rank + 1,
                  kGreatestMergeBytes);
  }
  TRIREME_CHECK(reader.at_end(), DataError, "the embedded tokenizer goes on after its {} tokens and {} merges", tokens,
                merges);
  return vocabulary;
}

}  // namespace trireme::data

#include "src/data/tokenizer/bpe_tokenizer.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "src/base/check.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view gpt2_payload_title = "trireme byte-pair encoding 1";
constexpr std::string_view payload_title = "trireme byte-pair encoding 2";
constexpr std::size_t max_merge_bytes = std::size_t{1} << 28;

}  // namespace

BpeTokenizer::BpeTokenizer(std::string name, BpeVocabulary vocabulary)
    : Tokenizer(std::move(name)),
      encoder_(vocabulary),
      tokens_(std::move(vocabulary.tokens)),
      end_of_document_(vocabulary.end_of_document),
      splitter_(vocabulary.pattern),
      compose_(vocabulary.compose),
      whole_words_(vocabulary.whole_words),
      special_(std::move(vocabulary.special)),
      added_(std::move(vocabulary.added)) {
  const auto text_of = [&](std::int32_t id) -> const std::string& { return tokens_[static_cast<std::size_t>(id)]; };
  for (const std::int32_t id : added_) {
    const std::string& text = text_of(id);
    for (std::size_t at = 1; at < text.size(); ++at) {
      TRIREME_CHECK(!splitter_.can_cut(text, at), DataError,
                    "the added token '{}' has white space inside, where long texts are cut", quotation_of(text));
    }
    added_by_byte_[static_cast<unsigned char>(text[0])].push_back(id);
  }
  for (auto& ids : added_by_byte_) {
    std::ranges::stable_sort(ids, std::ranges::greater{}, [&](std::int32_t id) { return text_of(id).size(); });
  }
}

void BpeTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (added_.empty()) return encode_normalised(text, ids);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto& candidates = added_by_byte_[static_cast<unsigned char>(text[at])];
    const auto found = std::ranges::find_if(candidates, [&](std::int32_t id) {
      return text.substr(at).starts_with(tokens_[static_cast<std::size_t>(id)]);
    });
    if (found == candidates.end()) {
      ++at;
      continue;
    }
    encode_normalised(text.substr(begin, at - begin), ids);
    ids.push_back(*found);
    at += tokens_[static_cast<std::size_t>(*found)].size();
    begin = at;
  }
  encode_normalised(text.substr(begin), ids);
}

void BpeTokenizer::encode_normalised(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (compose_ && !is_surely_composed(text)) return encode_words(composed(text), ids);
  encode_words(text, ids);
}

void BpeTokenizer::encode_words(std::string_view text, std::vector<std::int32_t>& ids) const {
  const char* const end = text.data() + text.size();
  for (const char* word = text.data(); word != end;) {
    const char* const word_end = splitter_.word_end(word, end);
    encoder_.encode(word, static_cast<std::size_t>(word_end - word), end, ids);
    word = word_end;
  }
}

void BpeTokenizer::decode(std::span<const std::int32_t> ids, std::string& bytes) const {
  check_ids(ids);
  for (const std::int32_t id : ids) {
    if (id != end_of_document_) bytes += tokens_[static_cast<std::size_t>(id)];
  }
}

std::vector<std::string> BpeTokenizer::special_spellings() const {
  std::vector<std::string> spellings;
  for (const std::int32_t id : special_) spellings.push_back(tokens_[static_cast<std::size_t>(id)]);
  if (!special_.empty()) return spellings;
  std::unordered_set<std::string> made;
  for (const auto& [left, right] : encoder_.merges()) {
    made.insert(tokens_[static_cast<std::size_t>(left)] + tokens_[static_cast<std::size_t>(right)]);
  }
  std::ranges::copy_if(tokens_, std::back_inserter(spellings),
                       [&](const std::string& token) { return token.size() > 1 && !made.contains(token); });
  return spellings;
}

std::string BpeTokenizer::definition() const {
  const bool is_gpt2 =
      splitter_.pattern() == WordPattern::gpt2 && !compose_ && !whole_words_ && special_.empty() && added_.empty();
  std::string text = fmt::format("{}\n{} {} {}\n", is_gpt2 ? gpt2_payload_title : payload_title, tokens_.size(),
                                 encoder_.merges().size(), end_of_document_);
  for (const std::string& token : tokens_) text += escape_bytes(token) + '\n';
  for (const auto& [left, right] : encoder_.merges()) text += fmt::format("{} {}\n", left, right);
  if (is_gpt2) return text;
  text += fmt::format("{} {} {} {} {}\n", static_cast<int>(splitter_.pattern()), int{compose_}, int{whole_words_},
                      special_.size(), added_.size());
  for (const auto* list : {&special_, &added_}) {
    for (const std::int32_t id : *list) text += fmt::format("{}\n", id);
  }
  return text;
}

BpeVocabulary bpe_from_payload(std::string_view text) {
  const std::string_view payload = split_payload(text).definition;
  PayloadLines lines(payload);
  const bool is_gpt2 = payload.starts_with(gpt2_payload_title);
  lines.title(is_gpt2 ? gpt2_payload_title : payload_title);
  const auto [tokens, merges, end_of_document] = lines.numbers<3>(max_vocabulary_size);
  BpeVocabulary vocabulary;
  vocabulary.end_of_document = static_cast<std::int32_t>(end_of_document);
  vocabulary.tokens = lines.texts(tokens);
  std::size_t merge_bytes = 0;
  for (std::int64_t rank = 0; rank < merges; ++rank) {
    const auto [left, right] = lines.numbers<2>(tokens - 1);
    vocabulary.merges.emplace_back(vocabulary.tokens[static_cast<std::size_t>(left)],
                                   vocabulary.tokens[static_cast<std::size_t>(right)]);
    merge_bytes += vocabulary.merges.back().first.size() + vocabulary.merges.back().second.size();
    TRIREME_CHECK(merge_bytes <= max_merge_bytes, DataError,
                  "the embedded tokenizer is damaged: its first {} merges join more than {} bytes", rank + 1,
                  max_merge_bytes);
  }
  if (!is_gpt2) {
    const auto [pattern, compose, whole_words, special, added] = lines.numbers<5>(max_vocabulary_size);
    TRIREME_CHECK(pattern < word_pattern_count && compose <= 1 && whole_words <= 1, DataError,
                  "the embedded tokenizer is damaged: it cuts words by pattern {}", pattern);
    vocabulary.pattern = static_cast<WordPattern>(pattern);
    vocabulary.compose = compose == 1;
    vocabulary.whole_words = whole_words == 1;
    for (std::int64_t i = 0; i < special + added; ++i) {
      auto& list = i < special ? vocabulary.special : vocabulary.added;
      list.push_back(static_cast<std::int32_t>(lines.numbers<1>(tokens - 1)[0]));
    }
  }
  lines.finish();
  return vocabulary;
}

}  // namespace trireme::data

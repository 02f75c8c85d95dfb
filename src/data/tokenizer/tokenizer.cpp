#include "src/data/tokenizer/tokenizer.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/parse_number.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/payload_lines.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

namespace trireme::data {
namespace {

constexpr const char* byte_payload = "trireme bytes 1\n";
constexpr const char* null_title = "trireme ids 1";
constexpr std::int64_t max_null_size = std::int64_t{1} << 31;

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer("bytes") {}
  std::int64_t vocabulary_size() const override { return 257; }
  std::int32_t end_of_document() const override { return 256; }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }

  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override {
    check_ids(ids);
    for (const std::int32_t id : ids) {
      if (id < 256) bytes += static_cast<char>(id);
    }
  }

  bool can_cut(std::string_view, std::size_t) const override { return true; }
  std::string payload() const override { return byte_payload; }
};

/// Ids that were made elsewhere: its text is the ids in decimal, separated by white space.
class NullTokenizer final : public Tokenizer {
 public:
  NullTokenizer(std::int64_t vocabulary_size, std::int64_t end_of_document)
      : Tokenizer("null"),
        vocabulary_size_(vocabulary_size),
        end_of_document_(static_cast<std::int32_t>(end_of_document)) {
    TRIREME_CHECK(vocabulary_size >= 1 && vocabulary_size <= max_null_size && end_of_document >= 0 &&
                      end_of_document < vocabulary_size,
                  ConfigError, "a vocabulary of {} ids is not possible with {} as the id that ends documents",
                  vocabulary_size, end_of_document);
  }
  std::int64_t vocabulary_size() const override { return vocabulary_size_; }
  std::int32_t end_of_document() const override { return end_of_document_; }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (std::string_view rest = text;;) {
      rest.remove_prefix(static_cast<std::size_t>(std::ranges::find_if_not(rest, is_ascii_space) - rest.begin()));
      if (rest.empty()) return;
      const std::size_t at = text.size() - rest.size();
      const std::int64_t id = take_number<std::int64_t>(rest).value_or(-1);
      TRIREME_CHECK(id >= 0 && id < vocabulary_size_ && (rest.empty() || is_ascii_space(rest[0])), DataError,
                    "byte {} of the text does not begin an id from 0 to {}", at, vocabulary_size_ - 1);
      ids.push_back(static_cast<std::int32_t>(id));
    }
  }

  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override {
    check_ids(ids);
    for (const std::int32_t id : ids) {
      if (id != end_of_document_) bytes += fmt::format("{} ", id);
    }
  }

  std::string payload() const override {
    return fmt::format("{}\n{} {}\n", null_title, vocabulary_size_, end_of_document_);
  }

 private:
  std::int64_t vocabulary_size_;
  std::int32_t end_of_document_;
};

std::unique_ptr<Tokenizer> null_from_payload(const std::string& payload) {
  PayloadLines lines(payload);
  lines.title(null_title);
  const auto [size, end_of_document] = lines.numbers<2>(max_null_size);
  TRIREME_CHECK(size >= 1 && end_of_document < size, DataError, "the embedded tokenizer is damaged: {} of {} ids",
                end_of_document, size);
  auto tokenizer = make_null_tokenizer(size, end_of_document);
  TRIREME_CHECK(tokenizer->payload() == payload, DataError, "the embedded definition of the null tokenizer is damaged");
  return tokenizer;
}

}  // namespace

bool Tokenizer::can_cut(std::string_view text, std::size_t at) const { return is_word_cut(text, at); }

void Tokenizer::check_ids(std::span<const std::int32_t> ids) const {
  const std::int64_t size = vocabulary_size();
  const auto bad = std::ranges::find_if(ids, [&](std::int32_t id) { return id < 0 || id >= size; });
  TRIREME_CHECK(bad == ids.end(), DataError, "token {} is not in the vocabulary of {} ids", *bad, size);
}

std::string Tokenizer::digest() const {
  const std::string definition = payload();
  return trireme::digest(definition.data(), definition.size());
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_gpt2_tokenizer(BpeVocabulary vocabulary) {
  return std::make_unique<BpeTokenizer>("gpt2", std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_huggingface_tokenizer(BpeVocabulary vocabulary) {
  return std::make_unique<BpeTokenizer>("huggingface", std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(WordPieceVocabulary vocabulary) {
  return std::make_unique<WordPieceTokenizer>(std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_null_tokenizer(std::int64_t vocabulary_size, std::int64_t end_of_document) {
  return std::make_unique<NullTokenizer>(vocabulary_size, end_of_document);
}

std::unique_ptr<Tokenizer> tokenizer_from_payload(const std::string& name, const std::string& payload) {
  if (name == "gpt2") return make_gpt2_tokenizer(bpe_from_payload(payload));
  if (name == "null") return null_from_payload(payload);
  if (name == "huggingface") return make_huggingface_tokenizer(bpe_from_payload(payload));
  if (name == "wordpiece") return make_wordpiece_tokenizer(wordpiece_from_payload(payload));
  TRIREME_CHECK(name == "bytes", DataError, "unknown tokenizer '{}'. Try bytes, gpt2, huggingface, null or wordpiece",
                name);
  TRIREME_CHECK(payload == byte_payload, DataError, "the embedded definition of the byte tokenizer is damaged");
  return make_byte_tokenizer();
}

SpecialTokenFinder::SpecialTokenFinder(const Tokenizer& tokenizer) : spellings_(tokenizer.special_spellings()) {
  std::ranges::sort(spellings_);
  for (const std::string& spelling : spellings_) {
    if (first_bytes_.find(spelling[0]) == first_bytes_.npos) first_bytes_ += spelling[0];
  }
}

void SpecialTokenFinder::count(std::string_view text, SpellingCounts& counts) const {
  for (const char first : first_bytes_) {
    for (std::size_t at = text.find(first); at != text.npos;) {
      const std::string_view found = spelling_at(text.substr(at));
      if (!found.empty()) ++counts[std::string(found)];
      at = text.find(first, at + std::max<std::size_t>(found.size(), 1));
    }
  }
}

/// Returns the longest spelling that `text` begins with; empty if none.
std::string_view SpecialTokenFinder::spelling_at(std::string_view text) const {
  // It is not greater than the text. Of the spellings that are not, it is the greatest with which the text begins.
  for (auto after = std::ranges::upper_bound(spellings_, text); after != spellings_.begin(); --after) {
    const std::string& spelling = *(after - 1);
    if (text.starts_with(spelling)) return spelling;
    if (spelling[0] != text[0]) break;
  }
  return {};
}

}  // namespace trireme::data

#include "src/data/tokenizer/tokenizer.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/parse_number.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/payload_lines.hpp"
#include "src/data/tokenizer/sentence_piece_tokenizer.hpp"
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
  std::vector<std::pair<std::string, std::int32_t>> special_names() const override { return {{"<|endoftext|>", 256}}; }

 private:
  std::string definition() const override { return byte_payload; }
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

 private:
  std::string definition() const override {
    return fmt::format("{}\n{} {}\n", null_title, vocabulary_size_, end_of_document_);
  }

  std::int64_t vocabulary_size_;
  std::int32_t end_of_document_;
};

/// Returns the names of a tokenizer's special tokens with their properties.
std::vector<AddedText> special_texts(const Tokenizer& tokenizer) {
  std::vector<AddedText> names;
  const std::map<std::int32_t, AddedToken>& added = tokenizer.special().added;
  for (const auto& [name, id] : tokenizer.special_names()) {
    const auto found = added.find(id);
    names.push_back({name, id, found == added.end() ? AddedToken() : found->second});
  }
  return names;
}

std::string ids_text(const std::vector<std::int32_t>& ids) {
  return ids.empty() ? "none" : fmt::format("{}", fmt::join(ids, " "));
}

std::unique_ptr<Tokenizer> null_from_definition(std::string_view payload) {
  PayloadLines lines(payload);
  lines.title(null_title);
  const auto [size, end_of_document] = lines.numbers<2>(max_null_size);
  TRIREME_CHECK(size >= 1 && end_of_document < size, DataError, "the embedded tokenizer is damaged: {} of {} ids",
                end_of_document, size);
  auto tokenizer = make_null_tokenizer(size, end_of_document);
  TRIREME_CHECK(tokenizer->payload() == payload, DataError, "the embedded definition of the null tokenizer is damaged");
  return tokenizer;
}

std::unique_ptr<Tokenizer> from_definition(const std::string& name, std::string_view definition) {
  if (name == "gpt2") return make_gpt2_tokenizer(bpe_from_payload(definition));
  if (name == "null") return null_from_definition(definition);
  if (name == "huggingface") return make_huggingface_tokenizer(bpe_from_payload(definition));
  if (name == "sentencepiece") return make_sentence_piece_tokenizer(sentence_piece_model(definition));
  if (name == "wordpiece") return make_wordpiece_tokenizer(wordpiece_from_payload(definition));
  TRIREME_CHECK(name == "bytes", DataError,
                "unknown tokenizer '{}'. Try bytes, gpt2, huggingface, null, sentencepiece or wordpiece", name);
  TRIREME_CHECK(definition == byte_payload, DataError, "the embedded definition of the byte tokenizer is damaged");
  return make_byte_tokenizer();
}

}  // namespace

std::vector<std::string> Tokenizer::special_spellings() const {
  std::vector<std::string> spellings;
  for (auto& [name, id] : special_names()) spellings.push_back(std::move(name));
  return spellings;
}

bool Tokenizer::can_cut(std::string_view text, std::size_t at) const { return is_word_cut(text, at); }

std::vector<std::int32_t> Tokenizer::known_ids(std::span<const std::int32_t> ids) const {
  std::vector<std::int32_t> known;
  std::ranges::copy_if(ids, std::back_inserter(known), [&](std::int32_t id) { return id < vocabulary_size(); });
  return known;
}

void Tokenizer::check_ids(std::span<const std::int32_t> ids) const {
  const std::int64_t size = vocabulary_size();
  const auto bad = std::ranges::find_if(ids, [&](std::int32_t id) { return id < 0 || id >= size; });
  TRIREME_CHECK(bad == ids.end(), DataError, "token {} is not in the vocabulary of {} ids", *bad, size);
}

void Tokenizer::set_special(SpecialTokens special) {
  TRIREME_CHECK(special.max_id() < vocabulary_size(), DataError,
                "the special token {} is not in the vocabulary of {} ids", special.max_id(), vocabulary_size());
  special_ = std::move(special);
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<std::int32_t> ids = special_.prefix;
  encode(text, ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_chat(std::string_view text) const {
  std::vector<std::int32_t> ids;
  SpecialTokenParser(*this).encode(text, true, ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::stops() const {
  if (!special_.stops.empty() || end_of_document() < 0) return special_.stops;
  return {end_of_document()};
}

std::string Tokenizer::digest() const {
  const std::string definition = payload();
  return trireme::digest(definition.data(), definition.size());
}

std::string Tokenizer::ids_digest() const { return ids_digest_of(name_, definition()); }

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
  SplitPayload parts = split_payload(payload);
  std::unique_ptr<Tokenizer> tokenizer = from_definition(name, parts.definition);
  tokenizer->set_special(std::move(parts.special));
  return tokenizer;
}

std::string ids_digest_of(const std::string& name, const std::string& payload) {
  const auto text_digest = [](std::string_view text) { return trireme::digest(text.data(), text.size()); };
  const std::string_view definition = split_payload(payload).definition;
  if (name == "null") return text_digest(definition.substr(0, definition.rfind(' ')));
  if (name != "gpt2" && name != "huggingface") return text_digest(definition);
  const BpeVocabulary bpe = bpe_from_payload(definition);
  const bool composes = bpe.normalizer == std::vector<NormalizerStep>{{}};
  std::string text = fmt::format("{} {} {} {} {}\n", bpe.tokens.size(), bpe.merges.size(),
                                 static_cast<int>(bpe.pattern), composes, bpe.whole_words) +
                     bpe_extension_text(bpe);
  for (const std::string& token : bpe.tokens) text += escape_bytes(token) + '\n';
  for (const auto& [left, right] : bpe.merges) text += escape_bytes(left) + ' ' + escape_bytes(right) + '\n';
  std::vector<std::int32_t> added = bpe.added;
  std::ranges::sort(added);
  return text_digest(text + ids_text(added));
}

std::int64_t needed_ids(const std::string& name, const std::string& payload, std::int64_t vocabulary_size) {
  if (name != "gpt2" && name != "huggingface") return vocabulary_size;
  const BpeVocabulary vocabulary = bpe_from_payload(payload);
  std::set<std::int64_t> added(vocabulary.added.begin(), vocabulary.added.end());
  added.insert(vocabulary.special.begin(), vocabulary.special.end());
  std::int64_t needed = vocabulary_size;
  while (added.contains(needed - 1)) --needed;
  return needed;
}

TokenizerComparison compare_tokenizers(const std::string& name, const std::string& payload,
                                       const std::string& other_name, const std::string& other_payload) {
  if (name == other_name && payload == other_payload) return {.same_ids = true};
  if (ids_digest_of(name, payload) != ids_digest_of(other_name, other_payload)) return {};
  const std::unique_ptr<Tokenizer> one = tokenizer_from_payload(name, payload);
  const std::unique_ptr<Tokenizer> other = tokenizer_from_payload(other_name, other_payload);
  TokenizerComparison result{.same_ids = true};
  const auto compare = [&](const char* what, const std::string& here, const std::string& there) {
    if (here != there) {
      result.difference += fmt::format("{}{} {} and {}", result.difference.empty() ? "" : ", ", what, here, there);
    }
  };
  const auto id_text = [](std::optional<std::int32_t> id) { return id ? std::to_string(*id) : "none"; };
  const SpecialTokens &a = one->special(), &b = other->special();
  compare("end of document", std::to_string(one->end_of_document()), std::to_string(other->end_of_document()));
  compare("bos", id_text(a.bos), id_text(b.bos));
  compare("eos", id_text(a.eos), id_text(b.eos));
  compare("pad", id_text(a.pad), id_text(b.pad));
  compare("ends of generation", ids_text(a.stops), ids_text(b.stops));
  compare("before texts", ids_text(a.prefix), ids_text(b.prefix));
  if (result.difference.empty() && a != b) result.difference = "properties or files of transformers";
  return result;
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

SpecialTokenParser::SpecialTokenParser(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), names_(special_texts(tokenizer)) {}

void SpecialTokenParser::encode(std::string_view text, bool begins_text, std::vector<std::int32_t>& ids) const {
  names_.split(
      text, [&](std::string_view part) { encode_part(part, begins_text, part.data() != text.data(), ids); },
      [&](std::int32_t id, std::size_t) { ids.push_back(id); });
}

void SpecialTokenParser::encode_part(std::string_view part, bool begins_text, bool follows_token,
                                     std::vector<std::int32_t>& ids) const {
  if (follows_token) {
    tokenizer_.encode_after_token(part, ids);
  } else if (begins_text) {
    tokenizer_.encode(part, ids);
  } else {
    tokenizer_.encode_continuation(part, ids);
  }
}

std::vector<std::size_t> SpecialTokenParser::encode(std::string_view text, std::span<const std::size_t> places,
                                                    std::vector<std::int32_t>& ids) const {
  std::vector<std::size_t> counts;
  const std::size_t first = ids.size();
  // A place inside a special token comes before the next token.
  const auto pass = [&](std::size_t begin) {
    while (counts.size() < places.size() && places[counts.size()] <= begin) counts.push_back(ids.size() - first);
  };
  names_.split(
      text,
      [&](std::string_view part) {
        const auto begin = static_cast<std::size_t>(part.data() - text.data());
        pass(begin);
        const std::size_t before = ids.size();
        encode_part(part, true, begin > 0, ids);
        while (counts.size() < places.size() && places[counts.size()] < begin + part.size()) {
          counts.push_back(
              before - first +
              tokens_before(part, places[counts.size()] - begin, begin == 0, std::span(ids).subspan(before)));
        }
      },
      [&](std::int32_t id, std::size_t begin) {
        pass(begin);
        ids.push_back(id);
      });
  counts.resize(places.size(), ids.size() - first);
  return counts;
}

/// Returns how many of the tokens `ids` of `part` begin in its first bytes: those before the end of the text that these
/// bytes alone are decoded to. So changes of the tokenizer, such as those of a normalizer, are allowed elsewhere.
std::size_t SpecialTokenParser::tokens_before(std::string_view part, std::size_t size_bytes, bool begins_text,
                                              std::span<const std::int32_t> ids) const {
  std::vector<std::int32_t> prefix_ids;
  encode_part(part.substr(0, size_bytes), true, !begins_text, prefix_ids);
  std::string prefix, decoded;
  for (const std::int32_t id : prefix_ids) tokenizer_.decode_continuation({&id, 1}, prefix);
  std::size_t count = 0;
  for (; count < ids.size() && decoded.size() < prefix.size(); ++count) {
    tokenizer_.decode_continuation({&ids[count], 1}, decoded);
  }
  TRIREME_CHECK(decoded.starts_with(prefix), DataError,
                "the tokenizer {} changes the text between '{}' and the words after it, so that their tokens are not "
                "known. Try a tokenizer without such a normalizer",
                tokenizer_.name(), quotation_of(part.substr(0, size_bytes)));
  return count;
}

bool SpecialTokenParser::can_cut(std::string_view text, std::size_t at) const {
  return tokenizer_.can_cut(text, at) && names_.can_cut(text, at) && !names_.are_at_end_of(text.substr(0, at));
}

}  // namespace trireme::data

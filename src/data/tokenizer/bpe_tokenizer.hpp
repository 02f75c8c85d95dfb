#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "src/data/tokenizer/added_tokens.hpp"
#include "src/data/tokenizer/byte_pair_encoder.hpp"
#include "src/data/tokenizer/character_words.hpp"
#include "src/data/tokenizer/split_words.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/unigram_encoder.hpp"
#include "src/data/tokenizer/word_cache.hpp"
#include "src/data/tokenizer/word_splitter.hpp"

namespace trireme::data {

/// Byte-pair encoding of bytes or characters, or a unigram model. A text's added tokens are found first, then the text
/// between them is normalised and cut into words, by a pattern, by `SplitWords` or as `CharacterWords`, and each word
/// is encoded.
class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(std::string name, BpeVocabulary vocabulary);
  std::int64_t vocabulary_size() const override { return std::ssize(vocabulary_.tokens); }
  std::int32_t end_of_document() const override { return vocabulary_.end_of_document; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    encode_from(text, TextStart::text, ids);
  }
  void encode_continuation(std::string_view text, std::vector<std::int32_t>& ids) const override {
    encode_from(text, TextStart::inside, ids);
  }
  void encode_after_token(std::string_view text, std::vector<std::int32_t>& ids) const override {
    encode_from(text, TextStart::part, ids);
  }
  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override;
  void decode_continuation(std::span<const std::int32_t> ids, std::string& bytes) const override;
  /// The marked tokens and the one that ends documents or, if none are marked, those that are neither a byte nor a
  /// merge result.
  std::vector<std::pair<std::string, std::int32_t>> special_names() const override;
  bool can_cut(std::string_view text, std::size_t at) const override;

 private:
  /// Printable ASCII lines: a title; the numbers of tokens and merges and the end of document; each token, escaped; the
  /// ids of the two sides of each merge. Tokenizers other than GPT-2's continue: pattern, NFC and whole words; the
  /// numbers of special and added tokens; their ids. `bpe_extension_text` follows, if there is one.
  std::string definition() const override;
  std::vector<std::pair<std::string, std::int32_t>> find_special_names() const;
  /// Sides of each merge; none of a unigram model.
  std::vector<std::pair<std::int32_t, std::int32_t>> merges() const;
  void encode_from(std::string_view text, TextStart start, std::vector<std::int32_t>& ids) const;
  void encode_part(std::string_view text, TextStart start, std::vector<std::int32_t>& ids) const;
  void encode_normalised(std::string_view text, TextStart start, std::vector<std::int32_t>& ids) const;
  bool can_cut_words(std::string_view text, std::size_t at) const;
  bool can_cut_characters(std::string_view text, std::size_t at) const;
  std::string marked(std::string_view text, TextStart start) const;

  std::variant<BytePairEncoder, UnigramEncoder> encoder_;
  WordCaches caches_;
  BpeVocabulary vocabulary_;  // without its merges, which `encoder_` has
  std::variant<WordSplitter, SplitWords, CharacterWords> words_;
  Normalizer normalizer_;
  AddedTokens raw_added_, normalised_added_;                   // found before and after normalisation
  AddedTokens inner_added_;                                    // the latter without what the normalizer prepends
  std::vector<std::string> texts_;                             // by id: its bytes, unless they are the token's
  std::unordered_map<std::string, std::int32_t> whole_texts_;  // if texts without words bypass the merges
  mutable std::once_flag names_once_;
  mutable std::vector<std::pair<std::string, std::int32_t>> names_;  // special names, found when first asked for
};

/// Lines of a payload on the parts of a vocabulary that few have: steps of normalisation other than NFC alone,
/// properties of added tokens, `characters`, `splits` and `unigram`. Empty if it has none of them.
std::string bpe_extension_text(const BpeVocabulary& vocabulary);

/// The vocabulary that a payload of a `BpeTokenizer` describes. Throws DataError naming the line that is damaged.
BpeVocabulary bpe_from_payload(std::string_view payload);

}  // namespace trireme::data

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/utf8.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/word_cache.hpp"

namespace trireme::data {

/// Token of a text and the bytes [begin, end) that it was made of.
struct TextToken {
  std::int32_t id = 0;
  std::size_t begin = 0, end = 0;
};

/// BERT's tokenizer (Devlin et al. 2018). Control characters and bytes that are not UTF-8 are removed. Text is cut at
/// white space, around ideographs and around punctuation. Unless case is kept, it is converted to lower case without
/// accents. Each word becomes the longest piece of the vocabulary that starts it, then the longest "##" piece that
/// continues it, and so on. A word of more than `max_word_characters`, or without such pieces, is [UNK].
class WordPieceTokenizer final : public Tokenizer {
 public:
  explicit WordPieceTokenizer(WordPieceVocabulary vocabulary);
  WordPieceTokenizer(const WordPieceTokenizer&) = delete;
  WordPieceTokenizer& operator=(const WordPieceTokenizer&) = delete;

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  /// [EOS].
  std::int32_t end_of_document() const override { return end_of_document_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  /// Returns the tokens that `encode` makes of `text`, with their bytes in it. A token includes the combining marks
  /// after its last character.
  std::vector<TextToken> encode_with_offsets(std::string_view text) const;
  /// Returns the pieces, with spaces between words: ids do not determine the original text.
  void decode(std::span<const std::int32_t> ids, std::string& bytes) const override;
  std::vector<std::pair<std::string, std::int32_t>> special_names() const override;

 private:
  /// Printable ASCII lines: a title; the number of tokens, whether text is brought to lower case and, unless it is
  /// 100, `max_word_characters`; each token, escaped.
  std::string definition() const override;
  enum class Class : std::uint8_t { letter, punctuation, ideograph, space, dropped };
  Class class_of(Utf8Character c) const { return c.size_bytes == 0 ? Class::dropped : classes_[c.code_point]; }
  Class class_at(const char* text, const char* end, int& size_bytes) const;
  Word first_word(const char* text, const char* end) const;
  const char* cut_block(const char* text, const char* end, WordBatch& words) const;
  void encode_with_cache(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_words(const std::string& words, bool is_ascii, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  /// Calls `take` with each word of `words`, cleaned characters between white space, cut around punctuation.
  template <class Take>
  void cut_at_punctuation(std::string_view words, const Take& take) const;
  class OffsetEncoder;

  bool lower_case_;
  std::int64_t max_word_characters_;
  std::vector<std::string> tokens_;
  WordTable starts_, continuations_;  // the latter without "##"
  std::size_t max_token_bytes_ = 0;
  std::int32_t unknown_ = -1, end_of_document_ = -1;
  std::vector<Class> classes_;  // class of every code point
  WordCaches caches_;
};

/// The vocabulary that a payload of a `WordPieceTokenizer` describes. Throws DataError naming the line that is damaged.
WordPieceVocabulary wordpiece_from_payload(std::string_view payload);

}  // namespace trireme::data

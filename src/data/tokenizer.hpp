#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

/// Text to token ids and back. Safe to use from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// "bytes", "gpt2" ...
  virtual const std::string& name() const = 0;
  /// Number of ids, special tokens included.
  virtual std::int64_t vocabulary_size() const = 0;
  /// Id of the token that ends a document. It never comes from text.
  virtual std::int32_t end_of_document() const = 0;
  /// Appends the ids of `text`, any bytes. Special tokens' names in the text are ordinary text.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  /// Appends the bytes of `ids`; the token that ends a document gives none. Throws DataError for an id that is not in
  /// the vocabulary.
  virtual void decode(std::span<const std::int32_t> ids, std::string& bytes) const = 0;
  /// Whether `text` may be cut before byte `at`, 0 < at < text.size(): its two parts, encoded one after the other, give
  /// the ids of the whole. By default where `is_word_cut` says so.
  virtual bool can_cut(std::string_view text, std::size_t at) const;
  /// The definition as one text, from which `tokenizer_from_payload` makes an equal tokenizer.
  virtual std::string payload() const = 0;
  /// Digest of the payload: equal digests give equal ids.
  std::string digest() const;
};

/// A byte-level BPE's definition, wherever it was read from.
struct BpeVocabulary {
  std::vector<std::string> tokens;                          ///< bytes of each id; ids are 0 .. size - 1
  std::vector<std::pair<std::string, std::string>> merges;  ///< bytes of the two sides, best first
  std::int32_t end_of_document = -1;                        ///< id of <|endoftext|>
};

/// 256 byte values and one end-of-document token, 256: 257 ids.
std::unique_ptr<Tokenizer> make_byte_tokenizer();
/// GPT-2's byte-level BPE. Throws DataError naming the entry where the vocabulary contradicts itself.
std::unique_ptr<Tokenizer> make_gpt2_tokenizer(BpeVocabulary vocabulary);
/// Ids made elsewhere, 0 to vocabulary_size - 1; see NullTokenizer. Throws ConfigError.
std::unique_ptr<Tokenizer> make_null_tokenizer(std::int64_t vocabulary_size, std::int64_t end_of_document);
/// The tokenizer that a corpus or checkpoint embeds.
std::unique_ptr<Tokenizer> tokenizer_from_payload(const std::string& name, const std::string& payload);

}  // namespace trireme::data

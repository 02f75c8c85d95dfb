#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/tokenizer/added_tokens.hpp"
#include "src/data/tokenizer/normalizer.hpp"
#include "src/data/tokenizer/special_tokens.hpp"

namespace trireme::data {

/// Converts text to token ids and back. Thread-safe.
class Tokenizer {
 public:
  explicit Tokenizer(std::string name) : name_(std::move(name)) {}
  virtual ~Tokenizer() = default;
  /// "bytes", "gpt2", "huggingface", "null", "sentencepiece" or "wordpiece".
  const std::string& name() const { return name_; }
  /// Number of ids, special tokens included.
  virtual std::int64_t vocabulary_size() const = 0;
  /// Id of the token that ends a document. It never comes from text.
  virtual std::int32_t end_of_document() const = 0;
  /// Appends the ids of `text`, any bytes. Special tokens' names in the text are ordinary text.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  /// Appends the ids of a text that continues another one, which was cut. Differs from `encode` if the tokenizer puts
  /// something before a text, such as a space.
  virtual void encode_continuation(std::string_view text, std::vector<std::int32_t>& ids) const { encode(text, ids); }
  /// Appends the ids of a text that follows a special token.
  virtual void encode_after_token(std::string_view text, std::vector<std::int32_t>& ids) const { encode(text, ids); }
  /// Names of special tokens, none of them empty. In a text they are ordinary text.
  std::vector<std::string> special_spellings() const;
  /// These names with their ids. A `SpecialTokenParser` takes them for these tokens.
  virtual std::vector<std::pair<std::string, std::int32_t>> special_names() const { return {}; }
  /// Appends the bytes of `ids`; the token that ends a document has none. Throws DataError for an id outside the
  /// vocabulary.
  virtual void decode(std::span<const std::int32_t> ids, std::string& bytes) const = 0;
  /// Appends the bytes of ids that follow others. Differs from `decode` if that removes what `encode` puts before a
  /// text.
  virtual void decode_continuation(std::span<const std::int32_t> ids, std::string& bytes) const { decode(ids, bytes); }
  /// Returns whether `text` may be cut before byte `at`, 0 < at < text.size(). The ids of its first part and those of
  /// the second as its continuation then concatenate to the ids of the full text. The default is `is_word_cut`.
  virtual bool can_cut(std::string_view text, std::size_t at) const;
  /// Tokens with a meaning of their own; none of them changes the ids of a text.
  const SpecialTokens& special() const { return special_; }
  /// Throws DataError for an id outside the vocabulary.
  void set_special(SpecialTokens special);
  /// Returns the ids of a text that a model continues: those that the tokenizer puts before it, then its own.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;
  /// Returns the ids of a text by a `SpecialTokenParser`.
  std::vector<std::int32_t> encode_chat(std::string_view text) const;
  /// Ids at which a continuation ends; by default the one that ends documents, if there is one.
  std::vector<std::int32_t> stops() const;
  /// The special tokens and the definition as one text, from which `tokenizer_from_payload` makes an equal tokenizer.
  std::string payload() const { return special_tokens_text(special_) + definition(); }
  /// The ids without those beyond the vocabulary, which no text has: a model may have more rows.
  std::vector<std::int32_t> known_ids(std::span<const std::int32_t> ids) const;
  /// Digest of the payload.
  std::string digest() const;
  /// Digest of what decides the ids of texts: see `ids_digest_of`.
  std::string ids_digest() const;

 protected:
  /// The payload without the special tokens.
  virtual std::string definition() const = 0;
  /// Throws DataError for an id outside the vocabulary.
  void check_ids(std::span<const std::int32_t> ids) const;

 private:
  std::string name_;
  SpecialTokens special_;
};

/// Pattern by which a byte-level BPE cuts text into words; WordSplitter lists the patterns.
enum class WordPattern { gpt2, llama3, qwen2, tekken, o200k };
inline constexpr int word_pattern_count = 5;

/// One step of cutting a text into words, `Split` of tokenizers: it cuts each part that earlier steps made at the
/// matches of a regular expression, as `Regex` finds them.
struct SplitStep {
  /// Result of a match: nothing, a word, the end of the word before it, the beginning of the one after it, or a word
  /// together with the matches beside it.
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  std::string regex;
  Behavior behavior = Behavior::isolated;
  bool invert = false;       ///< the text between matches counts as matches, and the reverse
  bool in_spelling = false;  ///< the text is spelled by `spelling_of`
  bool operator==(const SplitStep&) const = default;
};

/// How SentencePiece's "Metaspace" finds words: spaces become `space_mark`, and texts may begin with one.
struct Metaspace {
  /// Stretches of text that a mark is put before, unless they begin with one: the first, or also those after added
  /// tokens.
  enum class Prefix { never, first, always };
  Prefix prefix = Prefix::always;
  bool split = true;      ///< a word begins at each mark; otherwise words have no limits
  bool by_words = false;  ///< white space is left out, and a mark is put before each word ("WhitespaceSplit")
  bool operator==(const Metaspace&) const = default;
};

/// Parts of a BPE of characters, such as Llama 2's, that a byte-level BPE lacks. Its tokens are spelled in UTF-8, and
/// those of bytes as `byte_token`. A character without a token becomes the tokens of its bytes ("byte_fallback").
struct CharacterForm {
  std::optional<Metaspace> metaspace = {};
  bool strip = true;  ///< decoding leaves out one space at the beginning of a text
  bool operator==(const CharacterForm&) const = default;
};

/// Name of a byte's token in a `CharacterForm`: "<0x0A>".
std::string byte_token(std::size_t byte);
/// The inverse; nothing for another token.
std::optional<char> byte_of_token(std::string_view token);

/// Scores of a unigram model's tokens, logarithms of probabilities, instead of merges.
struct UnigramScores {
  std::vector<double> scores;  ///< by id
  std::int32_t unknown = -1;   ///< id for characters that are no token
  bool byte_fallback = false;  ///< these become the tokens of their bytes
  bool operator==(const UnigramScores&) const = default;
};

/// Definition of a byte-level BPE, one of characters, or a unigram model, independent of its source format.
struct BpeVocabulary {
  std::vector<std::string> tokens;                          ///< bytes of each id; ids are 0 .. size - 1
  std::vector<std::pair<std::string, std::string>> merges;  ///< bytes of the two sides, best first
  std::int32_t end_of_document = -1;                        ///< id of the token that ends documents
  WordPattern pattern = WordPattern::gpt2;
  std::vector<SplitStep> splits = {};           ///< cut words instead of `pattern`, if there are any
  std::vector<NormalizerStep> normalizer = {};  ///< changes of the text between added tokens
  bool whole_words = false;                     ///< a word that is a token bypasses the merges
  std::vector<std::int32_t> special;            ///< ids that never come from text
  std::vector<std::int32_t> added;  ///< ids that are found in text, the longest first, before it is cut into words
  /// Properties of those of `added` that are found in the changed text, as single words or with the white space beside
  /// them.
  std::map<std::int32_t, AddedToken> added_properties = {};
  std::optional<CharacterForm> characters = {};  ///< a BPE of characters; `pattern` is then unused
  std::optional<UnigramScores> unigram = {};     ///< a unigram model instead; has `characters`, too, and no merges
};

/// The definition of BERT's tokenizer.
struct WordPieceVocabulary {
  std::vector<std::string> tokens;         ///< by id; "##" marks those that continue a word
  bool lower_case = true;                  ///< bring text to lower case and strip accents
  std::int64_t max_word_characters = 100;  ///< longer words are [UNK]; BERT's own limit is 200, as in Megatron-LM
};

/// 256 byte values and one end-of-document token, 256: 257 ids.
std::unique_ptr<Tokenizer> make_byte_tokenizer();
/// GPT-2's byte-level BPE. Throws DataError naming the entry where the vocabulary contradicts itself.
std::unique_ptr<Tokenizer> make_gpt2_tokenizer(BpeVocabulary vocabulary);
/// Another byte-level BPE, one of characters, or a unigram model, as Hugging Face's tokenizer.json describes them.
/// Throws likewise.
std::unique_ptr<Tokenizer> make_huggingface_tokenizer(BpeVocabulary vocabulary);
/// BERT's WordPiece. [BOS] and [EOS] are added if missing, as in Megatron-LM; the latter ends documents. Throws
/// DataError naming the token where one occurs twice, is not UTF-8, or a special one is missing.
std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(WordPieceVocabulary vocabulary);
/// The tokenizer of a tokenizer.model, a unigram model or a BPE of SentencePiece, whose </s> ends documents. `model` is
/// the content of the file. Throws DataError if it is damaged or has no </s>, EnvironmentError without the library.
std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(std::string model);
/// Ids 0 to vocabulary_size - 1 that were made elsewhere: the text is the ids in decimal, separated by white space.
/// Throws ConfigError unless `end_of_document` is one of them.
std::unique_ptr<Tokenizer> make_null_tokenizer(std::int64_t vocabulary_size, std::int64_t end_of_document);
/// The tokenizer that a corpus or checkpoint embeds.
std::unique_ptr<Tokenizer> tokenizer_from_payload(const std::string& name, const std::string& payload);

/// Digest of the vocabulary, merges, pattern and ids of a tokenizer that a corpus or checkpoint embeds. Equal digests
/// give the same ids to a text. It covers neither the special tokens nor the one that ends documents. Throws DataError
/// if the payload is damaged.
std::string ids_digest_of(const std::string& name, const std::string& payload);

/// Returns the number of ids up to the last that is no added token: a model may lack rows for those at the end, as
/// Gemma 3's do.
std::int64_t needed_ids(const std::string& name, const std::string& payload, std::int64_t vocabulary_size);

/// Result of comparing two tokenizers.
struct TokenizerComparison {
  bool same_ids = false;        ///< by `ids_digest_of`
  std::string difference = {};  ///< "bos 1 and none, ..." of special tokens, if the ids are the same; empty if none
};
/// Compares the tokenizers that corpora or checkpoints embed. Throws DataError if a payload is damaged.
TokenizerComparison compare_tokenizers(const std::string& name, const std::string& payload,
                                       const std::string& other_name, const std::string& other_payload);

/// Frequency of each spelling.
using SpellingCounts = std::map<std::string, std::int64_t>;

/// Finds the spellings of a tokenizer's special tokens in text, where encoding treats them as ordinary text.
class SpecialTokenFinder {
 public:
  explicit SpecialTokenFinder(const Tokenizer& tokenizer);
  /// Adds the spellings in `text` to `counts`. The longest of several at the same byte counts.
  void count(std::string_view text, SpellingCounts& counts) const;

 private:
  std::string_view spelling_at(std::string_view text) const;

  std::vector<std::string> spellings_;  // sorted
  std::string first_bytes_;             // first bytes of the tokens, each once
};

/// Encodes texts in which the names of special tokens are these tokens, wherever they come from. As in transformers,
/// the leftmost and longest name counts, and AddedToken's properties decide on its neighbours.
class SpecialTokenParser {
 public:
  /// The tokenizer must outlive it.
  explicit SpecialTokenParser(const Tokenizer& tokenizer);
  /// Appends the ids of a text, or of one that continues another one.
  void encode(std::string_view text, bool begins_text, std::vector<std::int32_t>& ids) const;
  /// Appends the ids of a text. Returns, for each of `places`, ascending bytes of the text, the number of its tokens
  /// that begin before that byte. Throws DataError for a place at which the tokenizer changes the text.
  std::vector<std::size_t> encode(std::string_view text, std::span<const std::size_t> places,
                                  std::vector<std::int32_t>& ids) const;
  /// Returns whether a text ends with the name of a special token.
  bool ends_with_name(std::string_view text) const { return names_.are_at_end_of(text); }
  /// As `Tokenizer::can_cut`, for the text with its special tokens.
  bool can_cut(std::string_view text, std::size_t at) const;

 private:
  void encode_part(std::string_view part, bool begins_text, bool follows_token, std::vector<std::int32_t>& ids) const;
  std::size_t tokens_before(std::string_view part, std::size_t size_bytes, bool begins_text,
                            std::span<const std::int32_t> ids) const;

  const Tokenizer& tokenizer_;
  AddedTokens names_;
};

}  // namespace trireme::data

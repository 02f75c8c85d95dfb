#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/byte_block.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {
namespace {

// The second one's numbers include the maximum word length, which is 100 characters in the first.
constexpr std::string_view payload_title = "trireme wordpiece 1", payload_title_2 = "trireme wordpiece 2";
constexpr std::int64_t default_max_word_characters = WordPieceVocabulary{}.max_word_characters;

bool is_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_punctuation(char32_t c, utf8proc_category_t category) {
  // All of ASCII's signs, though to Unicode some ('$', '+', '<', '^', '`', '|', '~' ...) are symbols.
  const bool ascii =
      (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return ascii || (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

std::int32_t id_in(const WordTable& table, std::string_view word) {
  const char* const end = word.data() + word.size();
  return table.find({word.data(), end}, end);
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(WordPieceVocabulary vocabulary)
    : Tokenizer("wordpiece"),
      lower_case_(vocabulary.lower_case),
      max_word_characters_(vocabulary.max_word_characters),
      tokens_(std::move(vocabulary.tokens)),
      classes_(unicode_code_points, Class::letter),
      caches_(tokens_.size() + 2) {  // with those added below
  // As Megatron-LM does, for documents.
  for (const char* special : {"[BOS]", "[EOS]"}) {
    if (std::ranges::find(tokens_, special) == tokens_.end()) tokens_.emplace_back(special);
  }
  TRIREME_CHECK(tokens_.size() <= static_cast<std::size_t>(max_vocabulary_size), DataError,
                "the vocabulary has {} tokens; at most {} are possible", tokens_.size(), max_vocabulary_size);
  starts_ = continuations_ = WordTable(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view token = tokens_[i];
    const auto id = static_cast<std::int32_t>(i);
    TRIREME_CHECK(!token.empty(), DataError, "the token of id {} is empty", id);
    TRIREME_CHECK(is_utf8(token), DataError, "token {} ('{}') is not UTF-8", id, quotation_of(token));
    const bool continues = token.starts_with("##") && token.size() > 2;
    WordTable& pieces = continues ? continuations_ : starts_;
    const std::string_view piece = token.substr(continues ? 2 : 0);
    const std::int32_t previous = id_in(pieces, piece);
    TRIREME_CHECK(previous < 0, DataError, "the vocabulary has token '{}' twice, as id {} and id {}",
                  quotation_of(token), previous, id);
    pieces.insert(piece, id);
    max_token_bytes_ = std::max(max_token_bytes_, token.size());
  }
  const auto id_of = [&](const char* token) {
    const std::int32_t id = id_in(starts_, token);
    TRIREME_CHECK(id >= 0, DataError, "the vocabulary has no {}, which BERT's tokenizer needs", token);
    return id;
  };
  unknown_ = id_of("[UNK]");
  for (const char* token : {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}) id_of(token);
  end_of_document_ = id_of("[EOS]");

  for (char32_t c = 0; c < unicode_code_points; ++c) {
    const utf8proc_category_t category = category_of(c);
    const bool is_line = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD ||
        (!is_line && (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                      category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CS))) {
      classes_[c] = Class::dropped;
    } else if (is_white_space(c)) {
      classes_[c] = Class::space;
    } else if (is_ideograph(c)) {
      classes_[c] = Class::ideograph;
    } else if (is_punctuation(c, category)) {
      classes_[c] = Class::punctuation;
    }
  }
}

std::vector<std::pair<std::string, std::int32_t>> WordPieceTokenizer::special_names() const {
  std::vector<std::pair<std::string, std::int32_t>> names;
  for (const char* name : {"[BOS]", "[CLS]", "[EOS]", "[MASK]", "[PAD]", "[SEP]", "[UNK]"}) {
    if (const std::int32_t id = id_in(starts_, name); id >= 0) names.emplace_back(name, id);
  }
  return names;
}

void WordPieceTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  // The lower case of this letter depends on other words between the same white space.
  constexpr std::string_view capital_sigma = "\xCE\xA3", white_space = " \t\n\r";
  while (!text.empty()) {
    const std::size_t sigma = lower_case_ ? text.find(capital_sigma) : text.npos;
    const std::size_t before = text.find_last_of(white_space, sigma);
    const std::size_t begin = sigma == text.npos ? text.size() : before == text.npos ? 0 : before;
    const std::size_t end = std::min(text.find_first_of(white_space, sigma), text.size());
    encode_with_cache(text.substr(0, begin), ids);
    encode_text(text.substr(begin, end - begin), ids);
    text.remove_prefix(end);
  }
}

/// Encodes words that the characters of other words do not change.
void WordPieceTokenizer::encode_with_cache(std::string_view text, std::vector<std::int32_t>& ids) const {
  make_room(text.size(), ids);
  caches_.with_one([&](WordCache& cache) {
    const char* const end = text.data() + text.size();
    WordBatch batch;
    for (const char* at = text.data(); at != end; batch.clear()) {
      for (const char* next = nullptr; at != end && batch.has_room(); at = next) {
        next = end - at < ByteBlock::size ? nullptr : cut_block(at, end, batch);
        if (next != nullptr) continue;
        const Word word = first_word(at, end);
        if (word.size() > 0) batch.add(word.begin, word.end);
        next = word.end;
      }
      cache.encode(batch.words(), end, ids, [&](Word word, auto& out) { encode_text(word.text(), out); });
    }
  });
}

inline WordPieceTokenizer::Class WordPieceTokenizer::class_at(const char* text, const char* end,
                                                              int& size_bytes) const {
  const Utf8Character c = decode_utf8(text, end);
  size_bytes = std::max(c.size_bytes, 1);
  return class_of(c);
}

/// Returns the first word of a text: a sign, an ideograph, or other characters, including those that are left out. If
/// there is none, it is empty at the end.
Word WordPieceTokenizer::first_word(const char* text, const char* end) const {
  int size_bytes = 0;
  while (text != end && class_at(text, end, size_bytes) == Class::space) text += size_bytes;
  Word word{text, text};
  while (word.end != end) {
    const Class kind = class_at(word.end, end, size_bytes);
    const bool is_alone = kind == Class::punctuation || kind == Class::ideograph;
    if (kind == Class::space || (is_alone && word.size() > 0)) break;
    word.end += size_bytes;
    if (is_alone) break;
  }
  return word;
}

/// Adds the words of a block that begins with a word or white space, except one that may continue behind it. Returns
/// the beginning of the next block, null if the first word fills this one.
inline const char* WordPieceTokenizer::cut_block(const char* text, const char* end, WordBatch& words) const {
  const ByteBlock block(text);
  std::uint64_t spaces = block.equal(' ') | block.range('\t', '\n') | block.equal('\r');
  std::uint64_t alone = block.range('!', '~') & ~block.letters() & ~block.range('0', '9');
  std::uint64_t inside = 0;  // bytes that continue a character
  for (std::uint64_t others = block.others(); others != 0;) {
    const int first = std::countr_zero(others);
    int size_bytes = 0;
    const Class kind = class_at(text + first, end, size_bytes);
    const std::uint64_t own = ((std::uint64_t{1} << size_bytes) - 1) << first;
    spaces |= kind == Class::space ? own : 0;
    alone |= kind == Class::punctuation || kind == Class::ideograph ? own : 0;
    inside |= own & own << 1;
    others &= ~own;
  }
  const std::uint64_t joined = ~(spaces | alone);
  const std::uint64_t begins = (alone & ~inside) | (joined & ~(joined << 1));
  const std::uint64_t ends = (joined << 1 & ~joined) | (alone << 1 & ~inside);
  if (ends == 0) {
    const int next = begins == 0 ? 63 - std::countl_zero(~inside) : std::countr_zero(begins);
    return next == 0 ? nullptr : text + next;
  }
  return words.add(text, begins, ends);
}

/// Encodes any text without the cache.
void WordPieceTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::string words;  // characters between white space, cleaned
  bool is_ascii = true;
  const auto finish_run = [&] {
    if (!words.empty()) encode_words(words, is_ascii, ids);
    words.clear();
    is_ascii = true;
  };
  for_each_character(text, [&](Utf8Character character, std::string_view bytes) {
    const Class kind = class_of(character);
    if (kind == Class::letter || kind == Class::punctuation) {
      const char first = bytes[0];
      if (bytes.size() == 1) {
        words += lower_case_ && first >= 'A' && first <= 'Z' ? static_cast<char>(first + ('a' - 'A')) : first;
      } else {
        words += bytes;
        is_ascii = false;
      }
    } else if (kind != Class::dropped) {
      finish_run();
      if (kind == Class::ideograph) {
        words = bytes;
        is_ascii = false;
        finish_run();
      }
    }
  });
  finish_run();
}

template <class Take>
void WordPieceTokenizer::cut_at_punctuation(std::string_view words, const Take& take) const {
  const char* word = words.data();
  for_each_character(words, [&](Utf8Character character, std::string_view bytes) {
    if (classes_[character.code_point] != Class::punctuation) return;
    if (word != bytes.data()) take(std::string_view(word, bytes.data()));
    take(bytes);
    word = bytes.data() + bytes.size();
  });
  const char* const end = words.data() + words.size();
  if (word != end) take(std::string_view(word, end));
}

void WordPieceTokenizer::encode_words(const std::string& words, bool is_ascii, std::vector<std::int32_t>& ids) const {
  if (!is_ascii && lower_case_) return encode_words(lower_case_without_accents(words), true, ids);
  cut_at_punctuation(words, [&](std::string_view word) { encode_word(word, ids); });
}

/// Maps each byte of a run of cleaned characters back to the text.
class WordPieceTokenizer::OffsetEncoder {
 public:
  OffsetEncoder(const WordPieceTokenizer& tokenizer, std::vector<TextToken>& tokens)
      : tokenizer_(tokenizer), tokens_(tokens) {}

  /// Adds a character, at byte `begin` of the text, to the run.
  void add(std::string_view character, std::size_t begin) {
    const std::size_t end = begin + character.size();
    run_ += character;
    const std::string cleaned = tokenizer_.lower_case_ ? lower_case_without_accents(character) : std::string(character);
    origins_.resize(origins_.size() + cleaned.size(), {begin, end});
    if (cleaned.empty() && !origins_.empty()) origins_.back().end = end;  // a combining mark
  }

  void finish_run() {
    const std::string words = tokenizer_.lower_case_ ? lower_case_without_accents(run_) : run_;
    // Marks reordered around another character: the run is then treated as one unit.
    if (words.size() != origins_.size() && !words.empty()) {
      const Origin all = origins_.empty() ? Origin{} : Origin{origins_.front().begin, origins_.back().end};
      origins_.assign(words.size(), all);
    }
    tokenizer_.cut_at_punctuation(words, [&](std::string_view word) {
      ids_.clear();
      tokenizer_.encode_word(word, ids_);
      auto first = static_cast<std::size_t>(word.data() - words.data());
      for (const std::int32_t id : ids_) {
        const std::size_t size = ids_.size() == 1 ? word.size() : piece_bytes(id);
        tokens_.push_back({id, origins_[first].begin, origins_[first + size - 1].end});
        first += size;
      }
    });
    run_.clear();
    origins_.clear();
  }

 private:
  struct Origin {
    std::size_t begin = 0, end = 0;
  };

  std::size_t piece_bytes(std::int32_t id) const {
    const std::string_view token = tokenizer_.tokens_[static_cast<std::size_t>(id)];
    return token.size() - (token.starts_with("##") && token.size() > 2 ? 2 : 0);
  }

  const WordPieceTokenizer& tokenizer_;
  std::vector<TextToken>& tokens_;
  std::string run_;
  std::vector<Origin> origins_;  // source of each byte of the cleaned run
  std::vector<std::int32_t> ids_;
};

std::vector<TextToken> WordPieceTokenizer::encode_with_offsets(std::string_view text) const {
  std::vector<TextToken> tokens;
  OffsetEncoder encoder(*this, tokens);
  for_each_character(text, [&](Utf8Character character, std::string_view bytes) {
    const Class kind = class_of(character);
    if (kind == Class::space || kind == Class::ideograph) encoder.finish_run();
    if (kind != Class::space && kind != Class::dropped) {
      encoder.add(bytes, static_cast<std::size_t>(bytes.data() - text.data()));
    }
    if (kind == Class::ideograph) encoder.finish_run();
  });
  encoder.finish_run();
  return tokens;
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (std::ssize(word) > max_word_characters_ && count_characters(word) > max_word_characters_) {
    ids.push_back(unknown_);
    return;
  }
  const std::size_t before = ids.size();
  const char* const end = word.data() + word.size();
  for (const auto* pieces = &starts_; !word.empty(); pieces = &continuations_) {
    std::size_t size = std::min(word.size(), max_token_bytes_);
    std::int32_t id = -1;
    for (; size > 0; --size) {
      if (size < word.size() && continues_character(word[size])) continue;
      id = pieces->find({word.data(), word.data() + size}, end);
      if (id >= 0) break;
    }
    if (size == 0) {
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(id);
    word.remove_prefix(size);
  }
}

void WordPieceTokenizer::decode(std::span<const std::int32_t> ids, std::string& bytes) const {
  check_ids(ids);
  for (const std::int32_t id : ids) {
    if (id == end_of_document_) continue;
    const std::string_view token = tokens_[static_cast<std::size_t>(id)];
    if (token.starts_with("##") && token.size() > 2) {
      bytes += token.substr(2);
    } else {
      if (!bytes.empty()) bytes += ' ';
      bytes += token;
    }
  }
}

std::string WordPieceTokenizer::definition() const {
  const bool usual = max_word_characters_ == default_max_word_characters;
  std::string text =
      fmt::format("{}\n{} {}", usual ? payload_title : payload_title_2, tokens_.size(), int{lower_case_});
  text += usual ? "\n" : fmt::format(" {}\n", max_word_characters_);
  for (const std::string& token : tokens_) text += escape_bytes(token) + '\n';
  return text;
}

WordPieceVocabulary wordpiece_from_payload(std::string_view text) {
  const std::string_view payload = split_payload(text).definition;
  PayloadLines lines(payload);
  std::int64_t tokens = 0, lower_case = 0, max_word_characters = default_max_word_characters;
  if (payload.starts_with(payload_title_2)) {
    lines.title(payload_title_2);
    const auto numbers = lines.numbers<3>(max_vocabulary_size);
    tokens = numbers[0], lower_case = numbers[1], max_word_characters = numbers[2];
  } else {
    lines.title(payload_title);
    const auto numbers = lines.numbers<2>(max_vocabulary_size);
    tokens = numbers[0], lower_case = numbers[1];
  }
  TRIREME_CHECK(lower_case <= 1, DataError, "the embedded tokenizer is damaged: {} for lower case", lower_case);
  WordPieceVocabulary vocabulary{lines.texts(tokens), lower_case == 1, max_word_characters};
  lines.finish();
  return vocabulary;
}

}  // namespace trireme::data

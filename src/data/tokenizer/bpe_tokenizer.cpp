#include "src/data/tokenizer/bpe_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/words.hpp"
#include "src/data/tokenizer/payload_lines.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view gpt2_payload_title = "trireme byte-pair encoding 1";
constexpr std::string_view payload_title = "trireme byte-pair encoding 2";
constexpr std::string_view extended_payload_title = "trireme byte-pair encoding 3";
constexpr std::string_view split_payload_title = "trireme byte-pair encoding 4";
constexpr std::string_view unigram_payload_title = "trireme byte-pair encoding 5";
constexpr std::size_t max_merge_bytes = std::size_t{1} << 28;

bool is_composed(const BpeVocabulary& vocabulary) { return vocabulary.normalizer == std::vector<NormalizerStep>{{}}; }

/// Returns whether the payload has a part that versions before the fourth lack.
bool needs_splits(const BpeVocabulary& vocabulary) {
  return !vocabulary.splits.empty() || vocabulary.unigram ||
         std::ranges::any_of(vocabulary.added_properties, [](const auto& token) { return token.second.single_word; });
}

std::variant<WordSplitter, SplitWords, CharacterWords> words_of(const BpeVocabulary& vocabulary) {
  if (vocabulary.characters) return CharacterWords(vocabulary);
  if (!vocabulary.splits.empty()) return SplitWords(vocabulary.splits);
  return WordSplitter(vocabulary.pattern);
}

std::variant<BytePairEncoder, UnigramEncoder> encoder_of(const BpeVocabulary& vocabulary) {
  if (vocabulary.unigram) return UnigramEncoder(vocabulary);
  return BytePairEncoder(vocabulary);
}

/// Returns the added tokens that are found in the text before or after normalisation, which changes them, too, as it
/// does a text that starts like this.
std::vector<AddedText> added_tokens(const BpeVocabulary& vocabulary, bool normalised,
                                    TextStart start = TextStart::text) {
  std::vector<AddedText> tokens;
  const Normalizer normalizer(vocabulary.normalizer);
  for (const std::int32_t id : vocabulary.added) {
    const auto found = vocabulary.added_properties.find(id);
    const AddedToken token = found == vocabulary.added_properties.end() ? AddedToken{} : found->second;
    if (token.normalized != normalised) continue;
    const std::string& text = vocabulary.tokens[static_cast<std::size_t>(id)];
    std::string space;
    tokens.push_back({std::string(normalised ? normalizer.apply(text, start, space) : text), id, token});
  }
  return tokens;
}

}  // namespace

std::string byte_token(std::size_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<char> byte_of_token(std::string_view token) {
  for (std::size_t byte = 0; token.size() == 6 && token.starts_with("<0x") && byte < 256; ++byte) {
    if (token == byte_token(byte)) return static_cast<char>(byte);
  }
  return std::nullopt;
}

BpeTokenizer::BpeTokenizer(std::string name, BpeVocabulary vocabulary)
    : Tokenizer(std::move(name)),
      encoder_(encoder_of(vocabulary)),
      caches_(vocabulary.tokens.size()),
      vocabulary_(std::move(vocabulary)),
      words_(words_of(vocabulary_)),
      normalizer_(vocabulary_.normalizer),
      raw_added_(added_tokens(vocabulary_, false)),
      normalised_added_(added_tokens(vocabulary_, true)),
      inner_added_(added_tokens(vocabulary_, true, TextStart::inside)) {
  vocabulary_.merges.clear();
  if (!vocabulary_.characters) return;
  for (const std::string& token : vocabulary_.tokens) {
    const std::optional<char> byte = byte_of_token(token);
    texts_.push_back(byte ? std::string(1, *byte) : replaced(token, space_mark, " "));
  }
  const bool has_words = vocabulary_.characters->metaspace && vocabulary_.characters->metaspace->split;
  if (!vocabulary_.whole_words || has_words) return;
  for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
    whole_texts_.emplace(vocabulary_.tokens[id], static_cast<std::int32_t>(id));
  }
  for (const std::int32_t id : vocabulary_.special)
    whole_texts_.erase(vocabulary_.tokens[static_cast<std::size_t>(id)]);
}

void BpeTokenizer::encode_from(std::string_view text, TextStart start, std::vector<std::int32_t>& ids) const {
  raw_added_.split(
      text,
      [&](std::string_view part) { encode_part(part, part.data() == text.data() ? start : TextStart::part, ids); },
      [&](std::int32_t id, std::size_t) { ids.push_back(id); });
}

void BpeTokenizer::encode_part(std::string_view text, TextStart start, std::vector<std::int32_t>& ids) const {
  std::string space;
  const std::string_view normalised = normalizer_.apply(text, start, space);
  normalised_added_.split(
      normalised,
      [&](std::string_view part) {
        encode_normalised(part, part.data() == normalised.data() ? start : TextStart::part, ids);
      },
      [&](std::int32_t id, std::size_t) { ids.push_back(id); });
}

void BpeTokenizer::encode_normalised(std::string_view text, TextStart start, std::vector<std::int32_t>& ids) const {
  std::string with_marks;
  if (vocabulary_.characters && vocabulary_.characters->metaspace) text = with_marks = marked(text, start);
  if (const auto whole = whole_texts_.empty() ? whole_texts_.end() : whole_texts_.find(std::string(text));
      whole != whole_texts_.end()) {
    ids.push_back(whole->second);
    return;
  }
  const char* const end = text.data() + text.size();
  make_room(text.size(), ids);
  caches_.with_one([&](WordCache& cache) {
    WordBatch batch;
    const auto encode_batch = [&] {
      cache.encode(batch.words(), end, ids, [&](Word word, auto& out) {
        if (const auto* merging = std::get_if<BytePairEncoder>(&encoder_)) {
          merging->encode(word, end, out);
        } else {
          std::get<UnigramEncoder>(encoder_).encode(word, out);
        }
      });
      batch.clear();
    };
    const auto encode_by = [&](const auto& words) {
      for (const char* at = text.data(); at != end; encode_batch()) at = words.cut(at, end, batch);
    };
    if (const auto* splitter = std::get_if<WordSplitter>(&words_)) {
      encode_by(*splitter);
    } else if (const auto* characters = std::get_if<CharacterWords>(&words_)) {
      encode_by(*characters);
    } else {
      for (const auto& [begin, word_end] : std::get<SplitWords>(words_).words(text)) {
        if (!batch.has_room()) encode_batch();
        batch.add(text.data() + begin, text.data() + word_end);
      }
      encode_batch();
    }
  });
}

namespace {

/// Returns the words of `text`, without the white space around them, each after a mark.
std::string marked_words(std::string_view text) {
  std::string result;
  bool is_inside = false;
  for_each_character(text, [&](Utf8Character c, std::string_view character) {
    const bool is_space = c.size_bytes > 0 && is_white_space(c.code_point);
    if (!is_space && !is_inside && character != space_mark) result += space_mark;
    if (!is_space) result += character;
    is_inside = !is_space;
  });
  return result;
}

}  // namespace

std::vector<std::pair<std::int32_t, std::int32_t>> BpeTokenizer::merges() const {
  const auto* merging = std::get_if<BytePairEncoder>(&encoder_);
  return merging == nullptr ? std::vector<std::pair<std::int32_t, std::int32_t>>() : merging->merges();
}

/// Returns `text` with marks for its spaces, and the one before it.
std::string BpeTokenizer::marked(std::string_view text, TextStart start) const {
  using Prefix = Metaspace::Prefix;
  if (vocabulary_.characters->metaspace->by_words) return marked_words(text);
  const Prefix prefix = vocabulary_.characters->metaspace->prefix;
  const bool begins = start == TextStart::text || (start == TextStart::part && prefix == Prefix::always);
  const bool adds = begins && prefix != Prefix::never && !text.starts_with(' ') && !text.starts_with(space_mark);
  return replaced(adds ? ' ' + std::string(text) : std::string(text), " ", space_mark);
}

bool BpeTokenizer::can_cut_words(std::string_view text, std::size_t at) const {
  const auto* splitter = std::get_if<WordSplitter>(&words_);
  return splitter != nullptr ? splitter->can_cut(text, at) : std::get<SplitWords>(words_).can_cut(text, at);
}

bool BpeTokenizer::can_cut(std::string_view text, std::size_t at) const {
  if (vocabulary_.characters) return can_cut_characters(text, at);
  if (!can_cut_words(text, at) || !raw_added_.can_cut(text, at)) return false;
  if (normalizer_.steps().empty()) return normalised_added_.can_cut(text, at);
  return (is_composed(vocabulary_) && normalised_added_.empty()) || can_cut_characters(text, at);
}

/// Compares the text around a cut before and after normalisation.
bool BpeTokenizer::can_cut_characters(std::string_view text, std::size_t at) const {
  if (!is_word_cut(text, at) || !normalizer_.can_cut_after(text[at - 1]) || !raw_added_.can_cut(text, at)) return false;
  const std::string_view before = text.substr(0, at);
  const auto& form = vocabulary_.characters;
  const bool always = form && form->metaspace && form->metaspace->prefix == Metaspace::Prefix::always;
  if ((normalizer_.prepends() || always) && raw_added_.are_at_end_of(before)) return false;
  if (!whole_texts_.empty() || (form && vocabulary_.whole_words && text[at] != ' ')) return false;
  if (!normalised_added_.empty() && !normalizer_.is_by_character()) return false;
  // A token has at most four times the bytes in the text, where it is not normalised.
  const std::size_t window = normalised_added_.empty() ? 4 : 4 * AddedTokens::max_bytes;
  const std::size_t begin = character_begin(text, at - std::min(at, window));
  std::string left_space, right_space;
  std::string joined(normalizer_.apply(before.substr(begin), TextStart::inside, left_space));
  std::size_t cut = joined.size();
  joined += normalizer_.apply(text.substr(at, window), TextStart::inside, right_space);
  if (cut == 0 || cut == joined.size()) return false;
  if (!normalised_added_.can_cut(joined, cut) || !inner_added_.can_cut(joined, cut)) return false;
  if (always && normalised_added_.are_at_end_of(std::string_view(joined).substr(0, cut))) return false;
  if (!form) return can_cut_words(joined, cut);
  if (form->metaspace) {
    const std::string left = marked(std::string_view(joined).substr(0, cut), TextStart::inside);
    joined = left + marked(std::string_view(joined).substr(cut), TextStart::inside);
    cut = left.size();
    if (cut == 0 || cut == joined.size()) return false;
  }
  return !std::get<CharacterWords>(words_).joins(joined, cut);
}

void BpeTokenizer::decode(std::span<const std::int32_t> ids, std::string& bytes) const {
  const std::size_t begin = bytes.size();
  decode_continuation(ids, bytes);
  const bool strips = vocabulary_.characters && vocabulary_.characters->strip;
  if (strips && begin < bytes.size() && bytes[begin] == ' ') bytes.erase(begin, 1);
}

void BpeTokenizer::decode_continuation(std::span<const std::int32_t> ids, std::string& bytes) const {
  check_ids(ids);
  const std::vector<std::string>& texts = vocabulary_.characters ? texts_ : vocabulary_.tokens;
  for (const std::int32_t id : ids) {
    if (id != vocabulary_.end_of_document) bytes += texts[static_cast<std::size_t>(id)];
  }
}

std::vector<std::pair<std::string, std::int32_t>> BpeTokenizer::special_names() const {
  std::call_once(names_once_, [&] { names_ = find_special_names(); });
  return names_;
}

std::vector<std::pair<std::string, std::int32_t>> BpeTokenizer::find_special_names() const {
  const std::vector<std::string>& tokens = vocabulary_.tokens;
  std::vector<std::pair<std::string, std::int32_t>> names;
  const auto add = [&](std::int32_t id) {
    if (const std::string& name = tokens[static_cast<std::size_t>(id)]; !name.empty()) names.emplace_back(name, id);
  };
  if (!vocabulary_.special.empty()) {
    std::ranges::for_each(vocabulary_.special, add);
    const std::int32_t end = vocabulary_.end_of_document;
    if (std::ranges::find(vocabulary_.special, end) == vocabulary_.special.end()) add(end);
    return names;
  }
  std::unordered_set<std::string> made;
  for (const auto& [left, right] : merges()) {
    made.insert(tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)]);
  }
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].size() > 1 && !made.contains(tokens[id])) add(static_cast<std::int32_t>(id));
  }
  return names;
}

std::string bpe_extension_text(const BpeVocabulary& vocabulary) {
  const bool has_steps = !vocabulary.normalizer.empty() && !is_composed(vocabulary);
  const bool has_splits = needs_splits(vocabulary);
  if (!has_steps && vocabulary.added_properties.empty() && !vocabulary.characters && !has_splits) return {};
  std::string text = fmt::format("{} {} {}{}\n", vocabulary.normalizer.size(), vocabulary.added_properties.size(),
                                 int{vocabulary.characters.has_value()},
                                 has_splits ? fmt::format(" {}", vocabulary.splits.size()) : "");
  for (const NormalizerStep& step : vocabulary.normalizer) {
    text += fmt::format("{}\n{}\n{}\n", static_cast<int>(step.kind), escape_bytes(step.text),
                        escape_bytes(step.replacement));
  }
  for (const auto& [id, token] : vocabulary.added_properties) {
    text += fmt::format("{} {} {} {}{}\n", id, int{token.normalized}, int{token.lstrip}, int{token.rstrip},
                        has_splits ? fmt::format(" {}", int{token.single_word}) : "");
  }
  if (const auto& form = vocabulary.characters) {
    const Metaspace metaspace = form->metaspace.value_or(Metaspace{});
    text += fmt::format("{} {} {} {}\n", int{form->metaspace.has_value()}, static_cast<int>(metaspace.prefix),
                        int{metaspace.split}, int{form->strip});
  }
  for (const SplitStep& step : vocabulary.splits) {
    text += fmt::format("{} {} {}\n{}\n", static_cast<int>(step.behavior), int{step.invert}, int{step.in_spelling},
                        escape_bytes(step.regex));
  }
  if (const auto& unigram = vocabulary.unigram) {
    const bool by_words = vocabulary.characters->metaspace && vocabulary.characters->metaspace->by_words;
    text += fmt::format("{} {} {}\n", unigram->unknown, int{unigram->byte_fallback}, int{by_words});
    for (const double score : unigram->scores) text += fmt::format("{}\n", score);
  }
  return text;
}

std::string BpeTokenizer::definition() const {
  const std::string extension = bpe_extension_text(vocabulary_);
  const bool is_gpt2 = vocabulary_.pattern == WordPattern::gpt2 && vocabulary_.normalizer.empty() &&
                       !vocabulary_.whole_words && vocabulary_.special.empty() && vocabulary_.added.empty() &&
                       extension.empty();
  std::string text = fmt::format("{}\n{} {} {}\n",
                                 is_gpt2                     ? gpt2_payload_title
                                 : extension.empty()         ? payload_title
                                 : vocabulary_.unigram       ? unigram_payload_title
                                 : needs_splits(vocabulary_) ? split_payload_title
                                                             : extended_payload_title,
                                 vocabulary_.tokens.size(), merges().size(), vocabulary_.end_of_document);
  for (const std::string& token : vocabulary_.tokens) text += escape_bytes(token) + '\n';
  for (const auto& [left, right] : merges()) text += fmt::format("{} {}\n", left, right);
  if (is_gpt2) return text;
  text += fmt::format("{} {} {} {} {}\n", static_cast<int>(vocabulary_.pattern), int{is_composed(vocabulary_)},
                      int{vocabulary_.whole_words}, vocabulary_.special.size(), vocabulary_.added.size());
  for (const auto* list : {&vocabulary_.special, &vocabulary_.added}) {
    for (const std::int32_t id : *list) text += fmt::format("{}\n", id);
  }
  return text + extension;
}

namespace {

/// Reads `size` numbers, or all but the last if `has_last` is not set: it is then 0.
template <std::size_t size>
std::array<std::int64_t, size> numbers(PayloadLines& lines, std::int64_t max_number, bool has_last) {
  if (has_last) return lines.numbers<size>(max_number);
  std::array<std::int64_t, size> values{};
  std::ranges::copy(lines.numbers<size - 1>(max_number), values.begin());
  return values;
}

/// Reads the lines of `bpe_extension_text`.
void read_extension(PayloadLines& lines, std::int64_t tokens, bool has_splits, BpeVocabulary& vocabulary) {
  constexpr std::int64_t max_steps = 64;
  const auto [steps, properties, has_characters, splits] = numbers<4>(lines, max_vocabulary_size, has_splits);
  TRIREME_CHECK(steps <= max_steps && splits <= max_steps && has_characters <= 1, DataError,
                "the embedded tokenizer is damaged: it changes text in {} steps, and cuts it in {}", steps, splits);
  vocabulary.normalizer.clear();
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto [kind] = lines.numbers<1>(normalizer_step_count - 1);
    std::vector<std::string> texts = lines.texts(2);
    vocabulary.normalizer.push_back(
        {static_cast<NormalizerStep::Kind>(kind), std::move(texts[0]), std::move(texts[1])});
  }
  for (std::int64_t i = 0; i < properties; ++i) {
    const auto [id, normalized, lstrip, rstrip, single_word] = numbers<5>(lines, tokens - 1, has_splits);
    vocabulary.added_properties[static_cast<std::int32_t>(id)] = {
        .single_word = single_word != 0, .lstrip = lstrip != 0, .rstrip = rstrip != 0, .normalized = normalized != 0};
  }
  if (has_characters != 0) {
    const auto [has_metaspace, prefix, split, strip] = lines.numbers<4>(2);
    vocabulary.characters = CharacterForm{.strip = strip != 0};
    if (has_metaspace != 0) vocabulary.characters->metaspace = {static_cast<Metaspace::Prefix>(prefix), split != 0};
  }
  for (std::int64_t i = 0; i < splits; ++i) {
    const auto [behavior, invert, in_spelling] = lines.numbers<3>(static_cast<int>(SplitStep::Behavior::contiguous));
    vocabulary.splits.push_back({.regex = lines.texts(1)[0],
                                 .behavior = static_cast<SplitStep::Behavior>(behavior),
                                 .invert = invert != 0,
                                 .in_spelling = in_spelling != 0});
  }
}

/// Reads the lines of a unigram model.
void read_scores(PayloadLines& lines, std::int64_t tokens, BpeVocabulary& vocabulary) {
  const auto [unknown, byte_fallback, by_words] = lines.numbers<3>(max_vocabulary_size);
  TRIREME_CHECK(vocabulary.characters && vocabulary.merges.empty() && byte_fallback <= 1 && by_words <= 1 &&
                    (by_words == 0 || vocabulary.characters->metaspace),
                DataError, "the embedded tokenizer is damaged: it is no unigram model");
  if (by_words == 1) vocabulary.characters->metaspace->by_words = true;
  UnigramScores& unigram = vocabulary.unigram.emplace();
  unigram.unknown = static_cast<std::int32_t>(unknown);
  unigram.byte_fallback = byte_fallback == 1;
  for (std::int64_t id = 0; id < tokens; ++id) {
    const std::string_view text = lines.line();
    const std::optional<double> score = parse_number<double>(text);
    TRIREME_CHECK(score, DataError, "the embedded tokenizer is damaged: the score of token {} is '{}'", id,
                  shortened(text));
    unigram.scores.push_back(*score);
  }
}

}  // namespace

BpeVocabulary bpe_from_payload(std::string_view text) {
  const std::string_view payload = split_payload(text).definition;
  PayloadLines lines(payload);
  const bool is_gpt2 = payload.starts_with(gpt2_payload_title);
  const bool is_unigram = payload.starts_with(unigram_payload_title);
  const bool has_splits = is_unigram || payload.starts_with(split_payload_title);
  const bool is_extended = has_splits || payload.starts_with(extended_payload_title);
  lines.title(is_gpt2       ? gpt2_payload_title
              : is_unigram  ? unigram_payload_title
              : has_splits  ? split_payload_title
              : is_extended ? extended_payload_title
                            : payload_title);
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
    if (compose == 1) vocabulary.normalizer = {{}};
    vocabulary.whole_words = whole_words == 1;
    for (std::int64_t i = 0; i < special + added; ++i) {
      auto& list = i < special ? vocabulary.special : vocabulary.added;
      list.push_back(static_cast<std::int32_t>(lines.numbers<1>(tokens - 1)[0]));
    }
  }
  if (is_extended) read_extension(lines, tokens, has_splits, vocabulary);
  if (is_unigram) read_scores(lines, tokens, vocabulary);
  lines.finish();
  return vocabulary;
}

}  // namespace trireme::data

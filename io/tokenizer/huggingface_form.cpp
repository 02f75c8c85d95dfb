#include "io/tokenizer/huggingface_form.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/data/tokenizer/character_words.hpp"

namespace trireme::io {
namespace {

using data::Metaspace;
using data::NormalizerStep;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<std::pair<std::string_view, data::WordPattern>, data::word_pattern_count> patterns{{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", data::WordPattern::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     data::WordPattern::llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     data::WordPattern::qwen2},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     data::WordPattern::tekken},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     data::WordPattern::o200k},
}};

using Kind = NormalizerStep::Kind;
constexpr std::array<std::pair<const char*, Kind>, data::normalizer_step_count> steps{{{"NFC", Kind::nfc},
                                                                                       {"NFD", Kind::nfd},
                                                                                       {"NFKC", Kind::nfkc},
                                                                                       {"NFKD", Kind::nfkd},
                                                                                       {"Lowercase", Kind::lower_case},
                                                                                       {"Prepend", Kind::prepend},
                                                                                       {"Replace", Kind::replace}}};
constexpr std::array<const char*, 3> prepend_schemes{"never", "first", "always"};

std::string quoted(const json& value) { return shortened(json_dump(value)); }
std::string mark() { return std::string(data::space_mark); }

class FormReader {
 public:
  FormReader(const json& file, const std::string& path, data::BpeVocabulary& vocabulary)
      : file_(file), path_(path), vocabulary_(vocabulary) {}

  void read() {
    read_normalizer(json_member(file_, "normalizer"));
    const json& pre_tokenizer = json_member(file_, "pre_tokenizer");
    if (vocabulary_.characters) {
      read_character_words(pre_tokenizer);
      read_decoder(json_member(file_, "decoder"));
    } else {
      read_byte_words(pre_tokenizer);
    }
  }

 private:
  template <class... Values>
  void require(bool good, fmt::format_string<Values...> what, Values&&... values) const {
    if (!good) throw DataError("{}: {}", path_, fmt::format(what, std::forward<Values>(values)...));
  }

  bool flag(const json& object, const char* name, bool otherwise = false) const {
    const json& value = json_member(object, name);
    require(value.is_null() || value.is_boolean(), "'{}' is {}, neither true nor false", name, quoted(value));
    return value.is_boolean() ? value.get<bool>() : otherwise;
  }

  std::string text(const json& object, const char* name) const {
    const json& value = json_member(object, name);
    require(value.is_string(), "'{}' of {} is not a text", name, quoted(object));
    return value.get<std::string>();
  }

  void read_normalizer(const json& normalizer) {
    if (normalizer.is_null()) return;
    if (json_member(normalizer, "type") == "Sequence") {
      for (const json& step : json_member(normalizer, "normalizers")) read_normalizer(step);
      return;
    }
    const json& type = json_member(normalizer, "type");
    const auto known = std::ranges::find_if(steps, [&](const auto& step) { return type == step.first; });
    require(known != steps.end(),
            "the normalizer is {}; this program supports NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace of a text, "
            "and sequences of them",
            quoted(normalizer));
    NormalizerStep step{known->second};
    if (step.kind == Kind::prepend) step.text = text(normalizer, "prepend");
    if (step.kind == Kind::replace) {
      const json& pattern = json_member(normalizer, "pattern");
      require(json_member(pattern, "String").is_string() && pattern["String"] != "",
              "the normalizer replaces {}; this program supports a text that is not empty, no regular expression",
              quoted(pattern));
      step.text = text(pattern, "String");
      step.replacement = text(normalizer, "content");
    }
    vocabulary_.normalizer.push_back(std::move(step));
  }

  /// Returns whether the normalizer leaves no space in a text.
  bool has_no_spaces() const {
    const auto& done = vocabulary_.normalizer;
    const auto replaces = std::ranges::find_if(
        done, [](const NormalizerStep& step) { return step.kind == Kind::replace && step.text == " "; });
    return replaces != done.end() && std::all_of(replaces, done.end(), [](const NormalizerStep& step) {
             const std::string& made = step.kind == Kind::replace ? step.replacement : step.text;
             return step.kind != Kind::nfkc && step.kind != Kind::nfkd && made.find(' ') == made.npos;
           });
  }

  /// Reads the words of a BPE that starts from characters. Without a pre-tokenizer a text is one word.
  void read_character_words(const json& pre_tokenizer) {
    const json& type = json_member(pre_tokenizer, "type");
    if (pre_tokenizer.is_null()) return;
    if (type == "Sequence") {
      for (const json& step : json_member(pre_tokenizer, "pretokenizers")) read_character_words(step);
      return;
    }
    // Gemma cuts at spaces that its normalizer has removed.
    const bool cuts_nothing = type == "Split" && json_member(json_member(pre_tokenizer, "pattern"), "String") == " " &&
                              !flag(pre_tokenizer, "invert") && has_no_spaces();
    if (cuts_nothing) return;
    require(type == "Metaspace" && json_member(pre_tokenizer, "replacement") == mark() &&
                !vocabulary_.characters->metaspace,
            "the pre-tokenizer is {}; with 'byte_fallback' this program supports none, one Metaspace of U+2581, and a "
            "Split at spaces that the normalizer replaces",
            quoted(pre_tokenizer));
    Metaspace metaspace{.split = flag(pre_tokenizer, "split", true)};
    const json& scheme = json_member(pre_tokenizer, "prepend_scheme");
    const auto known = std::ranges::find_if(prepend_schemes, [&](const char* name) { return scheme == name; });
    require(scheme.is_null() || known != prepend_schemes.end(), "'prepend_scheme' is {}, not never, first or always",
            quoted(scheme));
    if (!scheme.is_null()) metaspace.prefix = static_cast<Metaspace::Prefix>(known - prepend_schemes.begin());
    if (!flag(pre_tokenizer, "add_prefix_space", true)) {
      require(scheme.is_null() || metaspace.prefix == Metaspace::Prefix::never,
              "'add_prefix_space' is off, but 'prepend_scheme' is {}", quoted(scheme));
      metaspace.prefix = Metaspace::Prefix::never;
    }
    vocabulary_.characters->metaspace = metaspace;
  }

  void read_decoder(const json& decoder) {
    const json& listed = json_member(decoder, "decoders");
    const std::vector<json> done = listed.is_array() ? listed.get<std::vector<json>>() : std::vector<json>{};
    const auto is = [&](std::size_t at, const char* type) {
      return at < done.size() && json_member(done[at], "type") == type;
    };
    const bool strips = is(3, "Strip") && json_member(done[3], "content") == " " &&
                        json_member(done[3], "start") == 1 && json_member(done[3], "stop") == 0;
    require(json_member(decoder, "type") == "Sequence" && is(0, "Replace") &&
                json_member(json_member(done[0], "pattern"), "String") == mark() &&
                json_member(done[0], "content") == " " && is(1, "ByteFallback") && is(2, "Fuse") &&
                done.size() == (strips ? 4 : 3),
            "the decoder is {}; with 'byte_fallback' this program supports the sequence of Replace of U+2581 by a "
            "space, ByteFallback, Fuse, and Strip of one space at the start or none",
            quoted(decoder));
    vocabulary_.characters->strip = strips;
  }

  void read_byte_words(const json& pre_tokenizer) {
    const json& parts = json_member(pre_tokenizer, "pretokenizers");
    const bool is_sequence = json_member(pre_tokenizer, "type") == "Sequence" && parts.is_array();
    const bool is_split = is_sequence && parts.size() == 2 && json_member(parts[0], "type") == "Split";
    const json& byte_level = is_split ? parts[1] : is_sequence && parts.size() == 1 ? parts[0] : pre_tokenizer;
    require(json_member(byte_level, "type") == "ByteLevel",
            "the pre-tokenizer is {}; this program supports ByteLevel, alone or after one Split",
            quoted(pre_tokenizer));
    require(!flag(byte_level, "add_prefix_space"),
            "'add_prefix_space' is on: the space before a text's first word cannot be told from one of the text");
    const bool own_pattern = flag(byte_level, "use_regex", true);
    if (!is_split) {
      require(own_pattern, "the pre-tokenizer cuts text into no words ('use_regex' is off)");
      return;
    }
    require(!own_pattern, "the pre-tokenizer cuts words twice: by a Split and by ByteLevel's 'use_regex'");
    const json& regex = json_member(json_member(parts[0], "pattern"), "Regex");
    const auto known =
        std::ranges::find_if(patterns, [&](const auto& pattern) { return regex == std::string(pattern.first); });
    require(known != patterns.end() && json_member(parts[0], "behavior") == "Isolated" && !flag(parts[0], "invert"),
            "words are cut by {}; this program supports the patterns of GPT-2, Llama 3 (cl100k), Qwen 2, Mistral "
            "(Tekken) and o200k, 'Isolated'",
            quoted(parts[0]));
    vocabulary_.pattern = known->second;
  }

  const json& file_;
  const std::string& path_;
  data::BpeVocabulary& vocabulary_;
};

ordered_json step_json(const NormalizerStep& step) {
  ordered_json result{{"type", std::ranges::find(steps, step.kind, [](const auto& s) { return s.second; })->first}};
  if (step.kind == Kind::prepend) result["prepend"] = step.text;
  if (step.kind == Kind::replace) {
    result["pattern"] = {{"String", step.text}};
    result["content"] = step.replacement;
  }
  return result;
}

ordered_json normalizer_json(const std::vector<NormalizerStep>& normalizer) {
  if (normalizer.empty()) return nullptr;
  if (normalizer.size() == 1) return step_json(normalizer[0]);
  ordered_json result{{"type", "Sequence"}, {"normalizers", ordered_json::array()}};
  for (const NormalizerStep& step : normalizer) result["normalizers"].push_back(step_json(step));
  return result;
}

ordered_json byte_level(bool regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", regex}};
}

ordered_json byte_words_json(data::WordPattern pattern) {
  if (pattern == data::WordPattern::gpt2) return byte_level(true);
  const auto known = std::ranges::find(patterns, pattern, [](const auto& row) { return row.second; });
  const ordered_json split{
      {"type", "Split"}, {"pattern", {{"Regex", known->first}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, byte_level(false)})}};
}

ordered_json character_words_json(const data::CharacterForm& form) {
  if (!form.metaspace) return nullptr;
  return {{"type", "Metaspace"},
          {"replacement", mark()},
          {"prepend_scheme", prepend_schemes[static_cast<std::size_t>(form.metaspace->prefix)]},
          {"split", form.metaspace->split}};
}

ordered_json decoder_json(const data::CharacterForm& form) {
  ordered_json decoders = ordered_json::array({step_json({Kind::replace, mark(), " "})});
  for (const char* type : {"ByteFallback", "Fuse"}) decoders.push_back({{"type", type}});
  if (form.strip) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", decoders}};
}

}  // namespace

void read_huggingface_form(const json& file, const std::string& path, data::BpeVocabulary& vocabulary) {
  FormReader(file, path, vocabulary).read();
}

void write_huggingface_form(const data::BpeVocabulary& vocabulary, ordered_json& file) {
  const auto& form = vocabulary.characters;
  file["normalizer"] = normalizer_json(vocabulary.normalizer);
  file["pre_tokenizer"] = form ? character_words_json(*form) : byte_words_json(vocabulary.pattern);
  file["decoder"] = form ? decoder_json(*form) : byte_level(true);
}

}  // namespace trireme::io

#include "io/tokenizer/huggingface_form.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "io/json/json_text.hpp"
#include "io/tokenizer/base64.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/data/tokenizer/character_words.hpp"
#include "src/data/tokenizer/split_words.hpp"

namespace trireme::io {
namespace {

using data::Metaspace;
using data::NormalizerStep;
using nlohmann::json;
using nlohmann::ordered_json;

using Kind = NormalizerStep::Kind;
constexpr std::array<std::pair<const char*, Kind>, data::normalizer_step_count> steps{
    {{"NFC", Kind::nfc},
     {"NFD", Kind::nfd},
     {"NFKC", Kind::nfkc},
     {"NFKD", Kind::nfkd},
     {"Lowercase", Kind::lower_case},
     {"Prepend", Kind::prepend},
     {"Replace", Kind::replace},
     {"Strip", Kind::strip_left},
     {"Strip", Kind::strip_right},
     {"StripAccents", Kind::strip_marks},
     {"Replace", Kind::replace_matches},
     {"Precompiled", Kind::precompiled}}};
constexpr std::array<const char*, 5> behaviors{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                               "Contiguous"};
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
      require(!has_word_split_ || vocabulary_.characters->metaspace, "a WhitespaceSplit needs a Metaspace after it");
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
            "the normalizer is {}; this program supports NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, "
            "StripAccents, Precompiled and sequences of them",
            quoted(normalizer));
    NormalizerStep step{known->second};
    if (step.kind == Kind::strip_left) {
      if (flag(normalizer, "strip_left")) vocabulary_.normalizer.push_back(step);
      if (flag(normalizer, "strip_right")) vocabulary_.normalizer.push_back({Kind::strip_right});
      return;
    }
    if (step.kind == Kind::prepend) step.text = text(normalizer, "prepend");
    if (step.kind == Kind::precompiled) {
      if (normalizer.contains("precompiled_charsmap") && normalizer["precompiled_charsmap"].is_null()) return;
      const std::optional<std::string> bytes = bytes_of_base64(text(normalizer, "precompiled_charsmap"));
      require(bytes.has_value(), "the 'precompiled_charsmap' of the normalizer is not base64");
      step.text = *bytes;
    }
    if (step.kind == Kind::replace) {
      const json& pattern = json_member(normalizer, "pattern");
      const bool is_regex = json_member(pattern, "Regex").is_string();
      if (is_regex) step.kind = Kind::replace_matches;
      step.text = text(pattern, is_regex ? "Regex" : "String");
      require(!step.text.empty(), "the normalizer replaces {}, an empty text", quoted(pattern));
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
             const bool replaces_text = step.kind == Kind::replace || step.kind == Kind::replace_matches;
             const std::string& made = replaces_text ? step.replacement : step.text;
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
    if (type == "WhitespaceSplit" && vocabulary_.unigram && !vocabulary_.characters->metaspace) {
      has_word_split_ = true;
      return;
    }
    require(
        type == "Metaspace" && json_member(pre_tokenizer, "replacement") == mark() &&
            !vocabulary_.characters->metaspace,
        "the pre-tokenizer is {}; with 'byte_fallback' or a unigram model this program supports none, one "
        "Metaspace of U+2581, a Split at spaces that the normalizer replaces, and before the Metaspace of a unigram "
        "model a WhitespaceSplit",
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
    metaspace.by_words = has_word_split_;
    require(!has_word_split_ || (metaspace.split && metaspace.prefix == Metaspace::Prefix::always),
            "a WhitespaceSplit needs a Metaspace that splits and always prepends");
    vocabulary_.characters->metaspace = metaspace;
  }

  void read_decoder(const json& decoder) {
    if (vocabulary_.unigram && json_member(decoder, "type") == "Metaspace") {
      const auto& metaspace = vocabulary_.characters->metaspace;
      vocabulary_.characters->strip = metaspace && metaspace->prefix != Metaspace::Prefix::never;
      return;
    }
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

  /// Reads the words of a byte-level BPE: steps that cut text, of which ByteLevel, exactly one, also spells its bytes
  /// for the steps after it.
  void read_byte_words(const json& pre_tokenizer) {
    bool is_spelled = false;
    std::vector<data::SplitStep> splits;
    add_splits(pre_tokenizer, splits, is_spelled);
    require(is_spelled, "the pre-tokenizer is {}: it has no ByteLevel", quoted(pre_tokenizer));
    require(!splits.empty(), "the pre-tokenizer cuts text into no words ('use_regex' is off)");
    data::set_words(vocabulary_, std::move(splits));
  }

  void add_splits(const json& pre_tokenizer, std::vector<data::SplitStep>& splits, bool& is_spelled) const {
    const json& type = json_member(pre_tokenizer, "type");
    data::SplitStep step{.regex = {}, .in_spelling = is_spelled};
    if (type == "Sequence") {
      for (const json& part : json_member(pre_tokenizer, "pretokenizers")) add_splits(part, splits, is_spelled);
      return;
    }
    if (type == "ByteLevel") {
      require(!is_spelled, "the pre-tokenizer has two ByteLevel");
      require(!flag(pre_tokenizer, "add_prefix_space"),
              "'add_prefix_space' is on: the space before a text's first word cannot be told from one of the text");
      is_spelled = true;
      if (!flag(pre_tokenizer, "use_regex", true)) return;
      step.regex = data::regex_of(data::WordPattern::gpt2);
    } else if (type == "Split") {
      const json& pattern = json_member(pre_tokenizer, "pattern");
      const bool is_regex = json_member(pattern, "Regex").is_string();
      step.regex = is_regex ? text(pattern, "Regex") : data::regex_of_text(text(pattern, "String"));
      step.behavior = behavior_of(pre_tokenizer);
      step.invert = flag(pre_tokenizer, "invert");
    } else if (type == "Digits") {
      step.regex = flag(pre_tokenizer, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)";
    } else if (type == "Punctuation") {
      step.regex = data::punctuation;
      if (!json_member(pre_tokenizer, "behavior").is_null()) step.behavior = behavior_of(pre_tokenizer);
    } else {
      require(false,
              "the pre-tokenizer is {}; this program supports ByteLevel, alone or in a sequence with Split, Digits and "
              "Punctuation",
              quoted(pre_tokenizer));
    }
    splits.push_back(std::move(step));
  }

  data::SplitStep::Behavior behavior_of(const json& pre_tokenizer) const {
    const json& behavior = json_member(pre_tokenizer, "behavior");
    const auto known = std::ranges::find_if(behaviors, [&](const char* name) { return behavior == name; });
    require(known != behaviors.end(),
            "the 'behavior' of {} is not Removed, Isolated, MergedWithPrevious, "
            "MergedWithNext or Contiguous",
            quoted(pre_tokenizer));
    return static_cast<data::SplitStep::Behavior>(known - behaviors.begin());
  }

  const json& file_;
  const std::string& path_;
  data::BpeVocabulary& vocabulary_;
  bool has_word_split_ = false;
};

ordered_json step_json(const NormalizerStep& step) {
  ordered_json result{{"type", std::ranges::find(steps, step.kind, [](const auto& s) { return s.second; })->first}};
  if (step.kind == Kind::prepend) result["prepend"] = step.text;
  if (step.kind == Kind::precompiled) result["precompiled_charsmap"] = base64_of(step.text);
  if (step.kind == Kind::replace || step.kind == Kind::replace_matches) {
    result["pattern"] = {{step.kind == Kind::replace ? "String" : "Regex", step.text}};
    result["content"] = step.replacement;
  }
  if (step.kind == Kind::strip_left || step.kind == Kind::strip_right) {
    result["strip_left"] = step.kind == Kind::strip_left;
    result["strip_right"] = step.kind == Kind::strip_right;
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

ordered_json split_json(const data::SplitStep& step) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", step.regex}}},
          {"behavior", behaviors[static_cast<std::size_t>(step.behavior)]},
          {"invert", step.invert}};
}

ordered_json byte_words_json(const data::BpeVocabulary& vocabulary) {
  std::vector<data::SplitStep> splits = vocabulary.splits;
  if (splits.empty() && vocabulary.pattern == data::WordPattern::gpt2) return byte_level(true);
  if (splits.empty()) splits = {{.regex = std::string(data::regex_of(vocabulary.pattern))}};
  ordered_json parts = ordered_json::array();
  bool is_spelled = false;
  for (const data::SplitStep& step : splits) {
    if (step.in_spelling && !is_spelled) parts.push_back(byte_level(false));
    is_spelled = step.in_spelling;
    parts.push_back(split_json(step));
  }
  if (!is_spelled) parts.push_back(byte_level(false));
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

ordered_json character_words_json(const data::CharacterForm& form) {
  if (!form.metaspace) return nullptr;
  const ordered_json metaspace{{"type", "Metaspace"},
                               {"replacement", mark()},
                               {"prepend_scheme", prepend_schemes[static_cast<std::size_t>(form.metaspace->prefix)]},
                               {"split", form.metaspace->split}};
  if (!form.metaspace->by_words) return metaspace;
  return {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({{{"type", "WhitespaceSplit"}}, metaspace})}};
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
  file["pre_tokenizer"] = form ? character_words_json(*form) : byte_words_json(vocabulary);
  file["decoder"] = form ? decoder_json(*form) : byte_level(true);
}

}  // namespace trireme::io

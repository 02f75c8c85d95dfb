#include "io/tokenizer/huggingface_file.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::int64_t max_tokenizer_bytes = std::int64_t{128} << 20;
constexpr std::int64_t max_ids = std::int64_t{1} << 24;
constexpr int max_tokenizer_depth = 16;

constexpr std::array<std::pair<std::string_view, data::WordPattern>, 4> patterns{{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", data::WordPattern::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     data::WordPattern::llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     data::WordPattern::qwen2},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     data::WordPattern::tekken},
}};

/// Turns the file into a vocabulary, section by section; errors name file and section.
class Parser {
 public:
  Parser(const std::string& text, const std::string& path)
      : path_(path), file_(parse_json(text, path, max_tokenizer_depth)) {
    require(file_.is_object() && json_member(file_, "model").is_object(),
            "it is not a tokenizer.json: it has no 'model'");
  }

  data::BpeVocabulary parse(const EndNames& end) {
    const json& model = file_["model"];
    require(json_member(model, "type") == "BPE", "the model is {}; this program takes BPE",
            text_of(json_member(model, "type")));
    require(empty(model, "continuing_subword_prefix") && empty(model, "end_of_word_suffix"),
            "the model marks parts of words by a prefix or suffix, as no byte-level BPE does");
    require(!flag(model, "byte_fallback"), "'byte_fallback' is on: this is not a byte-level BPE");
    const json& dropout = json_member(model, "dropout");
    require(dropout.is_null() || dropout == 0, "'dropout' is {}; merges cannot be left out at random",
            text_of(dropout));
    for (const char* name : {"truncation", "padding"}) {
      require(json_member(file_, name).is_null(),
              "'{}' is not null, but corpora are neither cut nor padded: set it to null", name);
    }
    vocabulary_.whole_words = flag(model, "ignore_merges");
    read_normalizer();
    read_pre_tokenizer(json_member(file_, "pre_tokenizer"));
    read_added_tokens(json_member(file_, "added_tokens"));
    read_tokens(json_member(model, "vocab"));
    read_merges(json_member(model, "merges"));
    find_end(end);
    return std::move(vocabulary_);
  }

 private:
  template <class... Values>
  void require(bool good, fmt::format_string<Values...> what, Values&&... values) const {
    if (!good) throw DataError("{}: {}", path_, fmt::format(what, std::forward<Values>(values)...));
  }

  static bool empty(const json& object, const char* name) {
    return json_member(object, name).is_null() || json_member(object, name) == "";
  }
  bool flag(const json& object, const char* name) const {
    const json& value = json_member(object, name);
    require(value.is_null() || value.is_boolean(), "'{}' is {}, neither true nor false", name, text_of(value));
    return value.is_boolean() && value.get<bool>();
  }

  void read_normalizer() {
    const json& normalizer = json_member(file_, "normalizer");
    if (normalizer.is_null()) return;
    require(json_member(normalizer, "type") == "NFC", "the normalizer is {}; this program supports none and NFC",
            text_of(normalizer));
    vocabulary_.compose = true;
  }

  void read_pre_tokenizer(const json& pre_tokenizer) {
    const json& steps = json_member(pre_tokenizer, "pretokenizers");
    const bool is_sequence = json_member(pre_tokenizer, "type") == "Sequence" && steps.is_array();
    const bool is_split = is_sequence && steps.size() == 2 && json_member(steps[0], "type") == "Split";
    const json& byte_level = is_split ? steps[1] : is_sequence && steps.size() == 1 ? steps[0] : pre_tokenizer;
    require(json_member(byte_level, "type") == "ByteLevel",
            "the pre-tokenizer is {}; this program supports ByteLevel, alone or after one Split",
            text_of(pre_tokenizer));
    require(!flag(byte_level, "add_prefix_space"),
            "'add_prefix_space' is on: the space before a text's first word cannot be told from one of the text");
    const bool own_pattern = json_member(byte_level, "use_regex").is_null() || flag(byte_level, "use_regex");
    if (!is_split) {
      require(own_pattern, "the pre-tokenizer cuts text into no words ('use_regex' is off)");
      return;
    }
    require(!own_pattern, "the pre-tokenizer cuts words twice: by a Split and by ByteLevel's 'use_regex'");
    const json& regex = json_member(json_member(steps[0], "pattern"), "Regex");
    const auto known =
        std::ranges::find_if(patterns, [&](const auto& pattern) { return regex == std::string(pattern.first); });
    require(known != patterns.end() && json_member(steps[0], "behavior") == "Isolated" && !flag(steps[0], "invert"),
            "words are cut by {}; this program supports the patterns of GPT-2, Llama 3, Qwen 2 and Mistral (Tekken), "
            "'Isolated'",
            text_of(steps[0]));
    vocabulary_.pattern = known->second;
  }

  std::int64_t id_of(const json& value, const std::string& name) const {
    require(value.is_number_unsigned() && value.get<std::uint64_t>() < static_cast<std::uint64_t>(max_ids),
            "token '{}' has the id {}", shortened(name), text_of(value));
    return value.get<std::int64_t>();
  }

  void read_added_tokens(const json& tokens) {
    require(tokens.is_null() || tokens.is_array(), "'added_tokens' is {}, not a list", text_of(tokens));
    for (const json& token : tokens) {
      require(json_member(token, "content").is_string(), "an added token has no 'content'");
      const auto content = token["content"].get<std::string>();
      const auto id = static_cast<std::int32_t>(id_of(json_member(token, "id"), content));
      set(id, content, content);
      added_.emplace(content, id);
      if (flag(token, "special")) {
        vocabulary_.special.push_back(id);
        continue;
      }
      for (const char* name : {"single_word", "lstrip", "rstrip"}) {
        require(!flag(token, name), "the added token '{}' is '{}', which this program does not support",
                shortened(content), name);
      }
      require(!vocabulary_.compose || !flag(token, "normalized"),
              "the added token '{}' is 'normalized', which goes with no normalizer alone", shortened(content));
      require(
          vocabulary_.added.empty() || flag(token, "normalized") == normalized_,
          "some added tokens are 'normalized' and some are not; this program supports only one of the two in a file");
      normalized_ = flag(token, "normalized");
      vocabulary_.added.push_back(id);
    }
  }

  void set(std::int32_t id, const std::string& name, std::string bytes) {
    require(!bytes.empty(), "token '{}' is empty or has a character outside the byte-level alphabet", shortened(name));
    auto& tokens = vocabulary_.tokens;
    if (static_cast<std::size_t>(id) >= tokens.size()) tokens.resize(static_cast<std::size_t>(id) + 1);
    std::string& slot = tokens[static_cast<std::size_t>(id)];
    require(slot.empty(), "tokens '{}' and '{}' both have the id {}", shortened(slot), shortened(name), id);
    slot = std::move(bytes);
  }

  void read_tokens(const json& tokens) {
    require(tokens.is_object(), "the model has no 'vocab' of tokens and ids");
    for (const auto& [name, value] : tokens.items()) {
      const auto id = static_cast<std::int32_t>(id_of(value, name));
      const auto added = added_.find(name);
      if (added == added_.end()) {
        set(id, name, bytes_of(name));
      } else {
        require(added->second == id, "token '{}' has the ids {} and {}", shortened(name), id, added->second);
      }
    }
    const auto gap = std::ranges::find(vocabulary_.tokens, "");
    require(gap == vocabulary_.tokens.end(), "there is no token with the id {}, though ids go up to {}",
            gap - vocabulary_.tokens.begin(), vocabulary_.tokens.size() - 1);
  }

  void read_merges(const json& merges) {
    require(merges.is_array(), "the model has no 'merges'");
    for (const json& merge : merges) {
      std::string left, right;
      if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const std::size_t space = text.find(' ');
        if (space != text.npos) {
          left = bytes_of(std::string_view(text).substr(0, space));
          right = bytes_of(std::string_view(text).substr(space + 1));
        }
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = bytes_of(merge[0].get_ref<const std::string&>());
        right = bytes_of(merge[1].get_ref<const std::string&>());
      }
      require(!left.empty() && !right.empty(), "merge {} is {}, not two tokens of the byte-level alphabet",
              vocabulary_.merges.size() + 1, text_of(merge));
      vocabulary_.merges.emplace_back(std::move(left), std::move(right));
    }
  }

  void find_end(const EndNames& end) {
    const auto set_end = [&](const std::string& name) {
      auto found = added_.find(name);
      if (found == added_.end()) return false;
      vocabulary_.end_of_document = found->second;
      return true;
    };
    if (!end.wanted.empty()) {
      require(set_end(end.wanted), "there is no added token '{}' to end documents", end.wanted);
    } else {
      require(set_end("<|endoftext|>") || set_end("<|end_of_text|>") || set_end("</s>") || set_end(end.otherwise),
              "none of <|endoftext|>, <|end_of_text|> and </s> is an added token: <eod_token> names the one that ends "
              "documents");
    }
    std::erase(vocabulary_.added, vocabulary_.end_of_document);
    if (std::ranges::find(vocabulary_.special, vocabulary_.end_of_document) == vocabulary_.special.end()) {
      vocabulary_.special.push_back(vocabulary_.end_of_document);
    }
  }

  static std::string text_of(const json& value) { return shortened(json_dump(value)); }

  const std::string& path_;
  json file_;
  data::BpeVocabulary vocabulary_;
  std::unordered_map<std::string, std::int32_t> added_;
  bool normalized_ = false;
};

}  // namespace

data::BpeVocabulary parse_huggingface_file(const std::string& text, const std::string& path, const EndNames& end) {
  return Parser(text, path).parse(end);
}

data::BpeVocabulary read_huggingface_file(const std::string& path, const EndNames& end) {
  return parse_huggingface_file(read_whole_file(path, max_tokenizer_bytes, Symlinks::follow), path, end);
}

std::string huggingface_pattern(data::WordPattern pattern) {
  return std::string(
      std::ranges::find(patterns, pattern, &std::pair<std::string_view, data::WordPattern>::second)->first);
}

}  // namespace trireme::io

#include "io/tokenizer/huggingface_file.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "io/tokenizer/huggingface_form.hpp"
#include "io/tokenizer/tekken_file.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::int64_t max_tokenizer_bytes = std::int64_t{128} << 20;
constexpr std::int64_t max_ids = std::int64_t{1} << 24;
constexpr int max_tokenizer_depth = 16;

/// Turns the file into a vocabulary, section by section; errors name file and section.
class Parser {
 public:
  Parser(json file, const std::string& path) : path_(path), file_(std::move(file)) {
    require(file_.is_object() && json_member(file_, "model").is_object(),
            "it is not a tokenizer.json: it has no 'model'");
  }

  data::BpeVocabulary parse(const EndNames& end) {
    const json& model = file_["model"];
    const bool is_unigram = json_member(model, "type") == "Unigram";
    require(is_unigram || json_member(model, "type") == "BPE", "the model is {}; this program takes BPE and Unigram",
            text_of(json_member(model, "type")));
    require(empty(model, "continuing_subword_prefix") && empty(model, "end_of_word_suffix"),
            "the model marks parts of words by a prefix or suffix, which this program does not support");
    const json& dropout = json_member(model, "dropout");
    require(dropout.is_null() || dropout == 0, "'dropout' is {}; merges cannot be left out at random",
            text_of(dropout));
    for (const char* name : {"truncation", "padding"}) {
      require(json_member(file_, name).is_null(),
              "'{}' is not null, but corpora are neither cut nor padded: set it to null", name);
    }
    vocabulary_.whole_words = flag(model, "ignore_merges");
    if (is_unigram || flag(model, "byte_fallback")) vocabulary_.characters.emplace();
    if (is_unigram) vocabulary_.unigram.emplace().byte_fallback = flag(model, "byte_fallback");
    read_huggingface_form(file_, path_, vocabulary_);
    read_added_tokens(json_member(file_, "added_tokens"));
    if (is_unigram) {
      read_scores(json_member(model, "vocab"), json_member(model, "unk_id"));
    } else {
      read_tokens(json_member(model, "vocab"));
      read_merges(json_member(model, "merges"));
    }
    find_end(end);
    keep_properties();
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
      properties_[id] = {.single_word = flag(token, "single_word"),
                         .lstrip = flag(token, "lstrip"),
                         .rstrip = flag(token, "rstrip"),
                         .normalized = flag(token, "normalized")};
      vocabulary_.added.push_back(id);
    }
  }

  /// Keeps the properties of added tokens that matter to texts. Without a normalizer it is one whether all are
  /// normalised or none.
  void keep_properties() {
    std::erase_if(properties_, [&](const auto& token) { return token.first == vocabulary_.end_of_document; });
    const auto normalised =
        std::ranges::count_if(properties_, [](const auto& token) { return token.second.normalized; });
    const bool are_alike = normalised == 0 || normalised == std::ssize(properties_);
    for (auto& [id, token] : properties_) {
      if (are_alike && vocabulary_.normalizer.empty()) token.normalized = false;
      if (token != data::AddedToken{}) vocabulary_.added_properties[id] = token;
    }
  }

  /// Returns the token that the file spells like this; empty if there is none.
  std::string spelled(std::string_view name) const {
    return vocabulary_.characters ? std::string(name) : bytes_of(name);
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
        set(id, name, spelled(name));
      } else {
        require(added->second == id, "token '{}' has the ids {} and {}", shortened(name), id, added->second);
      }
    }
    require_all_tokens();
  }

  void require_all_tokens() const {
    const auto gap = std::ranges::find(vocabulary_.tokens, "");
    require(gap == vocabulary_.tokens.end(), "there is no token with the id {}, though ids go up to {}",
            gap - vocabulary_.tokens.begin(), vocabulary_.tokens.size() - 1);
  }

  /// Reads the pairs of token and score of a unigram model. Added tokens may follow them, and have no score.
  void read_scores(const json& tokens, const json& unknown) {
    std::vector<double>& scores = vocabulary_.unigram->scores;
    require(tokens.is_array() && !tokens.empty(), "the model has no 'vocab' of tokens and scores");
    for (const json& pair : tokens) {
      require(pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_number(),
              "entry {} of 'vocab' is {}, not a token and its score", scores.size(), text_of(pair));
      const auto id = static_cast<std::int32_t>(scores.size());
      const auto name = pair[0].get<std::string>();
      const auto added = added_.find(name);
      require(added == added_.end() || added->second == id, "token '{}' has the ids {} and {}", shortened(name), id,
              added == added_.end() ? 0 : added->second);
      if (added == added_.end()) set(id, name, name);
      scores.push_back(pair[1].get<double>());
    }
    vocabulary_.unigram->unknown = static_cast<std::int32_t>(id_of(unknown, "unk_id"));
    vocabulary_.tokens.resize(std::max(vocabulary_.tokens.size(), scores.size()));
    require_all_tokens();
    scores.resize(vocabulary_.tokens.size(), scores.front());
  }

  void read_merges(const json& merges) {
    require(merges.is_array(), "the model has no 'merges'");
    for (const json& merge : merges) {
      std::string left, right;
      if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const std::size_t space = text.find(' ');
        if (space != text.npos) {
          left = spelled(std::string_view(text).substr(0, space));
          right = spelled(std::string_view(text).substr(space + 1));
        }
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = spelled(merge[0].get_ref<const std::string&>());
        right = spelled(merge[1].get_ref<const std::string&>());
      }
      require(!left.empty() && !right.empty(), "merge {} is {}, not two tokens{}", vocabulary_.merges.size() + 1,
              text_of(merge), vocabulary_.characters ? "" : " of the byte-level alphabet");
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
  std::map<std::int32_t, data::AddedToken> properties_;  // properties of those in `vocabulary_.added`
};

}  // namespace

data::BpeVocabulary parse_huggingface_file(const std::string& text, const std::string& path, const EndNames& end) {
  json file = parse_json(text, path, max_tokenizer_depth);
  if (is_tekken(file)) return read_tekken(file, path, end);
  return Parser(std::move(file), path).parse(end);
}

data::BpeVocabulary read_huggingface_file(const std::string& path, const EndNames& end) {
  return parse_huggingface_file(read_whole_file(path, max_tokenizer_bytes, Symlinks::follow), path, end);
}

}  // namespace trireme::io

#include "io/tokenizer/tekken_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "io/json/json_text.hpp"
#include "io/tokenizer/base64.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/data/tokenizer/payload_lines.hpp"
#include "src/data/tokenizer/split_words.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::size_t max_part_bytes = 1024;  // bounds the time for the parts of a token

/// Returns "<s>" of "s".
std::string tag(std::string_view name) { return fmt::format("<{}>", name); }

/// Returns the special tokens of files that do not list them.
std::vector<std::string> first_specials() {
  std::vector<std::string> names{tag("unk"), tag("s"), "</s>"};
  for (const char* name : {"[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
                           "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]"}) {
    names.emplace_back(name);
  }
  names.push_back(tag("pad"));
  for (const char* name : {"[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
                           "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"}) {
    names.emplace_back(name);
  }
  return names;
}

/// Turns the file into a vocabulary; errors name file and part.
class TekkenParser {
 public:
  TekkenParser(const json& file, const std::string& path) : file_(file), path_(path) {}

  data::BpeVocabulary parse(const EndNames& end) {
    const json& config = json_member(file_, "config");
    const std::int64_t specials = number(config, "default_num_special_tokens");
    const std::int64_t size = number(config, "default_vocab_size");
    read_specials(specials);
    require(size > specials, "'default_vocab_size' {} leaves no token beside {} special ones", size, specials);
    read_tokens(size - specials);
    add_merges(static_cast<std::size_t>(specials));
    const json& pattern = json_member(config, "pattern");
    require(pattern.is_string(), "'config' has no 'pattern' of words");
    data::SplitStep step{.regex = pattern.get<std::string>()};
    if (!data::pattern_of(step)) {
      // tiktoken leaves out text that is part of no match.
      step.behavior = data::SplitStep::Behavior::removed;
      step.invert = true;
    }
    data::set_words(vocabulary_, {step});
    vocabulary_.whole_words = true;
    find_end(end);
    return std::move(vocabulary_);
  }

 private:
  template <class... Values>
  void require(bool good, fmt::format_string<Values...> what, Values&&... values) const {
    if (!good) throw DataError("{}: {}", path_, fmt::format(what, std::forward<Values>(values)...));
  }

  std::int64_t number(const json& object, const char* name) const {
    const json& value = json_member(object, name);
    const bool is_number = value.is_number_integer() && value >= 0 && value <= data::max_vocabulary_size;
    require(is_number, "'{}' is {}, not a number of tokens", name, json_quotation(value));
    return value.get<std::int64_t>();
  }

  void read_specials(std::int64_t count) {
    const json& listed = json_member(file_, "special_tokens");
    if (listed.is_null()) {
      const json& version = json_member(file_["config"], "version");
      require(version == "v3" || version == "v7", "it has no 'special_tokens', which version {} needs",
              json_quotation(version));
      vocabulary_.tokens = first_specials();
    }
    for (const json& token : listed) {
      const json& name = json_member(token, "token_str");
      require(name.is_string() && name != "", "special token {} has no 'token_str'", vocabulary_.tokens.size());
      require(json_member(token, "rank") == vocabulary_.tokens.size(), "special token '{}' has the rank {}, not {}",
              shortened(name.get<std::string>()), json_quotation(json_member(token, "rank")),
              vocabulary_.tokens.size());
      vocabulary_.tokens.push_back(name.get<std::string>());
    }
    require(std::ssize(vocabulary_.tokens) <= count,
            "there are {} special tokens, but 'default_num_special_tokens' is {}", vocabulary_.tokens.size(), count);
    while (std::ssize(vocabulary_.tokens) < count) {
      vocabulary_.tokens.push_back(fmt::format("<SPECIAL_{}>", vocabulary_.tokens.size()));
    }
    for (std::int32_t id = 0; id < count; ++id) vocabulary_.special.push_back(id);
  }

  void read_tokens(std::int64_t count) {
    const json& listed = json_member(file_, "vocab");
    require(listed.is_array() && std::ssize(listed) >= count, "'vocab' has fewer than {} tokens", count);
    for (std::int64_t rank = 0; rank < count; ++rank) {
      const json& token = listed[static_cast<std::size_t>(rank)];
      const json& text = json_member(token, "token_bytes");
      require(json_member(token, "rank") == rank, "token {} has the rank {}", rank,
              json_quotation(json_member(token, "rank")));
      std::optional<std::string> bytes;
      if (text.is_string()) bytes = bytes_of_base64(text.get_ref<const std::string&>());
      require(bytes && !bytes->empty() && bytes->size() <= max_part_bytes,
              "'token_bytes' of token {} are not 1 to {} bytes in base64", rank, max_part_bytes);
      vocabulary_.tokens.push_back(std::move(*bytes));
    }
  }

  /// Adds the merge that makes each token. tiktoken joins the two neighbours whose bytes are the token of the lowest
  /// rank. It joins them within a longer word as it does in the token alone, so only the last two parts of that can
  /// make it.
  void add_merges(std::size_t first) {
    const std::vector<std::string>& tokens = vocabulary_.tokens;
    for (std::size_t id = first; id < tokens.size(); ++id) {
      const auto [known, is_new] = ids_.emplace(tokens[id], id);
      require(is_new, "tokens {} and {} have the same bytes", known->second - first, id - first);
    }
    for (std::size_t id = first; id < tokens.size(); ++id) {
      const std::string_view token = tokens[id];
      const std::vector<std::size_t> ends = last_parts(token);
      if (ends.size() == 2) vocabulary_.merges.emplace_back(token.substr(0, ends[0]), token.substr(ends[0]));
    }
  }

  /// Returns the ends of a token's parts when they are two, or more that do not join.
  std::vector<std::size_t> last_parts(std::string_view token) const {
    constexpr std::size_t none = SIZE_MAX;
    std::vector<std::size_t> ends(token.size());
    std::iota(ends.begin(), ends.end(), 1);
    const auto rank_of = [&](std::size_t part) {  // rank of a part with the next
      const std::size_t begin = part == 0 ? 0 : ends[part - 1];
      const auto found = part + 1 < ends.size() ? ids_.find(token.substr(begin, ends[part + 1] - begin)) : ids_.end();
      return found == ids_.end() ? none : found->second;
    };
    std::vector<std::size_t> ranks(ends.size());
    for (std::size_t part = 0; part < ends.size(); ++part) ranks[part] = rank_of(part);
    while (ends.size() > 2) {
      const auto least = std::ranges::min_element(ranks);
      if (*least == none) break;
      const auto part = least - ranks.begin();
      ends.erase(ends.begin() + part);
      ranks.erase(least);
      for (const auto changed : {part - 1, part}) {
        if (changed >= 0) ranks[static_cast<std::size_t>(changed)] = rank_of(static_cast<std::size_t>(changed));
      }
    }
    return ends;
  }

  void find_end(const EndNames& end) {
    const auto specials = vocabulary_.tokens.begin() + std::ssize(vocabulary_.special);
    const std::string name = end.wanted.empty() ? "</s>" : end.wanted;
    const auto found = std::find(vocabulary_.tokens.begin(), specials, name);
    require(found != specials, "there is no special token '{}' to end documents: <eod_token> names another",
            shortened(name));
    vocabulary_.end_of_document = static_cast<std::int32_t>(found - vocabulary_.tokens.begin());
  }

  const json& file_;
  const std::string& path_;
  data::BpeVocabulary vocabulary_;
  std::unordered_map<std::string_view, std::size_t> ids_;  // ids of tokens that are not special
};

}  // namespace

bool is_tekken(const json& file) {
  return json_member(file, "config").is_object() && json_member(file, "vocab").is_array();
}

data::BpeVocabulary read_tekken(const json& file, const std::string& path, const EndNames& end) {
  return TekkenParser(file, path).parse(end);
}

json tekken_settings(data::Tokenizer& tokenizer) {
  data::SpecialTokens special;
  json added = json::array(), before = json::array(), tokens = json::object();
  for (const auto& [name, id] : tokenizer.special_names()) {
    added.push_back({{"id", id}, {"content", name}, {"special", true}});
    if (name == "</s>") special.eos = id;
    if (name == tag("pad")) special.pad = id;
    if (name != tag("s")) continue;
    special.bos = id;
    before.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {static_cast<std::uint32_t>(id)}}, {"tokens", {name}}};
  }
  tokenizer.set_special(std::move(special));
  const auto sequence = [](const char* id, int type) -> json {
    return {{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  json single = before, pair = before;
  single.push_back(sequence("A", 0));
  pair.push_back(sequence("A", 0));
  pair.push_back(sequence("B", 1));
  return {{"added_tokens", added},
          {"post_processor",
           {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}}}};
}

}  // namespace trireme::io

#include "io/huggingface/special_tokens_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/sentence_piece_tokenizer.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

namespace trireme::io {
namespace {

using data::SpecialTokens;
using nlohmann::json;

constexpr std::int64_t max_file_bytes = std::int64_t{16} << 20;
constexpr int max_file_depth = 16;
constexpr const char* roles_name = "special_tokens_map.json";
constexpr const char* added_name = "added_tokens.json";
constexpr const char* generation_name = "generation_config.json";
constexpr const char* template_json_name = "chat_template.json";
constexpr const char* templates_folder = "additional_chat_templates";
constexpr std::string_view template_ending = ".jinja";

/// Returns the content of a token, which is a text or an object with one; empty if it is null.
std::string content_of(const json& token) {
  const json& content = token.is_object() ? json_member(token, "content") : token;
  return content.is_string() ? content.get<std::string>() : std::string();
}

std::string path_in(const std::string& folder, const char* name) { return folder + "/" + name; }

/// Returns the content of a file, which exports keep; null if it is not there. A class from elsewhere is left out: its
/// code is not kept.
json read_kept(const std::string& folder, const char* name, SpecialTokens& special) {
  const std::string path = path_in(folder, name);
  if (!is_there(path)) return nullptr;
  std::string text = read_whole_file(path, max_file_bytes, Symlinks::follow);
  json content = parse_json(text, path, max_file_depth);
  if (content.is_object() && content.erase("auto_map") > 0) text = json_dump(content, 2) + "\n";
  special.files[name] = std::move(text);
  return content;
}

std::vector<std::string> token_texts(const data::Tokenizer& tokenizer) {
  if (tokenizer.name() == "wordpiece") return data::wordpiece_from_payload(tokenizer.payload()).tokens;
  if (tokenizer.name() == "sentencepiece") {
    return data::sentence_pieces(data::sentence_piece_model(data::split_payload(tokenizer.payload()).definition));
  }
  if (tokenizer.name() == "gpt2" || tokenizer.name() == "huggingface") {
    return data::bpe_from_payload(tokenizer.payload()).tokens;
  }
  return {};
}

/// Collects the special tokens of a tokenizer from the files of its folder.
class SpecialTokensReader {
 public:
  SpecialTokensReader(const std::string& folder, const json& file, const data::Tokenizer& tokenizer)
      : folder_(folder), file_(file), tokenizer_(tokenizer), texts_(token_texts(tokenizer)) {
    special_.bos = tokenizer.special().bos;
    special_.eos = tokenizer.special().eos;
    special_.pad = tokenizer.special().pad;
  }

  SpecialTokens read() {
    const json settings = read_kept(folder_, tokenizer_settings_name, special_),
               roles = read_kept(folder_, roles_name, special_), added = read_kept(folder_, added_name, special_);
    read_templates();
    read_added();
    check_settings(settings);
    check_added(settings, roles, added);
    for (const auto& [name, role] :
         {std::pair{"bos_token", &special_.bos}, {"eos_token", &special_.eos}, {"pad_token", &special_.pad}}) {
      const json& setting = json_member(settings, name);
      const json& token = setting.is_null() ? json_member(roles, name) : setting;
      if (!token.is_null()) *role = id_of(content_of(token));
    }
    const json processor = file_.is_null() ? processor_of(settings) : json_member(file_, post_processor_name);
    if (!processor.is_null()) {
      special_.files[post_processor_name] = json_dump(processor);
      read_processor(processor);
    }
    read_generation_config(folder_, tokenizer_.vocabulary_size(), special_);
    return std::move(special_);
  }

 private:
  /// Refuses a setting of tokenizer_config.json, by which transformers makes other ids.
  void refuse(const json& settings, const char* name, const char* reason) const {
    throw DataError("{}/{}: '{}' is {}, {}", folder_, tokenizer_settings_name, name,
                    shortened(json_dump(json_member(settings, name))), reason);
  }

  /// Refuses settings that this tokenizer does not follow. Some classes of transformers follow them in spite of
  /// tokenizer.json.
  void check_settings(const json& settings) const {
    if (tokenizer_.name() == "wordpiece") {
      const bool lower = data::wordpiece_from_payload(tokenizer_.payload()).lower_case;
      const json& wanted = json_member(settings, "do_lower_case");
      if (wanted.is_boolean() && wanted != lower)
        refuse(settings, "do_lower_case", "unlike 'lowercase' of tokenizer.json");
      const json& accents = json_member(settings, "strip_accents");
      if (accents.is_boolean() && accents != lower)
        refuse(settings, "strip_accents", "unlike the conversion to lower case");
      if (json_member(settings, "tokenize_chinese_chars") == false) {
        refuse(settings, "tokenize_chinese_chars", "but texts are always cut around ideographs");
      }
      return;
    }
    const json& kind = json_member(settings, "tokenizer_class");
    std::string name = kind.is_string() ? kind.get<std::string>() : "GPT2Tokenizer";
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    const bool is_of_merges = file_.is_null() && tokenizer_.name() == "gpt2";
    if (is_of_merges && name != "GPT2Tokenizer" && name != "CodeGenTokenizer" && name != "PreTrainedTokenizer") {
      refuse(settings, "tokenizer_class", "whose words only a tokenizer.json describes");
    }
    const json& prefix = json_member(settings, "add_prefix_space");
    if (prefix == true && (is_of_merges || (kind.is_string() && name == "GPT2Tokenizer"))) {
      refuse(settings, "add_prefix_space", "but no space is put before texts");
    }
    if (prefix == false && tokenizer_.name() == "sentencepiece" && puts_something_before()) {
      refuse(settings, "add_prefix_space", "but the tokenizer.model puts a space before texts");
    }
  }

  bool puts_something_before() const {
    std::vector<std::int32_t> first, behind;
    tokenizer_.encode("a", first);
    tokenizer_.encode_continuation("a", behind);
    return first != behind;
  }

  /// Refuses added tokens that transformers finds in texts, and this tokenizer does not. Special ones are ordinary
  /// text.
  void check_added(const json& settings, const json& roles, const json& added) const {
    std::set<std::string> found;  // in texts, or special
    for (const auto& [id, token] : special_.added) {
      if (static_cast<std::size_t>(id) < texts_.size()) found.insert(texts_[static_cast<std::size_t>(id)]);
    }
    for (const json* file : {&settings, &roles}) {
      for (const auto& [name, token] : file->items()) {
        if (name.ends_with("_token")) found.insert(content_of(token));
        if (!name.ends_with("_special_tokens")) continue;
        for (const json& special : token) found.insert(content_of(special));
      }
    }
    const json& listed = json_member(settings, "added_tokens_decoder");
    for (const auto& [id, token] : listed.items()) {
      if (json_member(token, "special") == true) found.insert(content_of(token));
    }
    const auto is_one_id = [&](const std::string& token) {  // as a user-defined piece of a tokenizer.model
      std::vector<std::int32_t> ids;
      tokenizer_.encode_continuation(token, ids);
      std::string text;
      tokenizer_.decode_continuation(ids, text);
      return ids.size() == 1 && text == token;
    };
    const auto require = [&](const char* name, const std::string& token) {
      TRIREME_CHECK(found.contains(token) || is_one_id(token), DataError,
                    "{}/{} adds the token '{}', which this program only finds in texts if a tokenizer.json has it",
                    folder_, name, shortened(token));
    };
    for (const auto& [id, token] : listed.items()) require(tokenizer_settings_name, content_of(token));
    if (!file_.is_null()) return;
    for (const auto& [token, id] : added.items()) require(added_name, token);
  }

  std::optional<std::int32_t> id_of(const std::string& name) const {
    if (name.empty()) return std::nullopt;
    for (const auto& [id, token] : special_.added) {
      if (static_cast<std::size_t>(id) < texts_.size() && texts_[static_cast<std::size_t>(id)] == name) return id;
    }
    const auto found = std::ranges::find(texts_, name);
    if (found == texts_.end()) return std::nullopt;
    return static_cast<std::int32_t>(found - texts_.begin());
  }

  void read_templates() {
    std::vector<std::string> names{chat_template_name, template_json_name};
    if (const std::string path = path_in(folder_, templates_folder); is_there(path)) {
      for (const std::string& name : names_in(path)) {
        const bool is_kept = name.ends_with(template_ending) && is_plain_name(name, 200);
        if (is_kept) names.push_back(path_in(templates_folder, name.c_str()));
        if (!is_kept) log::warn("{}: ignoring the file {}: chat templates are NAME.jinja", path, shortened(name));
      }
    }
    for (const std::string& name : names) {
      const std::string path = path_in(folder_, name.c_str());
      if (is_there(path)) special_.files[name] = read_whole_file(path, max_file_bytes, Symlinks::follow);
    }
  }

  void read_added() {
    for (const json& token : json_member(file_, "added_tokens")) {
      const auto flag = [&](const char* name) { return json_member(token, name) == true; };
      special_.added[json_member(token, "id").get<std::int32_t>()] = {
          flag("special"), flag("single_word"), flag("lstrip"), flag("rstrip"), flag("normalized")};
    }
  }

  /// Returns the post-processor of a tokenizer without tokenizer.json, by `add_bos_token` and `add_eos_token`.
  json processor_of(const json& settings) const {
    json single = json::array(), pair = json::array(), tokens = json::object();
    const auto add = [&](const char* flag, const std::optional<std::int32_t>& id, int type, json& pieces) {
      if (json_member(settings, flag) != true || !id) return;
      const std::string& text = texts_[static_cast<std::size_t>(*id)];
      pieces.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
      tokens[text] = {
          {"id", text}, {"ids", json::array({static_cast<std::uint32_t>(*id)})}, {"tokens", json::array({text})}};
    };
    for (const int type : {0, 1}) {
      add("add_bos_token", special_.bos, type, pair);
      pair.push_back({{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}});
      add("add_eos_token", special_.eos, type, pair);
      if (type == 0) single = pair;
    }
    if (tokens.empty()) return nullptr;
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  }

  /// Reads what stands before a text in a post-processor or a sequence of them.
  void read_processor(const json& processor) {
    const json& type = json_member(processor, "type");
    const auto refuse = [&] {
      throw DataError(
          "{}/tokenizer.json: the post-processor {} is not supported, only ByteLevel, BertProcessing, "
          "RobertaProcessing, TemplateProcessing and sequences of them",
          folder_, shortened(json_dump(processor)));
    };
    if (type == "Sequence") {
      for (const json& step : json_member(processor, "processors")) read_processor(step);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const json& token = json_member(processor, "cls");
      if (!token.is_array() || token.size() != 2 || !token[1].is_number_unsigned()) refuse();
      special_.prefix.insert(special_.prefix.begin(), token[1].get<std::int32_t>());
    } else if (type == "TemplateProcessing") {
      std::vector<std::int32_t> before;
      for (const json& piece : json_member(processor, "single")) {
        const json& token = json_member(piece, "SpecialToken");
        if (!token.is_object()) break;  // the text
        const json& ids =
            json_member(json_member(json_member(processor, "special_tokens"), content_of_id(token).c_str()), "ids");
        if (!ids.is_array() || !std::ranges::all_of(ids, &json::is_number_unsigned)) refuse();
        for (const json& id : ids) before.push_back(id.get<std::int32_t>());
      }
      special_.prefix.insert(special_.prefix.begin(), before.begin(), before.end());
    } else if (type != "ByteLevel") {
      refuse();
    }
  }

  static std::string content_of_id(const json& token) {
    const json& id = json_member(token, "id");
    return id.is_string() ? id.get<std::string>() : std::string();
  }

  const std::string& folder_;
  const json& file_;
  const data::Tokenizer& tokenizer_;
  std::vector<std::string> texts_;
  SpecialTokens special_;
};

}  // namespace

void read_special_tokens(const std::string& folder, const json& file, data::Tokenizer& tokenizer) {
  tokenizer.set_special(SpecialTokensReader(folder, file, tokenizer).read());
}

void read_generation_config(const std::string& folder, std::int64_t vocabulary_size, SpecialTokens& special) {
  const json ends = json_member(read_kept(folder, generation_name, special), "eos_token_id");
  for (const json& end : ends.is_array() || ends.is_null() ? ends : json::array({ends})) {
    if (end.is_number_unsigned() && end.get<std::uint64_t>() < static_cast<std::uint64_t>(vocabulary_size)) {
      special.stops.push_back(end.get<std::int32_t>());
    } else {
      log::warn("{}: eos_token_id {} is none of {} tokens, and ends no generation", path_in(folder, generation_name),
                shortened(json_dump(end)), vocabulary_size);
    }
  }
}

std::string named_token(const std::string& folder, const char* role) {
  const std::string path = path_in(folder, tokenizer_settings_name);
  if (!is_there(path)) return {};
  return content_of(
      json_member(parse_json(read_whole_file(path, max_file_bytes, Symlinks::follow), path, max_file_depth), role));
}

std::map<std::string, std::string> chat_templates_of(const SpecialTokens& special) {
  std::map<std::string, std::string> templates;
  const auto add = [&](const json& found) {
    if (found.is_string()) templates["default"] = found.get<std::string>();
    if (!found.is_array()) return;
    for (const json& named : found) {
      const json &name = json_member(named, "name"), &text = json_member(named, "template");
      if (name.is_string() && text.is_string()) templates[name.get<std::string>()] = text.get<std::string>();
    }
  };
  const auto settings = special.files.find(tokenizer_settings_name);
  const bool has_files = std::ranges::any_of(special.files, [](const auto& file) {
    return file.first == chat_template_name || file.first.starts_with(templates_folder);
  });
  if (settings != special.files.end() && !has_files) {
    add(json_member(parse_json(settings->second, tokenizer_settings_name, max_file_depth), "chat_template"));
  }
  for (const auto& [name, text] : special.files) {
    if (name == chat_template_name) templates["default"] = text;
    if (name.starts_with(templates_folder)) {
      const std::size_t begin = std::string_view(templates_folder).size() + 1;
      templates[name.substr(begin, name.size() - begin - template_ending.size())] = text;
    }
  }
  const auto file = special.files.find(template_json_name);
  if (file != special.files.end() && templates.empty()) {
    add(json_member(parse_json(file->second, template_json_name, max_file_depth), "chat_template"));
  }
  return templates;
}

std::map<std::string, std::string> named_tokens_of(const data::Tokenizer& tokenizer) {
  std::map<std::string, std::string> tokens;
  const SpecialTokens& special = tokenizer.special();
  for (const char* name : {roles_name, tokenizer_settings_name}) {
    const auto file = special.files.find(name);
    if (file == special.files.end()) continue;
    const json settings = parse_json(file->second, name, max_file_depth);
    for (const auto& [role, token] : settings.items()) {
      if (role.ends_with("_token") && !content_of(token).empty()) tokens[role] = content_of(token);
    }
  }
  if (!tokens.empty()) return tokens;
  const std::int32_t end = tokenizer.end_of_document();
  for (const auto& [name, id] : tokenizer.special_names()) {
    if (id == special.bos) tokens["bos_token"] = name;
    if (id == special.eos.value_or(end)) tokens["eos_token"] = name;
    if (id == special.pad) tokens["pad_token"] = name;
  }
  return tokens;
}

}  // namespace trireme::io

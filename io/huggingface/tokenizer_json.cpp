#include "io/huggingface/tokenizer_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "io/huggingface/special_tokens_json.hpp"
#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/tokenizer/huggingface_file.hpp"
#include "io/tokenizer/huggingface_form.hpp"
#include "io/tokenizer/tekken_file.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/sentence_piece_tokenizer.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t max_settings_bytes = std::int64_t{128} << 20;
constexpr int max_settings_depth = 16;
constexpr const char* tokenizer_name = "tokenizer.json";
constexpr const char* tekken_name = "tekken.json";
constexpr const char* sentence_piece_name = "tokenizer.model";
constexpr const char* end_of_text = "<|endoftext|>";  // token of GPT-2 and the byte tokenizer

data::WordPieceVocabulary wordpiece_from_json(const json& file, const std::string& path) {
  const json& model = json_member(file, "model");
  const json& vocabulary = json_member(model, "vocab");
  TRIREME_CHECK(vocabulary.is_object() && json_member(model, "unk_token") == "[UNK]" &&
                    json_member(model, "continuing_subword_prefix") == "##",
                DataError,
                "{}: the WordPiece model has no 'vocab', or its unknown token and prefix are not [UNK] and ##", path);
  data::WordPieceVocabulary result;
  const auto set = [&](const std::string& token, const json& id) {
    TRIREME_CHECK(id.is_number_unsigned() && id.get<std::uint64_t>() < std::uint64_t{1} << 24, DataError,
                  "{}: the token '{}' has no valid id", path, shortened(token));
    const auto index = id.get<std::size_t>();
    if (index >= result.tokens.size()) result.tokens.resize(index + 1);
    std::string& slot = result.tokens[index];
    TRIREME_CHECK(slot.empty() || slot == token, DataError, "{}: two tokens have the id {}", path, index);
    slot = token;
  };
  for (const auto& [token, id] : vocabulary.items()) set(token, id);
  for (const json& added : json_member(file, "added_tokens")) {
    TRIREME_CHECK(json_member(added, "content").is_string(), DataError, "{}: an added token has no 'content'", path);
    const auto content = added["content"].get<std::string>();
    TRIREME_CHECK(json_member(added, "special") != false, DataError,
                  "{}: the added token '{}' is not special, and WordPiece would not find it in texts", path,
                  shortened(content));
    set(content, json_member(added, "id"));
  }
  TRIREME_CHECK(std::ranges::find(result.tokens, "") == result.tokens.end(), DataError,
                "{}: ids are missing: they must be consecutive", path);
  const json& normalizer = json_member(file, "normalizer");
  const json& lower = json_member(normalizer, "lowercase");
  const json& accents = json_member(normalizer, "strip_accents");
  TRIREME_CHECK(json_member(normalizer, "type") == "BertNormalizer" && lower.is_boolean() &&
                    (accents.is_null() || accents == lower) &&
                    json_member(json_member(file, "pre_tokenizer"), "type") == "BertPreTokenizer",
                DataError, "{}: its words are not those of BERT, or strip_accents differs from lowercase", path);
  for (const char* name : {"clean_text", "handle_chinese_chars"}) {
    TRIREME_CHECK(json_member(normalizer, name) != false, DataError,
                  "{}: '{}' is false, but texts are always cleaned and cut around ideographs", path, name);
  }
  result.lower_case = lower.get<bool>();
  const json& longest = json_member(model, "max_input_chars_per_word");
  if (longest.is_number_unsigned()) {
    result.max_word_characters =
        static_cast<std::int64_t>(std::min<std::uint64_t>(longest.get<std::uint64_t>(), 65536));
  }
  return result;
}

/// Makes the tokenizer of a tokenizer.json. Recognises the byte tokenizer and GPT-2's, so that they match the digests
/// in corpora.
std::unique_ptr<data::Tokenizer> tokenizer_of(data::BpeVocabulary bpe) {
  const bool is_plain = bpe.pattern == data::WordPattern::gpt2 && bpe.splits.empty() && bpe.normalizer.empty() &&
                        !bpe.whole_words && !bpe.characters && bpe.added.empty() &&
                        bpe.special == std::vector{bpe.end_of_document} &&
                        bpe.tokens[static_cast<std::size_t>(bpe.end_of_document)] == end_of_text;
  if (!is_plain) return data::make_huggingface_tokenizer(std::move(bpe));
  bool is_bytes = bpe.merges.empty() && bpe.tokens.size() == 257 && bpe.end_of_document == 256;
  for (std::size_t i = 0; i < 256 && is_bytes; ++i) is_bytes = bpe.tokens[i] == std::string(1, static_cast<char>(i));
  if (is_bytes) return data::make_byte_tokenizer();
  bpe.special.clear();
  return data::make_gpt2_tokenizer(std::move(bpe));
}

ordered_json added_token(std::size_t id, const std::string& content, const data::AddedToken& token) {
  return {{"id", id},
          {"content", content},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"normalized", token.normalized},
          {"special", token.special}};
}

/// Returns the post-processor that was read, or `otherwise`.
ordered_json post_processor(const data::SpecialTokens& special, const ordered_json& otherwise) {
  const auto kept = special.files.find(post_processor_name);
  return kept == special.files.end() ? otherwise : ordered_json::parse(kept->second);
}

/// Sets the names of special tokens. Without known ones, the token that ends documents begins texts, too, as GPT-2's.
void put_roles(const data::Tokenizer& tokenizer, const std::vector<std::string>& texts, ordered_json& settings) {
  const data::SpecialTokens& special = tokenizer.special();
  const auto put = [&](const char* name, std::optional<std::int32_t> id) {
    if (id) settings[name] = texts[static_cast<std::size_t>(*id)];
  };
  const bool is_unknown = special == data::SpecialTokens{};
  put("bos_token", is_unknown ? tokenizer.end_of_document() : special.beginning());
  put("eos_token", special.eos.value_or(tokenizer.end_of_document()));
  if (is_unknown) put("unk_token", tokenizer.end_of_document());
  put("pad_token", special.pad);
}

/// Adds the files that were read with the tokenizer; they replace those of the same name.
void put_kept(const data::SpecialTokens& special, std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : special.files) {
    if (name == post_processor_name) continue;
    const std::size_t end = name.rfind('/');
    TRIREME_CHECK(end == name.npos || name.substr(0, end) == "additional_chat_templates", DataError,
                  "the tokenizer is damaged: it has the file {}, outside the folder of a model", shortened(name));
    files[name] = text;
  }
}

/// Returns the definition of a byte-level BPE; the byte tokenizer is one without merges.
data::BpeVocabulary bpe_of(const data::Tokenizer& tokenizer) {
  if (tokenizer.name() != "bytes") return data::bpe_from_payload(tokenizer.payload());
  data::BpeVocabulary bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.tokens.emplace_back(1, static_cast<char>(byte));
  bytes.end_of_document = static_cast<std::int32_t>(bytes.tokens.size());
  bytes.tokens.emplace_back(end_of_text);
  return bytes;
}

ordered_json unigram_model(const data::BpeVocabulary& vocabulary) {
  ordered_json tokens = ordered_json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    tokens.push_back({vocabulary.tokens[id], vocabulary.unigram->scores[id]});
  }
  return {{"type", "Unigram"},
          {"unk_id", vocabulary.unigram->unknown},
          {"vocab", tokens},
          {"byte_fallback", vocabulary.unigram->byte_fallback}};
}

std::map<std::string, std::string> bpe_files(const data::Tokenizer& tokenizer, std::int64_t positions) {
  const data::BpeVocabulary bpe = bpe_of(tokenizer);
  const auto spelled = [&](const std::string& token) { return bpe.characters ? token : spelling_of(token); };
  std::set<std::int32_t> special(bpe.special.begin(), bpe.special.end()), added(bpe.added.begin(), bpe.added.end());
  special.insert(bpe.end_of_document);
  const auto& read = tokenizer.special().added;
  ordered_json added_tokens = ordered_json::array(), vocabulary = ordered_json::object();
  for (std::size_t i = 0; i < bpe.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const bool is_added = special.contains(id) || added.contains(id);
    const auto known = read.find(id);
    const std::string name = is_added ? bpe.tokens[i] : spelled(bpe.tokens[i]);
    TRIREME_CHECK(!vocabulary.contains(name), DataError, "two tokens have the name '{}' in a tokenizer.json",
                  shortened(name));
    vocabulary[name] = i;
    if (is_added) {
      added_tokens.push_back(
          added_token(i, name, known != read.end() ? known->second : data::AddedToken{special.contains(id)}));
    }
  }
  ordered_json merges = ordered_json::array();
  for (const auto& [left, right] : bpe.merges) merges.push_back({spelled(left), spelled(right)});
  ordered_json file{{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added_tokens},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", nullptr},
                    {"post_processor", post_processor(tokenizer.special(), nullptr)},
                    {"decoder", nullptr},
                    {"model",
                     {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", bpe.characters.has_value()},
                      {"byte_fallback", bpe.characters.has_value()},
                      {"ignore_merges", bpe.whole_words},
                      {"vocab", vocabulary},
                      {"merges", merges}}}};
  if (bpe.unigram) file["model"] = unigram_model(bpe);
  write_huggingface_form(bpe, file);
  ordered_json settings{{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"model_max_length", positions},
                        {"clean_up_tokenization_spaces", false}};
  put_roles(tokenizer, bpe.tokens, settings);
  std::map<std::string, std::string> files{{tokenizer_name, file.dump() + "\n"},
                                           {tokenizer_settings_name, settings.dump(2) + "\n"}};
  if (tokenizer.name() == "gpt2") {
    files.emplace("vocab.json", bpe_vocabulary_text(bpe));
    files.emplace("merges.txt", bpe_merges_text(bpe));
  }
  put_kept(tokenizer.special(), files);
  return files;
}

std::map<std::string, std::string> wordpiece_files(const data::Tokenizer& tokenizer, std::int64_t tokens,
                                                   std::int64_t positions) {
  data::WordPieceVocabulary wordpiece = data::wordpiece_from_payload(tokenizer.payload());
  if (static_cast<std::size_t>(tokens) < wordpiece.tokens.size()) {
    wordpiece.tokens.resize(static_cast<std::size_t>(tokens));
  }
  ordered_json added = ordered_json::array(), vocabulary = ordered_json::object();
  std::string lines;
  const auto& read = tokenizer.special().added;
  std::map<std::string, std::size_t> special{{"[PAD]", 0}, {"[UNK]", 0}, {"[CLS]", 0}, {"[SEP]", 0}, {"[MASK]", 0}};
  for (std::size_t i = 0; i < wordpiece.tokens.size(); ++i) {
    const std::string& token = wordpiece.tokens[i];
    vocabulary[token] = i;
    lines += token + "\n";
    const auto known = read.find(static_cast<std::int32_t>(i));
    const auto found = special.find(token);
    if (found != special.end()) found->second = i;
    if (known != read.end() || found != special.end()) {
      added.push_back(added_token(i, token, known != read.end() ? known->second : data::AddedToken{true}));
    }
  }
  const auto piece = [](const char* kind, const char* id, int type) {
    return ordered_json{{kind, {{"id", id}, {"type_id", type}}}};
  };
  const ordered_json single = ordered_json::array(
      {piece("SpecialToken", "[CLS]", 0), piece("Sequence", "A", 0), piece("SpecialToken", "[SEP]", 0)});
  ordered_json pair = single;
  pair.push_back(piece("Sequence", "B", 1));
  pair.push_back(piece("SpecialToken", "[SEP]", 1));
  ordered_json round;
  for (const char* name : {"[CLS]", "[SEP]"}) {
    round[name] = {
        {"id", name}, {"ids", ordered_json::array({special[name]})}, {"tokens", ordered_json::array({name})}};
  }
  const ordered_json file{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", true},
        {"strip_accents", nullptr},
        {"lowercase", wordpiece.lower_case}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       post_processor(tokenizer.special(),
                      {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", round}})},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", wordpiece.max_word_characters},
        {"vocab", vocabulary}}}};
  const ordered_json settings{{"tokenizer_class", "BertTokenizer"},
                              {"model_max_length", positions},
                              {"do_lower_case", wordpiece.lower_case},
                              {"pad_token", "[PAD]"},
                              {"unk_token", "[UNK]"},
                              {"cls_token", "[CLS]"},
                              {"sep_token", "[SEP]"},
                              {"mask_token", "[MASK]"}};
  std::map<std::string, std::string> files{
      {tokenizer_name, file.dump() + "\n"}, {tokenizer_settings_name, settings.dump(2) + "\n"}, {"vocab.txt", lines}};
  put_kept(tokenizer.special(), files);
  return files;
}

std::map<std::string, std::string> sentence_piece_files(const data::Tokenizer& tokenizer, std::int64_t positions) {
  const std::string model = data::sentence_piece_model(data::split_payload(tokenizer.payload()).definition);
  const data::SpecialTokens& special = tokenizer.special();
  const bool begins = special.bos && special.prefix == std::vector{*special.bos};
  ordered_json settings{{"tokenizer_class", "LlamaTokenizer"},
                        {"model_max_length", positions},
                        {"legacy", true},
                        {"add_bos_token", begins},
                        {"add_eos_token", false},
                        {"clean_up_tokenization_spaces", false}};
  put_roles(tokenizer, data::sentence_pieces(model), settings);
  std::map<std::string, std::string> files{{sentence_piece_name, model},
                                           {tokenizer_settings_name, settings.dump(2) + "\n"}};
  put_kept(special, files);
  return files;
}

/// Makes the tokenizer of a tokenizer.model.
std::unique_ptr<data::Tokenizer> sentence_piece_of(const std::string& path) {
  try {
    return data::make_sentence_piece_tokenizer(read_whole_file(path, max_settings_bytes, Symlinks::follow));
  } catch (const DataError& error) {
    throw DataError("{} does not make a tokenizer: {}", path, error.what());
  }
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash);
}

}  // namespace

std::unique_ptr<data::Tokenizer> read_tokenizer_of(const std::string& folder, const std::string& end_of_document) {
  const auto path_of = [&](const char* name) { return folder + "/" + name; };
  json file;
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (const std::string path = path_of(tokenizer_name); is_there(path)) {
    const std::string text = read_whole_file(path, max_settings_bytes, Symlinks::follow);
    file = parse_json(text, path, max_settings_depth);
    if (json_member(json_member(file, "model"), "type") == "WordPiece") {
      tokenizer = data::make_wordpiece_tokenizer(wordpiece_from_json(file, path));
    } else {
      tokenizer = tokenizer_of(parse_huggingface_file(text, path, {end_of_document, named_token(folder, "eos_token")}));
    }
  } else if (is_there(path_of(tekken_name))) {
    return read_tokenizer_json(path_of(tekken_name), end_of_document);
  } else if (is_there(path_of(sentence_piece_name))) {
    tokenizer = sentence_piece_of(path_of(sentence_piece_name));
  } else if (is_there(path_of("vocab.json")) && is_there(path_of("merges.txt"))) {
    tokenizer = data::make_gpt2_tokenizer(read_bpe_files(path_of("vocab.json"), path_of("merges.txt")));
  } else if (is_there(path_of("vocab.txt"))) {
    data::WordPieceVocabulary vocabulary = read_wordpiece_file(path_of("vocab.txt"));
    if (const std::string settings = path_of(tokenizer_settings_name); is_there(settings)) {
      const json lower = json_member(
          parse_json(read_whole_file(settings, max_settings_bytes, Symlinks::follow), settings, max_settings_depth),
          "do_lower_case");
      if (lower.is_boolean()) vocabulary.lower_case = lower.get<bool>();
    }
    tokenizer = data::make_wordpiece_tokenizer(std::move(vocabulary));
  }
  if (tokenizer) read_special_tokens(folder, file, *tokenizer);
  const auto names = tokenizer ? tokenizer->special_names() : std::vector<std::pair<std::string, std::int32_t>>{};
  TRIREME_CHECK(end_of_document.empty() || std::ranges::any_of(names,
                                                               [&](const auto& named) {
                                                                 return named.first == end_of_document &&
                                                                        named.second == tokenizer->end_of_document();
                                                               }),
                ConfigError,
                "<eod_token> {}: only a BPE or Unigram of a tokenizer.json or tekken.json takes another end of "
                "documents, and {} has none",
                end_of_document, folder);
  return tokenizer;
}

std::unique_ptr<data::Tokenizer> read_tokenizer_json(const std::string& path, const std::string& end_of_document) {
  const std::string folder = folder_of(path);
  const std::string text = read_whole_file(path, max_settings_bytes, Symlinks::follow);
  data::BpeVocabulary vocabulary =
      parse_huggingface_file(text, path, {end_of_document, named_token(folder, "eos_token")});
  std::unique_ptr<data::Tokenizer> tokenizer;
  try {
    tokenizer = data::make_huggingface_tokenizer(std::move(vocabulary));
  } catch (const DataError& error) {
    throw DataError("the tokens and merges of {} do not make a tokenizer: {}", path, error.what());
  }
  const json file = parse_json(text, path, max_settings_depth);
  read_special_tokens(folder, is_tekken(file) ? tekken_settings(*tokenizer) : file, *tokenizer);
  return tokenizer;
}

std::unique_ptr<data::Tokenizer> read_sentence_piece(const std::string& path) {
  std::unique_ptr<data::Tokenizer> tokenizer = sentence_piece_of(path);
  read_special_tokens(folder_of(path), nullptr, *tokenizer);
  return tokenizer;
}

std::map<std::string, std::string> tokenizer_files(const data::Tokenizer& tokenizer, std::int64_t tokens,
                                                   std::int64_t positions) {
  if (tokenizer.name() == "null") {
    std::map<std::string, std::string> files;
    put_kept(tokenizer.special(), files);
    return files;
  }
  if (tokenizer.name() == "sentencepiece") return sentence_piece_files(tokenizer, positions);
  if (tokenizer.name() == "wordpiece") return wordpiece_files(tokenizer, tokens, positions);
  return bpe_files(tokenizer, positions);
}

}  // namespace trireme::io

#include "io/tokenizer_files.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "io/regular_file.hpp"
#include "src/base/check.hpp"
#include "src/data/utf8.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::int64_t greatest_file_bytes = std::int64_t{256} << 20;
constexpr std::size_t greatest_vocabulary = std::size_t{1} << 24;
constexpr std::size_t greatest_token_bytes = 65536;
constexpr const char* end_of_document_token = "<|endoftext|>";

std::string read_whole(const std::string& path) {
  const std::int64_t size = regular_file_size(path);
  TRIREME_CHECK(size <= greatest_file_bytes, DataError, "{} has {} bytes; a vocabulary has at most {}", path, size,
                greatest_file_bytes);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  TRIREME_CHECK(file.is_open() && (size == 0 || text << file.rdbuf()) && !file.bad(), IoError, "cannot read {}", path);
  return std::move(text).str();
}

/// GPT-2's table from printable characters to the bytes they stand for: printable bytes stand for themselves, the
/// other 68 are written, in order, as the characters from U+0100 on.
std::unordered_map<char32_t, char> byte_of_character() {
  std::unordered_map<char32_t, char> table;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table.emplace(printable ? static_cast<char32_t>(byte) : next++, static_cast<char>(byte));
  }
  return table;
}

/// The bytes that `characters` spell, empty where they do not.
std::string bytes_of(std::string_view characters) {
  static const std::unordered_map<char32_t, char> table = byte_of_character();
  std::string bytes;
  const char* at = characters.data();
  const char* const end = at + characters.size();
  while (at != end) {
    const data::Utf8Character character = data::decode_utf8(at, end);
    const auto byte = table.find(character.code_point);
    if (character.size_bytes == 0 || byte == table.end()) return {};
    bytes += byte->second;
    at += character.size_bytes;
  }
  return bytes;
}

/// Takes {"token": id, ...} and nothing else; no tree is built, so nesting cannot exhaust anything.
class VocabularyHandler : public nlohmann::json_sax<json> {
 public:
  explicit VocabularyHandler(const std::string& path) : path_(path) {}

  bool start_object(std::size_t) override {
    if (inside_) refuse("an object");
    return inside_ = true;
  }
  bool end_object() override { return true; }
  bool key(std::string& name) override {
    TRIREME_CHECK(tokens_.size() < greatest_vocabulary && name.size() <= greatest_token_bytes, DataError,
                  "{} has more than {} entries or a token of {} bytes", path_, greatest_vocabulary, name.size());
    name_ = name;
    return true;
  }
  bool number_unsigned(std::uint64_t id) override {
    if (!inside_) refuse("a number");
    std::string bytes = bytes_of(name_);
    TRIREME_CHECK(!bytes.empty(), DataError, "{}: entry '{}' is empty or has a character that stands for no byte",
                  path_, name_);
    TRIREME_CHECK(id < greatest_vocabulary, DataError, "{}: entry '{}' has the id {}", path_, name_, id);
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    TRIREME_CHECK(tokens_[id].empty(), DataError, "{}: entries '{}' and '{}' both have the id {}", path_, tokens_[id],
                  name_, id);
    TRIREME_CHECK(ids_.emplace(bytes, id).second, DataError, "{}: entry '{}' stands there twice", path_, name_);
    tokens_[id] = std::move(bytes);
    return true;
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string&) override { return refuse("a number that is not whole"); }
  bool string(std::string&) override { return refuse("a string"); }
  bool binary(json::binary_t&) override { return refuse("binary data"); }
  bool start_array(std::size_t) override { return refuse("an array"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    throw DataError("{} is not JSON: {}", path_, error.what());
  }

  data::BpeVocabulary finish() {
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      TRIREME_CHECK(!tokens_[id].empty(), DataError, "{} has no token with the id {}, though ids go up to {}", path_,
                    id, tokens_.size() - 1);
    }
    const auto end = ids_.find(end_of_document_token);
    TRIREME_CHECK(end != ids_.end(), DataError, "{} has no token {}, which ends documents", path_,
                  end_of_document_token);
    data::BpeVocabulary vocabulary;
    vocabulary.end_of_document = static_cast<std::int32_t>(end->second);
    vocabulary.tokens = std::move(tokens_);
    return vocabulary;
  }

 private:
  bool refuse(const char* what) const {
    throw DataError("{}: {} stands {}{}; a vocabulary is one object of tokens and their ids", path_, what,
                    inside_ ? "at entry " : "at its top", inside_ ? "'" + name_ + "'" : "");
  }

  const std::string& path_;
  bool inside_ = false;
  std::string name_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::uint64_t> ids_;
};

std::vector<std::pair<std::string, std::string>> read_merges(const std::string& path) {
  const std::string text = read_whole(path);
  std::vector<std::pair<std::string, std::string>> merges;
  std::int64_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    TRIREME_CHECK(space != line.npos, DataError, "{}:{}: '{}' is not two tokens with a space between", path,
                  line_number, line.substr(0, 80));
    std::string left = bytes_of(line.substr(0, space));
    std::string right = bytes_of(line.substr(space + 1));
    TRIREME_CHECK(!left.empty() && !right.empty() && line.size() <= greatest_token_bytes, DataError,
                  "{}:{}: '{}' is not two tokens spelt with the characters that stand for bytes", path, line_number,
                  line.substr(0, 80));
    TRIREME_CHECK(merges.size() < greatest_vocabulary, DataError, "{} has more than {} merges", path,
                  greatest_vocabulary);
    merges.emplace_back(std::move(left), std::move(right));
  }
  return merges;
}

}  // namespace

data::BpeVocabulary read_bpe_files(const std::string& vocabulary_path, const std::string& merges_path) {
  const std::string text = read_whole(vocabulary_path);
  VocabularyHandler handler(vocabulary_path);
  json::sax_parse(text, &handler);
  data::BpeVocabulary vocabulary = handler.finish();
  vocabulary.merges = read_merges(merges_path);
  return vocabulary;
}

}  // namespace trireme::io

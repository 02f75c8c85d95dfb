#include "io/tokenizer/tokenizer_files.hpp"

#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "io/json/json_text.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::int64_t max_vocabulary_bytes = std::int64_t{256} << 20;
constexpr std::size_t max_vocabulary = std::size_t{1} << 24;
constexpr std::size_t max_token_bytes = 65536;
constexpr const char* end_of_document_token = "<|endoftext|>";

/// Accepts {"token": id, ...} only. Builds no tree: nesting cannot exhaust memory.
class VocabularyHandler : public nlohmann::json_sax<json> {
 public:
  explicit VocabularyHandler(const std::string& path) : path_(path) {}

  bool start_object(std::size_t) override {
    if (inside_) refuse("an object");
    return inside_ = true;
  }
  bool end_object() override { return true; }
  bool key(std::string& name) override {
    TRIREME_CHECK(tokens_.size() < max_vocabulary && name.size() <= max_token_bytes, DataError,
                  "{} has more than {} entries or a token of {} bytes", path_, max_vocabulary, name.size());
    name_ = name;
    return true;
  }
  bool number_unsigned(std::uint64_t id) override {
    if (!inside_) refuse("a number");
    std::string bytes = bytes_of(name_);
    TRIREME_CHECK(!bytes.empty(), DataError,
                  "{}: entry '{}' is empty or has a character outside the byte-level alphabet", path_,
                  shortened(name_));
    TRIREME_CHECK(id < max_vocabulary, DataError, "{}: entry '{}' has the id {}", path_, shortened(name_), id);
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    TRIREME_CHECK(tokens_[id].empty(), DataError, "{}: entries '{}' and '{}' both have the id {}", path_,
                  shortened(tokens_[id]), shortened(name_), id);
    TRIREME_CHECK(ids_.emplace(bytes, id).second, DataError, "{}: entry '{}' occurs twice", path_, shortened(name_));
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
    throw DataError("{} is not JSON: {}", path_, json_message(error.what()));
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
                    inside_ ? "at entry " : "at its top", inside_ ? "'" + shortened(name_) + "'" : "");
  }

  const std::string& path_;
  bool inside_ = false;
  std::string name_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::uint64_t> ids_;
};

std::vector<std::pair<std::string, std::string>> parse_merges(const std::string& text, const std::string& path) {
  std::vector<std::pair<std::string, std::string>> merges;
  std::int64_t line_number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    TRIREME_CHECK(space != line.npos, DataError, "{}:{}: '{}' is not two tokens with a space between", path,
                  line_number, line.substr(0, 80));
    std::string left = bytes_of(line.substr(0, space));
    std::string right = bytes_of(line.substr(space + 1));
    TRIREME_CHECK(!left.empty() && !right.empty() && line.size() <= max_token_bytes, DataError,
                  "{}:{}: '{}' is not two tokens of the byte-level alphabet", path, line_number, line.substr(0, 80));
    TRIREME_CHECK(merges.size() < max_vocabulary, DataError, "{} has more than {} merges", path, max_vocabulary);
    merges.emplace_back(std::move(left), std::move(right));
  }
  return merges;
}

}  // namespace

data::BpeVocabulary parse_bpe_files(const std::string& vocabulary, const std::string& vocabulary_path,
                                    const std::string& merges, const std::string& merges_path) {
  VocabularyHandler handler(vocabulary_path);
  json::sax_parse(vocabulary, &handler);
  data::BpeVocabulary result = handler.finish();
  result.merges = parse_merges(merges, merges_path);
  return result;
}

data::BpeVocabulary read_bpe_files(const std::string& vocabulary_path, const std::string& merges_path) {
  return parse_bpe_files(read_whole_file(vocabulary_path, max_vocabulary_bytes, Symlinks::follow), vocabulary_path,
                         read_whole_file(merges_path, max_vocabulary_bytes, Symlinks::follow), merges_path);
}

data::WordPieceVocabulary parse_wordpiece_file(std::string_view text, const std::string& path) {
  data::WordPieceVocabulary vocabulary;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t number = vocabulary.tokens.size() + 1;
    TRIREME_CHECK(!line.empty() && line.size() <= max_token_bytes, DataError,
                  "{}:{}: the line has {} bytes; a vocabulary has one token a line", path, number, line.size());
    TRIREME_CHECK(is_utf8(line), DataError, "{}:{}: the token is not UTF-8", path, number);
    TRIREME_CHECK(number <= max_vocabulary, DataError, "{} has more than {} lines", path, max_vocabulary);
    vocabulary.tokens.emplace_back(line);
  }
  return vocabulary;
}

data::WordPieceVocabulary read_wordpiece_file(const std::string& path) {
  return parse_wordpiece_file(read_whole_file(path, max_vocabulary_bytes, Symlinks::follow), path);
}

std::string bpe_vocabulary_text(const data::BpeVocabulary& vocabulary) {
  std::string tokens = "{";
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    tokens += fmt::format("{}{}: {}", id == 0 ? "" : ", ", json(spelling_of(vocabulary.tokens[id])).dump(), id);
  }
  return tokens + "}\n";
}

std::string bpe_merges_text(const data::BpeVocabulary& vocabulary) {
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : vocabulary.merges) {
    merges += fmt::format("{} {}\n", spelling_of(left), spelling_of(right));
  }
  return merges;
}

void write_bpe_files(const data::BpeVocabulary& vocabulary, const std::string& vocabulary_path,
                     const std::string& merges_path) {
  replace_together({{merges_path, bpe_merges_text(vocabulary)}, {vocabulary_path, bpe_vocabulary_text(vocabulary)}});
}

}  // namespace trireme::io

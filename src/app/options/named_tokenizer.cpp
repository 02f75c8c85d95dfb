#include "src/app/options/named_tokenizer.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "io/huggingface/tokenizer_json.hpp"
#include "io/tokenizer/huggingface_file.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/data/tokenizer/bpe_tokenizer.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

namespace trireme::app {
namespace {

/// A tokenizer type of Megatron-LM or of its forks, and the tokenizers that it may denote.
struct TokenizerType {
  std::string_view type;
  std::string_view tokenizers;  ///< "any": only ids
  std::optional<bool> lower_case = {};
};

constexpr auto types = std::to_array<TokenizerType>({
    {"BertWordPieceCase", "wordpiece", false},
    {"BertWordPieceLowerCase", "wordpiece", true},
    {"BertWordPieceTokenizer", "wordpiece"},
    {"ByteLevelTokenizer", "bytes"},
    {"FalconTokenizer", "huggingface"},
    {"GPT2BPETokenizer", "gpt2"},
    {"GPT2BPETokenizerWithFIM", "gpt2"},
    {"GPTSentencePieceTokenizer", "huggingface sentencepiece"},
    {"HuggingFaceTokenizer", "gpt2 huggingface sentencepiece wordpiece"},
    {"Llama2Tokenizer", "huggingface sentencepiece"},
    {"NullTokenizer", "any"},
    {"PretrainedFromHF", "gpt2 huggingface sentencepiece wordpiece"},
    {"SentencePieceTokenizer", "huggingface sentencepiece"},
    {"TikTokenizer", "gpt2 huggingface"},
    {"TokenizerFromFile", "gpt2 huggingface"},
    {"TokenizerFromFileWithFIM", "gpt2 huggingface"},
});

/// Returns "wordpiece in lower case".
std::string described(const std::string& name, const std::string& payload) {
  if (name != "wordpiece") return name;
  return data::wordpiece_from_payload(payload).lower_case ? "wordpiece in lower case" : "wordpiece that keeps case";
}

/// Returns the file, or the tokenizer's in a folder.
std::string file_of(const std::string& path, const std::string& tokenizer) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  if (tokenizer == "sentencepiece") return path + "/tokenizer.model";
  const std::string file = path + "/tokenizer.json", tekken = path + "/tekken.json";
  return !std::filesystem::exists(file, error) && std::filesystem::exists(tekken, error) ? tekken : file;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::is_regular_file(path, error);
}

}  // namespace

void NamedTokenizer::declare(Options& options) {
  options.add("tokenizer-type", &type, "NAME",
              "Type of the tokenizer in Megatron-LM: an error if corpus or checkpoint hold another.");
  options.add("vocab-file", &vocabulary_file, "FILE",
              "Vocabulary, checked against the tokenizer in the corpus or checkpoint.");
  options.add("merge-file", &merge_file, "FILE", "Merges of GPT-2's vocabulary, likewise.");
  options.add("tokenizer-model", &model, "FILE",
              "Hugging Face's tokenizer.json or SentencePiece's tokenizer.model, or its folder, likewise.");
}

std::vector<std::string> NamedTokenizer::compare(const std::string& holder, const std::string& name,
                                                 const std::string& payload) const {
  std::vector<std::string> lines;
  compare_type(holder, name, payload, lines);
  compare_files(holder, name, payload, lines);
  return lines;
}

void NamedTokenizer::compare_type(const std::string& holder, const std::string& name, const std::string& payload,
                                  std::vector<std::string>& lines) const {
  if (type.empty()) return;
  const auto known = std::ranges::find(types, type, &TokenizerType::type);
  if (known != types.end() && known->tokenizers == "any") return;
  if (name == "null" || known == types.end()) {
    lines.push_back(name == "null" ? fmt::format("--tokenizer-type {} was not checked: {} has only ids", type, holder)
                                   : fmt::format("--tokenizer-type {} was not checked against the tokenizer {} of {}: "
                                                 "unknown type",
                                                 shortened(type), name, holder));
    return;
  }
  const bool is_kind = known->tokenizers.find(name) != known->tokenizers.npos;
  const bool is_case =
      !is_kind || !known->lower_case || data::wordpiece_from_payload(payload).lower_case == *known->lower_case;
  TRIREME_CHECK(
      is_kind && is_case, DataError,
      "--tokenizer-type {} is not the tokenizer that {} holds: {}. Leave the option out, or give what was built with "
      "that tokenizer",
      type, holder, described(name, payload));
}

void NamedTokenizer::compare_files(const std::string& holder, const std::string& name, const std::string& payload,
                                   std::vector<std::string>& lines) const {
  const std::string model_file = file_of(model, name);
  const std::pair<const char*, const std::string*> given[] = {
      {"--vocab-file", &vocabulary_file}, {"--merge-file", &merge_file}, {"--tokenizer-model", &model_file}};
  std::vector<std::string> missing, found;
  for (const auto& [flag, path] : given) {
    if (!path->empty()) (is_file(*path) ? found : missing).push_back(fmt::format("{} {}", flag, shortened(*path)));
  }
  if (!missing.empty()) {
    lines.push_back(
        fmt::format("{}: not there, and not needed: {} holds its tokenizer", fmt::join(missing, ", "), holder));
  }
  if (found.empty()) return;
  std::unique_ptr<data::Tokenizer> tokenizer;
  try {
    if (name == "gpt2" && is_file(vocabulary_file) && is_file(merge_file)) {
      tokenizer = data::make_gpt2_tokenizer(io::read_bpe_files(vocabulary_file, merge_file));
    } else if (name == "wordpiece" && is_file(vocabulary_file)) {
      data::WordPieceVocabulary vocabulary = data::wordpiece_from_payload(payload);
      vocabulary.tokens = io::read_wordpiece_file(vocabulary_file).tokens;
      tokenizer = data::make_wordpiece_tokenizer(std::move(vocabulary));
    } else if (name == "huggingface" && is_file(model_file)) {
      const data::BpeVocabulary held = data::bpe_from_payload(payload);
      const std::string& end = held.tokens.at(static_cast<std::size_t>(held.end_of_document));
      tokenizer = data::make_huggingface_tokenizer(io::read_huggingface_file(model_file, {end}));
    } else if (name == "sentencepiece" && is_file(model_file)) {
      tokenizer = io::read_sentence_piece(model_file);
    }
  } catch (const DataError& error) {
    throw DataError("{}: not the tokenizer {} that {} holds: {}. Leave the option out, or give its file",
                    fmt::join(found, ", "), name, holder, error.what());
  }
  if (tokenizer == nullptr) {
    lines.push_back(fmt::format("{} not checked against the tokenizer {} of {}: another kind of file",
                                fmt::join(found, ", "), name, holder));
    return;
  }
  TRIREME_CHECK(
      data::compare_tokenizers(tokenizer->name(), tokenizer->payload(), name, payload).same_ids, DataError,
      "{}: not the tokenizer {} that {} holds: {} tokens there, {} here, or different ones. Leave the option out, or "
      "give its file",
      fmt::join(found, ", "), name, holder, tokenizer->vocabulary_size(),
      data::tokenizer_from_payload(name, payload)->vocabulary_size());
}

}  // namespace trireme::app

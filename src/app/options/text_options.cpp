#include "src/app/options/text_options.hpp"

#include "io/huggingface/tokenizer_json.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "mpi/node.hpp"
#include "src/app/options/problems.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::app {
namespace {

/// Returns the result of `make`; prefixes its DataError with the names of the files.
template <class Make>
std::unique_ptr<data::Tokenizer> made_from(const std::string& files, const Make& make) {
  try {
    return make();
  } catch (const DataError& error) {
    throw DataError("{} do not make a tokenizer: {}", files, error.what());
  }
}

}  // namespace

void add_document_format(Options& options, const std::string& name, prepare::TextFormat* format,
                         const std::string& help) {
  using enum prepare::TextFormat;
  options.add_choice(name, format, {{"auto", by_name}, {"text", text}, {"lines", lines}, {"json", json_lines}}, help);
}

void add_text_format(Options& options, prepare::TextReaderOptions* reader) {
  using enum prepare::TextFormat;
  options.add_choice("input-format", &reader->format, {{"auto", by_name}, {"text", text}, {"json", json_lines}},
                     "Format of the input files; auto: by their names.");
  options.add("json-key,json-keys", &reader->json_key, "KEY,...",
              "Key of the text in each JSON object, or column: text, or meta.text in the object under meta. Texts of "
              "several keys, "
              "title,meta.text, make one document, with an empty line between them.");
}

void check_one_key(const std::string& json_key) {
  TRIREME_CHECK(json_key.find(',') == json_key.npos, ConfigError,
                "--json-key {}: the documents that are written have their text under one key. Try one of these",
                json_key);
}

void add_bad_lines(Options& options, bool* skip, std::int64_t* max_lines) {
  options.add_choice("on-bad-line", skip, {{"stop", false}, {"skip", true}},
                     "Lines that are not JSON or have no text under the key: an error, or skipped and counted.");
  options.add("max-bad-lines", max_lines, "N", "Bad lines to skip before failing.", at_least(0));
}

void add_workers(Options& options, std::optional<int>* workers) {
  options.add("workers", workers, "N", "Threads per rank; default its share of the machine's cores.", between(1, 4096));
}

int thread_count(const mpi::MpiCommunicator& world, std::optional<int> workers) {
  const int available = default_thread_count(mpi::find_node_location(world).ranks_sharing_cores);
  return workers.value_or(available);
}

void TokenizerOptions::declare(Options& options, Ids ids) {
  options.section("Tokens");
  std::vector<Choice<std::string>> choices;
  for (const char* name : {"bytes", "gpt2", "wordpiece", "huggingface", "sentencepiece"})
    choices.push_back({name, name});
  std::string help =
      "The 256 byte values, GPT-2's byte-level BPE, BERT's WordPiece, the BPE or unigram model of a tokenizer.json or "
      "tekken.json, or SentencePiece's tokenizer.model";
  if (ids == Ids::from_elsewhere) {
    choices.push_back({"null", "null"});
    help += "; null: an unknown tokenizer, the corpus then cannot be shown as text";
  }
  options.add_choice("tokenizer", &tokenizer, std::move(choices), help + ".");
  options.add("vocab-file", &vocabulary_file, "FILE",
              "GPT-2's vocabulary, encoder.json or vocab.json, or BERT's, vocab.txt.");
  options.add("merge-file", &merge_file, "FILE", "GPT-2's merges: vocab.bpe or merges.txt.");
  options.add("tokenizer-model", &model_file, "FILE",
              "Hugging Face's tokenizer.json, Mistral's tekken.json, or SentencePiece's tokenizer.model.");
  options.add("eod-token", &end_of_document, "TOKEN",
              "Token of tokenizer.json that ends documents; default <|endoftext|>, <|end_of_text|>, </s> or the "
              "eos_token beside it.");
  options.add_flag("cased", &cased,
                   "WordPiece: keep case and accents (Megatron-LM's BertWordPieceCase) instead of lower-casing "
                   "(BertWordPieceLowerCase).");
  options.add("max-word-characters", &max_word_characters, "N",
              "WordPiece: longer words become [UNK]. Default 100, as in Hugging Face; Megatron-LM has 200.",
              between(1, 65536));
  if (ids == Ids::from_elsewhere) {
    options.add("vocab-size", &vocabulary_size, "N", "With --tokenizer null: ids are 0 to N - 1.",
                between(1, 2147483648.0));
    options.add("eod-id", &end_of_document_id, "N",
                "With --tokenizer null: id that ends documents; default N - 1 of --vocab-size.", at_least(0));
  }
}

std::unique_ptr<data::Tokenizer> TokenizerOptions::make() const {
  const bool is_gpt2 = tokenizer == "gpt2", is_wordpiece = tokenizer == "wordpiece";
  const bool is_huggingface = tokenizer == "huggingface", is_sentence_piece = tokenizer == "sentencepiece";
  const bool is_null = tokenizer == "null", has_model = is_huggingface || is_sentence_piece;
  Problems problems;
  const auto check = [&](bool takes, bool needs, const char* option, const std::string& value,
                         const std::string& what) {
    problems.expect(takes || value.empty(), fmt::format("--tokenizer {} takes no --{}", tokenizer, option));
    problems.expect(!needs || !value.empty(), fmt::format("--tokenizer {} needs --{} ({})", tokenizer, option, what));
  };
  check(is_gpt2 || is_wordpiece, is_gpt2 || is_wordpiece, "vocab-file", vocabulary_file,
        is_wordpiece ? "vocab.txt" : "encoder.json or vocab.json");
  check(is_gpt2, is_gpt2, "merge-file", merge_file, "vocab.bpe or merges.txt");
  check(has_model, has_model, "tokenizer-model", model_file, is_huggingface ? "tokenizer.json" : "tokenizer.model");
  check(is_huggingface, false, "eod-token", end_of_document, "");
  problems.expect(!cased || is_wordpiece,
                  fmt::format("--tokenizer {} always keeps case: --cased is for wordpiece", tokenizer));
  problems.expect(
      !max_word_characters || is_wordpiece,
      fmt::format("--tokenizer {} has no limit on words: --max-word-characters is for wordpiece", tokenizer));
  problems.expect(is_null ? vocabulary_size.has_value() : !vocabulary_size && !end_of_document_id,
                  "--tokenizer null needs --vocab-size, and may have --eod-id; other tokenizers have neither");
  problems.report();

  if (is_null) return data::make_null_tokenizer(*vocabulary_size, end_of_document_id.value_or(*vocabulary_size - 1));
  if (is_gpt2) {
    data::BpeVocabulary vocabulary = io::read_bpe_files(vocabulary_file, merge_file);
    return made_from(fmt::format("{} and {}", vocabulary_file, merge_file),
                     [&] { return data::make_gpt2_tokenizer(std::move(vocabulary)); });
  }
  if (is_wordpiece) {
    data::WordPieceVocabulary vocabulary = io::read_wordpiece_file(vocabulary_file);
    vocabulary.lower_case = !cased;
    vocabulary.max_word_characters = max_word_characters.value_or(vocabulary.max_word_characters);
    return made_from("the lines of " + vocabulary_file,
                     [&] { return data::make_wordpiece_tokenizer(std::move(vocabulary)); });
  }
  if (is_sentence_piece) return io::read_sentence_piece(model_file);
  if (is_huggingface) return io::read_tokenizer_json(model_file, end_of_document);
  return data::make_byte_tokenizer();
}

}  // namespace trireme::app

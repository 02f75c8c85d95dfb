#include "src/app/commands/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/prepare_files.hpp"
#include "io/huggingface/tokenizer_json.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/named_inputs.hpp"
#include "src/app/options/text_files.hpp"
#include "src/app/options/text_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/data/tokenizer/bpe_trainer.hpp"
#include "src/data/tokenizer/split_words.hpp"
#include "src/prepare/text_reader.hpp"
#include "src/prepare/word_counting.hpp"

namespace trireme::app {
namespace {

struct TokenizerTrainOptions {
  prepare::WordCountingOptions counting;
  data::BpeTrainingOptions training;
  std::string output, pattern = "gpt2";
  bool keep_invalid_utf8 = false;
  std::optional<int> workers;

  void declare(Options& options) {
    options.section("Input and output");
    options.add("input", &counting.inputs, "FILE",
                "Text files, files of JSON lines (.json, .jsonl, .ndjson), one object per line, Parquet and Arrow; "
                "folders of them, "
                "patterns (*, ?, []), and - for standard input.");
    options.add("output", &output, "DIR",
                "Folder for vocab.json and merges.txt, or tokenizer.json; created if missing.");
    add_text_format(options, &counting.reader);
    options.section("Tokens");
    options.add("vocab-size", &training.vocabulary_size, "N", "Tokens: 256 bytes, merges and special tokens.",
                at_least(257));
    std::vector<Choice<std::string>> patterns;
    for (const auto& [name, steps] : data::named_splits()) patterns.push_back({name, name});
    options.add_choice(
        "pattern", &pattern, std::move(patterns),
        "Pattern that cuts text into words. With gpt2 the result is vocab.json and merges.txt, otherwise "
        "tokenizer.json.");
    options.add("min-frequency", &training.min_frequency, "N", "Minimum occurrences of a pair that becomes a token.",
                at_least(1));
    options.add(
        "special-tokens", &training.special_tokens, "TOKEN",
        "Tokens that never result from text, with the last ids. <|endoftext|>, which ends documents, must be first.");
    options.section("Bad input");
    options.add_choice("invalid-utf8", &keep_invalid_utf8, {{"refuse", false}, {"keep", true}},
                       "Bytes of text that are not UTF-8.");
    options.add("max-line,max-line-bytes", &counting.reader.max_bytes, "N",
                "Longest line, or longest text without white space.", at_least(1));
    options.section("Speed and memory");
    options.add("max-words", &counting.max_words, "N",
                "Distinct words kept while counting; beyond that, the rarest are dropped.", at_least(1000));
    add_workers(options, &workers);
    options.require({"input", "output"});
  }

  void check() const {
    const auto& special = training.special_tokens;
    TRIREME_CHECK(special.front() == "<|endoftext|>", ConfigError,
                  "--special-tokens starts with '{}'; the first must be <|endoftext|>, which ends documents",
                  special.front());
    for (const std::string& token : special) {
      TRIREME_CHECK(std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; }) && token.size() > 1,
                    ConfigError, "--special-tokens: '{}' is not two or more printable characters of ASCII", token);
      TRIREME_CHECK(std::ranges::count(special, token) == 1, ConfigError, "--special-tokens: '{}' occurs twice", token);
    }
  }
};

void log_counts(const prepare::CountedWords& counted, const prepare::WordCountingOptions& counting, double elapsed_s) {
  log::info("counted {} words, {} distinct ones, in {} bytes of text: {:.1f} s, {:.1f} MB/s", counted.occurrences,
            counted.words.size(), counted.text_bytes, elapsed_s,
            static_cast<double>(counted.text_bytes) / 1e6 / elapsed_s);
  if (counted.forgotten > 0) {
    log::warn("dropped rare words that occurred {} times in total: --max-words {} limits the distinct ones",
              counted.forgotten, counting.max_words);
  }
}

/// Throws ConfigError if a file of the tokenizer is one of the `inputs`, or if the folder has a tokenizer of the other
/// form, which a reader of the folder could take.
void check_folder(const std::string& folder, const std::string& pattern, const std::vector<std::string>& inputs) {
  std::vector<std::string> outputs;
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"}) {
    outputs.push_back(folder + "/" + name);
  }
  check_outputs(outputs, inputs);
  const std::vector<const char*> others =
      pattern == "gpt2" ? std::vector{"tokenizer.json"} : std::vector{"vocab.json", "merges.txt"};
  for (const char* other : others) {
    TRIREME_CHECK(
        !io::is_there(folder + "/" + other), ConfigError,
        "{} has {}, of another tokenizer, beside which --pattern {} would leave its own: name another --output", folder,
        other, pattern);
  }
}

/// Writes the files of a trained tokenizer into a folder. Returns their names.
std::string write_files(data::BpeVocabulary vocabulary, const std::vector<data::SplitStep>& splits,
                        const std::string& folder) {
  data::set_words(vocabulary, splits);
  if (vocabulary.splits.empty() && vocabulary.pattern == data::WordPattern::gpt2) {
    io::write_bpe_files(vocabulary, folder + "/vocab.json", folder + "/merges.txt");
    return "vocab.json and merges.txt";
  }
  for (auto id = vocabulary.end_of_document; id < std::ssize(vocabulary.tokens); ++id) vocabulary.special.push_back(id);
  const auto tokenizer = data::make_huggingface_tokenizer(std::move(vocabulary));
  constexpr std::int64_t no_limit = std::int64_t{1} << 30;
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& [name, text] : io::tokenizer_files(*tokenizer, tokenizer->vocabulary_size(), no_limit)) {
    files.insert(files.begin(), {folder + "/" + name, text});  // tokenizer.json is last
  }
  io::replace_together(files);
  return "tokenizer.json and tokenizer_config.json";
}

}  // namespace

int tokenizer_train_command(const CommandLine& line) {
  TokenizerTrainOptions o;
  Options options(
      line.command(),
      "Trains a byte-level BPE on texts: with GPT-2's pattern for --tokenizer gpt2 of trireme corpus build and for "
      "Hugging Face's GPT2Tokenizer, with another one for --tokenizer huggingface. The same texts give the same "
      "files.");
  o.declare(options);
  if (!line.read(options)) return 0;
  o.check();

  const NamedInputs inputs(o.counting.inputs, 1);
  std::error_code error;
  std::filesystem::create_directories(o.output, error);
  TRIREME_CHECK(!error, IoError, "cannot create the folder {}: {}", o.output, error.message());
  const io::FolderLock lock(o.output + "/.lock", o.output);
  check_folder(o.output, o.pattern, o.counting.inputs);
  o.counting.reader.check_utf8 = !o.keep_invalid_utf8;
  o.counting.reader.may_keep_bytes = true;
  o.counting.splits = std::ranges::find(data::named_splits(), o.pattern, &data::NamedSplits::name)->steps;
  ThreadPool pool(o.workers ? *o.workers : default_thread_count(1));
  const Timer timer;
  std::optional<ProgressBar> bar(std::in_place, "counting words", "MB", 1e6);
  const auto show = [&](std::int64_t done, std::int64_t total) { bar->update(done, total); };
  const prepare::CountedWords counted = prepare::count_words(io::prepare_files(), o.counting, pool, show);
  bar.reset();
  TRIREME_CHECK(!counted.words.empty(), DataError, "the input contains no text");
  log_counts(counted, o.counting, timer.elapsed_s());
  bar.emplace("merging", "merges", 1);
  data::BpeVocabulary vocabulary = data::train_bpe(counted.words, o.training, show);
  bar.reset();
  const std::size_t tokens = vocabulary.tokens.size();
  log::info("{}: {}, {} tokens, {:.1f} s", o.output, write_files(std::move(vocabulary), o.counting.splits, o.output),
            tokens, timer.elapsed_s());
  if (static_cast<std::int64_t>(tokens) < o.training.vocabulary_size) {
    log::warn("{} tokens, not {}: no further pair occurs --min-frequency {} times", tokens, o.training.vocabulary_size,
              o.training.min_frequency);
  }
  return 0;
}

namespace {

/// Common part of encode and decode: a tokenizer, by options or from a corpus, and an input.
struct Look {
  TokenizerOptions tokens;
  std::string input = "-";
  std::string corpus;

  void declare(Options& options, const char* what) {
    options.section("Input");
    options.add("input", &input, "FILE", what);
    tokens.declare(options);
    options.add("data-path", &corpus, "FILE.h5", "Use the tokenizer of this corpus instead.");
  }

  std::unique_ptr<data::Tokenizer> tokenizer(const Options& options) const {
    if (corpus.empty()) return tokens.make();
    TRIREME_CHECK(!options.given("tokenizer"), ConfigError,
                  "--data-path already has a tokenizer: leave out --tokenizer");
    const io::CorpusStore store(corpus);
    return data::tokenizer_from_payload(store.info().tokenizer, store.info().tokenizer_payload);
  }

  std::string text() const {
    std::FILE* const file = input == "-" ? stdin : std::fopen(input.c_str(), "rb");
    TRIREME_CHECK(file != nullptr, IoError, "cannot open {}", input);
    std::string bytes;
    char buffer[65536];
    for (std::size_t got; (got = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) bytes.append(buffer, got);
    const bool failed = std::ferror(file) != 0;
    if (file != stdin) std::fclose(file);
    TRIREME_CHECK(!failed, IoError, "cannot read {}", input);
    return bytes;
  }
};

}  // namespace

int tokenizer_encode_command(const CommandLine& line) {
  Look look;
  bool pieces = false;
  Options options(line.command(), "Prints the token ids of a text.");
  look.declare(options, "The text; - for standard input.");
  options.add_flag("pieces", &pieces, "Print a line per token: its id and its bytes.");
  if (!line.read(options)) return 0;
  const auto tokenizer = look.tokenizer(options);
  std::vector<std::int32_t> ids;
  const std::string text = look.text();
  prepare::check_is_text(look.input == "-" ? "standard input" : look.input, text);
  tokenizer->encode(text, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (pieces) {
      std::string bytes;
      tokenizer->decode_continuation({&ids[i], 1}, bytes);
      fmt::print("{:>6} {}\n", ids[i], printable(bytes));
    } else {
      fmt::print("{}{}", i == 0 ? "" : " ", ids[i]);
    }
  }
  if (!pieces) fmt::print("\n");
  return 0;
}

int tokenizer_decode_command(const CommandLine& line) {
  Look look;
  Options options(line.command(), "Prints the bytes of token ids, and nothing else.");
  look.declare(options, "Token ids, separated by white space; - for standard input.");
  if (!line.read(options)) return 0;
  const auto tokenizer = look.tokenizer(options);
  const std::string text = look.text();
  std::vector<std::int32_t> ids;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    if (*at == ' ' || (*at >= '\t' && *at <= '\r')) {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    const bool ends = next == end || *next == ' ' || (*next >= '\t' && *next <= '\r');
    TRIREME_CHECK(error == std::errc{} && ends, DataError, "{}: '{}', at byte {}, is not a token id", look.input,
                  printable(std::string(at, std::min<std::ptrdiff_t>(end - at, 20))), at - text.data());
    ids.push_back(id);
    at = next;
  }
  std::string bytes;
  tokenizer->decode(ids, bytes);
  TRIREME_CHECK(std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size(), IoError, "cannot write the text");
  return 0;
}

}  // namespace trireme::app

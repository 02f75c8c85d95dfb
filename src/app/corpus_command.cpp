#include "src/app/corpus_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "io/corpus_builder.hpp"
#include "io/corpus_store.hpp"
#include "src/app/corpus_files_command.hpp"
#include "src/app/options.hpp"
#include "src/app/printable.hpp"
#include "src/app/progress_bar.hpp"
#include "src/app/tokenizer_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/data/sentence_splitter.hpp"

namespace trireme::app {
namespace {

constexpr const char* usage =
    "Usage: trireme corpus clean|overlap|build|inspect|verify|merge|split|sample|import|export [OPTION]...\n"
    "Tokenized corpora for training, in HDF5, and the text before.\n\n"
    "  clean    copy text without short documents, duplicates and near duplicates\n"
    "  overlap  count the n-grams of test sets that occur in text; copy it without them\n"
    "  build    tokenize text or JSON lines into a corpus\n"
    "  inspect  print what a corpus holds\n"
    "  verify   read a whole corpus and check it; exit code 3 where it is damaged\n"
    "  merge    put several corpora into one\n"
    "  split    cut a corpus into files for training, validation and test\n"
    "  sample   take a random share of a corpus' documents\n"
    "  import   read the token files of Megatron-LM or llm.c\n"
    "  export   write the token files of Megatron-LM\n\n"
    "trireme corpus COMMAND --help explains each.\n";

int build(const std::vector<std::string>& arguments) {
  io::CorpusBuildOptions build;
  TokenizerOptions tokens;
  bool keep_invalid_utf8 = false;
  std::optional<int> workers;

  Options options(
      "trireme corpus build",
      "Tokenizes text into one HDF5 corpus, with as many threads as there are cores, in memory that does not "
      "grow with the text.");
  options.section("Input and output");
  options.add("input", &build.inputs, "FILE",
              "Text files, a document each, and files of JSON lines (.json, .jsonl, .ndjson), an object a line; "
              "plain or compressed (gzip, Zstandard).");
  options.add("output", &build.output, "FILE.h5", "The corpus. It gets this name when it is whole.");
  options.add_choice(
      "input-format", &build.reader.format,
      {{"auto", io::TextFormat::by_name}, {"text", io::TextFormat::text}, {"json", io::TextFormat::json_lines}},
      "What the input files are; auto goes by their names.");
  options.add("json-key,json-keys", &build.reader.json_key, "KEY", "Key of the text in each JSON object.");
  tokens.declare(options);
  options.add_flag("append-eod", &build.append_end_of_document, "End every document with the end-of-document token.");
  options.add_flag("split-sentences", &build.split_sentences,
                   "Keep where sentences begin, for BERT; the tokens stay those of the text.");
  options.section("Bad input");
  options.add_choice("invalid-utf8", &keep_invalid_utf8, {{"refuse", false}, {"keep", true}},
                     "Bytes of text that are not UTF-8; the byte tokenizer always keeps them. JSON is always UTF-8.");
  options.add_choice("on-bad-line", &build.skip_bad_lines, {{"stop", false}, {"skip", true}},
                     "Lines that are not JSON or have no text under the key.");
  options.add("max-bad-lines", &build.greatest_bad_lines, "N", "Bad lines to skip before giving up.", at_least(0));
  options.add("max-line", &build.reader.greatest_bytes, "BYTES", "Longest line of JSON; a longer one is refused.",
              at_least(1));
  options.section("Speed");
  options.add("workers", &workers, "N", "Threads; by default as many as there are cores.", between(1, 4096));
  options.require("input");
  options.require("output");
  if (!options.parse(arguments)) return 0;

  const auto tokenizer = tokens.make();
  build.reader.can_cut = [&](std::string_view text, std::size_t at) { return tokenizer->can_cut(text, at); };
  if (build.split_sentences) build.reader.can_cut = data::SentenceSplitter::ends_before;
  build.reader.check_utf8 = !keep_invalid_utf8 && tokens.tokenizer != "bytes";
  ThreadPool pool(workers ? *workers : default_thread_count(1));
  const Timer timer;
  std::optional<ProgressBar> bar(std::in_place, "tokenizing", "MB", 1e6);
  const io::CorpusBuildReport report = io::build_corpus(
      build, *tokenizer, pool, [&](std::int64_t done, std::int64_t total) { bar->update(done, total); });
  const double elapsed_s = timer.elapsed_s();
  bar.reset();
  for (const std::string& line : report.first_bad_lines) log::warn("skipped {}", line);
  if (report.bad_lines > 0) log::warn("skipped {} bad lines in all", report.bad_lines);
  if (report.cut_runs > 0) {
    log::warn("cut {} runs of more than {} bytes without a place between two words; their tokens may differ there",
              report.cut_runs, build.reader.greatest_run_bytes);
  }
  if (report.empty_documents > 0) log::info("left out {} empty documents", report.empty_documents);
  log::info("{}: {} documents, {} tokens from {} bytes of text, {:.3f} bytes/token, {:.1f} s, {:.1f} MB/s",
            build.output, report.documents, report.tokens, report.text_bytes,
            static_cast<double>(report.text_bytes) / static_cast<double>(report.tokens), elapsed_s,
            static_cast<double>(report.text_bytes) / 1e6 / elapsed_s);
  return 0;
}

std::vector<std::int32_t> ids_in(const data::TokenStore& store, std::int64_t begin, std::int64_t end) {
  return std::visit(
      [&](const auto& tokens) {
        const auto part = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        return std::vector<std::int32_t>(part.begin(), part.end());
      },
      store.tokens());
}

int inspect(const std::vector<std::string>& arguments) {
  std::string path;
  std::int64_t documents_shown = 3;
  std::int64_t tokens_shown = 48;
  Options options("trireme corpus inspect", "Prints what a corpus holds and how its first documents begin.");
  options.add_argument("FILE.h5", &path, "A corpus that trireme corpus build made.");
  options.add("documents", &documents_shown, "N", "Documents to show.", at_least(0));
  options.add("tokens", &tokens_shown, "N", "Tokens of each to show.", at_least(0));
  if (!options.parse(arguments)) return 0;

  const io::CorpusStore store(path);
  const data::CorpusInfo& info = store.info();
  const auto offsets = store.document_offsets();
  std::int64_t shortest = store.documents() > 0 ? store.token_count() : 0;
  std::int64_t longest = 0;
  for (std::int64_t d = 0; d < store.documents(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    shortest = std::min(shortest, offsets[i + 1] - offsets[i]);
    longest = std::max(longest, offsets[i + 1] - offsets[i]);
  }
  const double mean =
      store.documents() > 0 ? static_cast<double>(store.token_count()) / static_cast<double>(store.documents()) : 0;
  const int token_bits = std::holds_alternative<std::span<const std::uint16_t>>(store.tokens()) ? 16 : 32;
  fmt::print("file             {}\n", path);
  fmt::print("documents        {}\n", store.documents());
  fmt::print("tokens           {}, {} bits each\n", store.token_count(), token_bits);
  fmt::print("document length  {} to {} tokens, mean {:.1f}\n", shortest, longest, mean);
  if (const auto sentences = store.sentence_offsets(); !sentences.empty()) {
    fmt::print("sentences        {}, mean {:.1f} tokens\n", sentences.size() - 1,
               static_cast<double>(store.token_count()) / static_cast<double>(sentences.size() - 1));
  }
  fmt::print("tokenizer        {}, {} ids, digest {}\n", info.tokenizer, info.vocabulary_size, info.tokenizer_digest);
  fmt::print("end of document  {}\n", info.end_of_document);
  fmt::print("greatest id      {}\n", info.greatest_id);
  fmt::print("content digest   {}\n", info.content_digest);
  const auto tokenizer = data::tokenizer_from_payload(info.tokenizer, info.tokenizer_payload);
  for (std::int64_t d = 0; d < std::min(documents_shown, store.documents()); ++d) {
    const std::int64_t begin = offsets[static_cast<std::size_t>(d)];
    const std::int64_t end = offsets[static_cast<std::size_t>(d) + 1];
    std::string text;
    tokenizer->decode(ids_in(store, begin, std::min(end, begin + tokens_shown)), text);
    fmt::print("\ndocument {}, {} tokens: {}{}\n", d, end - begin, printable(text),
               end - begin > tokens_shown ? " ..." : "");
  }
  return 0;
}

int verify(const std::vector<std::string>& arguments) {
  std::string path;
  Options options("trireme corpus verify", "Reads a whole corpus and checks it against its digests.");
  options.add_argument("FILE.h5", &path, "A corpus that trireme corpus build made.");
  if (!options.parse(arguments)) return 0;
  const io::CorpusStore store(path);
  store.verify();
  fmt::print("{} is whole: {} documents, {} tokens, digest {}\n", path, store.documents(), store.token_count(),
             store.info().content_digest);
  return 0;
}

}  // namespace

int corpus_command(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments.front();
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (command == "build") return build(rest);
  if (command == "inspect") return inspect(rest);
  if (command == "verify") return verify(rest);
  if (command == "merge") return corpus_merge(rest);
  if (command == "split") return corpus_split(rest);
  if (command == "sample") return corpus_sample(rest);
  if (command == "import") return corpus_import(rest);
  if (command == "export") return corpus_export(rest);
  if (command == "--help" || command == "-h") {
    std::fputs(usage, stdout);
    return 0;
  }
  throw ConfigError(
      "{}: clean, overlap, build, inspect, verify, merge, split, sample, import or export must follow\n"
      "see trireme corpus --help",
      command.empty() ? "trireme corpus does nothing by itself"
                      : fmt::format("there is no command trireme corpus {}", command));
}

}  // namespace trireme::app

#include "src/app/commands/commands.hpp"

#include <fmt/ranges.h>
#include <malloc.h>

#include <optional>

#include "io/corpus/prepare_files.hpp"
#include "io/huggingface/special_tokens_json.hpp"
#include "src/app/job/chat_templates.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/options/named_inputs.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/options/text_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/base/timer.hpp"
#include "src/data/text/sentence_splitter.hpp"
#include "src/prepare/corpus_builder.hpp"

namespace trireme::app {
namespace {

struct BuildCommandOptions {
  prepare::CorpusBuildOptions build;
  TokenizerOptions tokens;
  bool keep_invalid_utf8 = false, prepend_bos = false, chat = false;
  std::string chat_template;
  std::optional<int> workers;

  void declare(Options& options) {
    prepare::TextReaderOptions& reader = build.text.reader;
    options.section("Input and output");
    options.add("input", &build.inputs, "FILE",
                "Text files, one document each, and files of JSON lines (.json, .jsonl, .ndjson), one object per line; "
                "plain or compressed (gzip, Zstandard, bzip2, xz); Parquet and Arrow, a document in each row. A folder "
                "stands for its files, a pattern (*, ?, []) "
                "for those that match, and - for standard input.");
    options.add(
        "output", &build.output, "FILE.h5",
        "The corpus. It gets this name once it is complete; until then FILE.h5.parts holds the finished parts.");
    add_text_format(options, &reader);
    tokens.declare(options);
    options.add_flag("append-eod", &build.text.append_end_of_document,
                     "End every document with the end-of-document token.");
    options.add_flag("prepend-bos", &prepend_bos,
                     "Begin every document with the token that begins texts: the BOS of tokenizer.json's folder.");
    options.add_choice("special-tokens-in-text", &build.text.special_names,
                       {{"text", prepare::SpecialNames::text},
                        {"parse", prepare::SpecialNames::parse},
                        {"refuse", prepare::SpecialNames::refuse}},
                       "Names of special tokens in the text (<|endoftext|>, [SEP]): ordinary text, these tokens, or an "
                       "error. The log counts them.");
    options.add_flag(
        "split-sentences", &build.text.split_sentences,
        "Store sentence boundaries, for BERT. With bytes, gpt2 and wordpiece the tokens stay those of the text.");
    options.add_flag("chat", &chat,
                     "Lines of JSON are conversations, with \"messages\" or \"conversations\" and optionally "
                     "\"tools\". The chat template in the folder of tokenizer.json writes each as a document, of which "
                     "the assistant's words are learned.");
    options.add("chat-template", &chat_template, "NAME|FILE",
                "Template of Jinja for --chat instead of the tokenizer's default: another of its templates by name, or "
                "a file.");
    options.section("Bad input");
    options.add_choice("invalid-utf8", &keep_invalid_utf8, {{"refuse", false}, {"keep", true}},
                       "Bytes of text that are not UTF-8; the byte tokenizer always keeps them. JSON must be UTF-8.");
    add_bad_lines(options, &build.text.skip_bad_lines, &build.text.max_bad_lines);
    options.add("max-line", &reader.max_bytes, "BYTES",
                "Longest line of JSON, which is held in memory; longer ones are refused. Lines of text may have any "
                "length.",
                at_least(1));
    options.section("Speed");
    add_workers(options, &workers);
    options.add(
        "part-size", &build.part_bytes, "BYTES",
        "Size of the parts into which the input is split. Ranks process them one by one, and a stopped build keeps "
        "the finished ones.",
        at_least(1));
    options.require({"input", "output"});
  }

  void settle(const Options& options) {
    Problems problems;
    problems.need(options, {"chat-template"}, chat, "--chat");
    for (const char* name : {"input-format", "json-key", "append-eod", "prepend-bos", "special-tokens-in-text",
                             "split-sentences", "invalid-utf8"}) {
      problems.exclude(!chat || !options.requested(name), "chat", name,
                       "the chat template makes each line of JSON a document, with all its special tokens");
    }
    problems.report();
    if (!chat) return;
    build.text.reader.format = prepare::TextFormat::json_lines;
    build.text.reader.whole_rows = true;
  }
};

void log_report(const prepare::CorpusBuildOptions& build, const prepare::CorpusBuildReport& report, double elapsed_s) {
  const prepare::CorpusTextCounts& counts = report.counts;
  for (const std::string& line : counts.first_bad_lines) log::warn("skipped {}", line);
  if (counts.bad_lines > 0) log::warn("skipped {} bad lines in total", counts.bad_lines);
  if (counts.forced_cuts > 0) {
    log::warn("cut {} texts of more than {} bytes without a word boundary; their tokens may differ there",
              counts.forced_cuts, build.text.reader.max_uncut_bytes);
  }
  if (!counts.special_tokens.empty()) {
    std::vector<std::string> found;
    for (const auto& [spelling, count] : counts.special_tokens) found.push_back(fmt::format("{} {}", count, spelling));
    const bool parses = build.text.special_names == prepare::SpecialNames::parse;
    log::warn("the text contains names of special tokens, which became {}: {}",
              parses ? "these tokens" : "ordinary text", fmt::join(found, ", "));
  }
  if (build.text.chat) {
    log::info("{} of {} tokens are learned: the words of the assistant", counts.learned_tokens, report.tokens);
    if (counts.learned_stops == 0) {
      log::warn(
          "none of these ends a text, so a model does not learn to end its answers: let the chat template write "
          "the end of a turn within the assistant's words, and let generation_config.json name that token");
    }
  }
  if (report.sentences > 0) log::info("stored the boundaries of {} sentences", report.sentences);
  if (counts.empty_documents > 0) log::info("dropped {} empty documents", counts.empty_documents);
  log::info("{}: {}, {} tokens from {} bytes of text, {:.3f} bytes/token, {:.1f} s (joining {:.2f} s), {:.1f} MB/s",
            build.output, counted(report.documents, "document"), report.tokens, counts.text_bytes,
            static_cast<double>(counts.text_bytes) / static_cast<double>(report.tokens), elapsed_s, report.join_s,
            static_cast<double>(counts.text_bytes) / 1e6 / elapsed_s);
}

/// Lets the allocator reuse the memory of one batch of text for the next. By default it returns blocks of a megabyte to
/// the system, which then clears every page again: a quarter of the processor time.
void keep_freed_memory() {
  constexpr int max_block_bytes = 32 << 20, max_kept_bytes = 128 << 20;
  mallopt(M_MMAP_THRESHOLD, max_block_bytes);
  mallopt(M_TRIM_THRESHOLD, max_kept_bytes);
}

}  // namespace

int corpus_build_command(const CommandLine& line) {
  BuildCommandOptions o;
  Options options(
      line.command(),
      "Tokenizes text into one HDF5 corpus, with a thread per core, in memory that does not grow with the text. Under "
      "mpirun the ranks share the work, whatever the number of files; the corpus is the same on any number of ranks. "
      "Run again, a stopped build resumes.");
  o.declare(options);
  if (!line.read(options)) return 0;
  o.settle(options);
  keep_freed_memory();

  const auto world = line.environment().make_world();
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::optional<ChatTemplates> templates;
  std::optional<NamedInputs> inputs;
  collectively(*world, [&] {
    inputs.emplace(o.build.inputs, world->size());
    tokenizer = o.tokens.make();
    if (o.chat) {
      templates.emplace(*tokenizer, o.chat_template);
      o.build.text.chat = {
          .render = [&](std::string_view text,
                        const std::string& where) { return templates->learned(io::parse_chat(text, where), where); },
          .digest = templates->digest()};
      if (!o.chat_template.empty()) {  // models of this corpus answer by its template
        data::SpecialTokens special = tokenizer->special();
        special.files[io::chat_template_name] = templates->default_text();
        tokenizer->set_special(std::move(special));
      }
    }
    if (!o.prepend_bos) return;
    o.build.text.beginning = tokenizer->special().beginning();
    TRIREME_CHECK(o.build.text.beginning, ConfigError,
                  "--prepend-bos: the tokenizer {} names no token that begins texts. Leave the option out, or give a "
                  "tokenizer.json whose post-processor or tokenizer_config.json names one",
                  o.tokens.tokenizer);
  });
  prepare::TextReaderOptions& reader = o.build.text.reader;
  const data::SpecialTokenParser parser(*tokenizer);
  const bool parses = o.build.text.special_names == prepare::SpecialNames::parse;
  reader.can_cut = [&](std::string_view text, std::size_t at) {
    return parses ? parser.can_cut(text, at) : tokenizer->can_cut(text, at);
  };
  if (o.build.text.split_sentences) reader.can_cut = data::is_sentence_end;
  reader.check_utf8 = !o.keep_invalid_utf8 && o.tokens.tokenizer != "bytes";
  reader.may_keep_bytes = true;
  ThreadPool pool(thread_count(*world, o.workers));
  const Timer timer;
  LoggedProgress progress("tokenizing", "tokenized", "MB", 1e6);
  const prepare::CorpusBuildReport report =
      prepare::build_corpus(io::prepare_files(), o.build, *tokenizer, pool, *world,
                            [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  progress.end();
  if (world->rank() == 0) log_report(o.build, report, timer.elapsed_s());
  return 0;
}

}  // namespace trireme::app

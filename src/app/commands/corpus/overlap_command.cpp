#include "src/app/commands/commands.hpp"

#include <fmt/format.h>

#include <optional>

#include "io/corpus/prepare_files.hpp"
#include "io/json/json_text.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/options/named_inputs.hpp"
#include "src/app/options/text_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/prepare/corpus_overlap.hpp"

namespace trireme::app {
namespace {

struct OverlapCommandOptions {
  prepare::CorpusOverlapOptions overlap;
  std::optional<int> workers;

  void declare(Options& options) {
    options.section("Input");
    options.add(
        "corpus,input", &overlap.inputs, "FILE",
        "The corpus: files of JSON lines (.json, .jsonl, .ndjson), one object per line, Parquet and Arrow, and text "
        "files, one document each.");
    options.add("test", &overlap.tests, "FILE", "Test sets, in the same formats, each with its own figures.");
    options.add("ngram", &overlap.n, "N", "Words of an n-gram, in lower case, split at white space, with punctuation.",
                between(1, 1000));
    const std::string help = "; auto: by their names; lines: each line of text is a document.";
    add_document_format(options, "input-format", &overlap.reader.format, "Format of the corpus' files" + help);
    add_document_format(options, "test-format", &overlap.test_reader.format, "Format of the test sets" + help);
    options.add("json-key,json-keys", &overlap.reader.json_key, "KEY",
                "Key of the text in each JSON object of the corpus.");
    options.add("test-json-key", &overlap.test_reader.json_key, "KEY",
                "Key of the text in each JSON object of the test sets.");
    options.add("max-line", &overlap.reader.max_bytes, "N", "Longest line or document.", at_least(1));
    options.section("Removal");
    options.add("output", &overlap.output, "FILE.jsonl",
                "The corpus without the passages that occur in a test set, in order, one document per remaining piece; "
                "compressed as FILE.jsonl.gz, .zst, .bz2 or .xz. The file gets this name once it is complete.");
    options.add("margin", &overlap.removal.margin, "N",
                "Characters removed on either side of a passage, extended to the end of the sentence.", at_least(0));
    options.add("min-piece", &overlap.removal.min_piece, "N", "Minimum characters of a piece to keep.", at_least(1));
    options.add("max-cuts", &overlap.removal.max_cuts, "N", "Remove entire documents with more passages than this.",
                at_least(0));
    options.section("Speed");
    add_workers(options, &workers);
    options.require({"corpus", "test"});
  }

  void check(const Options& options) {
    for (const char* name : {"margin", "min-piece", "max-cuts"}) {
      TRIREME_CHECK(!overlap.output.empty() || !options.given(name), ConfigError, "--{} needs --output", name);
    }
    if (!overlap.output.empty()) check_one_key(overlap.reader.json_key);
    overlap.test_reader.max_bytes = overlap.reader.max_bytes;
  }
};

}  // namespace

int corpus_overlap_command(const CommandLine& line) {
  OverlapCommandOptions o;
  Options options(
      line.command(),
      "Counts the distinct n-grams of test sets that occur in a corpus of text, and optionally writes the corpus "
      "without them. Prints a line of JSON per test set. Under mpirun the ranks share the work; the result is the "
      "same. Memory grows with the test sets.");
  o.declare(options);
  if (!line.read(options)) return 0;
  o.check(options);

  const auto world = line.environment().make_world();
  check_same_options(*world, options);
  std::optional<NamedInputs> inputs;
  collectively(*world, [&] { inputs.emplace(o.overlap.inputs, world->size()); });
  ThreadPool pool(thread_count(*world, o.workers));
  const Timer timer;
  std::optional<ProgressBar> bar;
  if (world->rank() == 0) bar.emplace("comparing", "MB", 1e6);
  const prepare::CorpusOverlapReport report =
      prepare::corpus_overlap(io::prepare_files(), o.overlap, *world, pool, [&](std::int64_t done, std::int64_t total) {
        if (bar) bar->update(done, total);
      });
  bar.reset();
  if (world->rank() != 0) return 0;
  for (std::size_t t = 0; t < report.tests.size(); ++t) {
    const prepare::TestOverlap& test = report.tests[t];
    fmt::print("{}\n", io::overlap_line(o.overlap.tests[t], o.overlap.n, test));
  }
  log::info("{} documents, {:.1f} MB in {:.1f} s, {:.1f} MB/s: {} have an n-gram of a test set", report.documents,
            static_cast<double>(report.input_bytes) / 1e6, timer.elapsed_s(),
            static_cast<double>(report.input_bytes) / 1e6 / timer.elapsed_s(), report.affected_documents);
  if (!o.overlap.output.empty()) {
    log::info("{}: {} documents; nothing is left of {}", o.overlap.output, report.written_documents,
              report.removed_documents);
  }
  return 0;
}

}  // namespace trireme::app

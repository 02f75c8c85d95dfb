#include "src/app/commands/commands.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <optional>

#include "io/corpus/prepare_files.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/options/named_inputs.hpp"
#include "src/app/options/text_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/prepare/corpus_cleaner.hpp"

namespace trireme::app {
namespace {

struct CleanCommandOptions {
  prepare::CorpusCleanOptions clean;
  TokenizerOptions tokenizer;
  std::string languages;
  std::optional<int> workers;

  void declare(Options& options) {
    options.section("Input and output");
    options.add(
        "input", &clean.inputs, "FILE",
        "Files of JSON lines (.json, .jsonl, .ndjson), one object per line, and text files, one document each.");
    options.add("output", &clean.output, "FILE.jsonl",
                "Remaining documents, in order, as their original lines of JSON; compressed as FILE.jsonl.gz, "
                ".zst, .bz2 or .xz. The file gets this name once it is complete.");
    options.add("report", &clean.report, "FILE.jsonl",
                "Removed documents and the reasons, one object per document; compressed likewise.");
    add_document_format(options, "input-format", &clean.reader.format,
                        "Format of the input files; auto: by their names; lines: each line of text is a document.");
    options.add("json-key,json-keys", &clean.reader.json_key, "KEY", "Key of the text in each JSON object.");
    options.add("id-key", &clean.id_key, "KEY", "Key of the documents' names, for the report.");
    options.add("max-line", &clean.reader.max_bytes, "N", "Longest line or document.", at_least(1));
    add_bad_lines(options, &clean.skip_bad_lines, &clean.max_bad_lines);
    options.section("Characters and languages");
    options.add_choice(
        "unicode", &clean.unicode,
        {{"keep", prepare::UnicodeForm::as_it_is},
         {"nfc", prepare::UnicodeForm::nfc},
         {"repair", prepare::UnicodeForm::repaired}},
        "keep: unchanged characters. nfc: compose letters and their marks (NFC). repair: also restore UTF-8 that was "
        "decoded as windows-1252 or Latin-1, and remove control characters.");
    options.add("language", &languages, "LANG,...",
                "Keep only documents that CLD2 identifies as one of these languages (ISO 639 codes: en,de,zh); default "
                "all.");
    options.add("language-confidence", &clean.min_language_fraction, "X",
                "Minimum fraction of a document's letters that CLD2 attributes to these languages.", between(0, 1));
    options.section("Short documents");
    options.add("min-tokens", &clean.min_tokens, "N",
                "Remove documents of fewer tokens; 0: remove none, without a tokenizer.", at_least(0));
    tokenizer.declare(options);
    options.section("Duplicates");
    options.add("jaccard", &clean.jaccard, "J",
                "Jaccard similarity of shingle sets above which documents are duplicates; the first of each cluster "
                "stays. 1: only documents of equal text are duplicates.",
                between(0, 1));
    options.add_choice("shingle-unit", &clean.shingles.unit,
                       {{"char", data::ShingleUnit::characters}, {"word", data::ShingleUnit::words}},
                       "Unit of shingles.");
    options.add("shingle-size,ngram", &clean.shingles.size, "N", "Successive characters or words of a shingle.",
                between(1, 1000));
    options.add_choice(
        "normalize", &clean.shingles.folding,
        {{"none", data::ShingleFolding::none}, {"case-and-space", data::ShingleFolding::case_and_white_space}},
        "For the comparison only: the unchanged text, or lower case with white space collapsed to one space.");
    options.add("bands", &clean.minhash.bands, "B",
                "Bands of the MinHash signature: documents are compared if one band agrees.", between(1, 10000));
    options.add("rows", &clean.minhash.rows, "R",
                "Hash functions per band. A pair of similarity J is found with probability 1 - (1 - J^R)^B.",
                between(1, 1000));
    options.add("bucket-neighbours", &clean.neighbours, "N",
                "Earlier documents with an equal band that each document is compared with.", at_least(1));
    options.add("seed", &clean.minhash.seed, "N", "Seed of the hash functions.");
    options.section("Speed");
    add_workers(options, &workers);
    options.require({"input", "output"});
  }

  void check(const Options& options) {
    TRIREME_CHECK(!options.given("language-confidence") || options.given("language"), ConfigError,
                  "--language-confidence {} needs --language", clean.min_language_fraction);
    check_one_key(clean.reader.json_key);
    for (const std::string_view code : split(languages, ',')) clean.languages.emplace_back(code);
    TRIREME_CHECK(!options.given("language") || !clean.languages.empty(), ConfigError,
                  "--language is empty. Try --language en, or leave it out to keep all");
  }
};

void print_summary(const prepare::CorpusCleanOptions& options, const prepare::CorpusCleanReport& report) {
  const auto percent = [&](std::int64_t documents) {
    return 100.0 * static_cast<double>(documents) / static_cast<double>(report.documents);
  };
  const double input_mb = static_cast<double>(report.input_bytes) / 1e6;
  log::info("{} documents, {:.1f} MB: {} kept in {}", report.documents, input_mb, report.kept_documents,
            options.output);
  for (const std::string& line : report.first_bad_lines) log::warn("skipped {}", line);
  if (report.bad_lines > 0) log::warn("skipped {} bad lines in total", report.bad_lines);
  if (options.unicode != prepare::UnicodeForm::as_it_is) {
    log::info("changed characters of {} documents ({:.2f}%)", report.changed_documents,
              percent(report.changed_documents));
  }
  if (!options.languages.empty()) {
    log::info("removed {} in other languages than {} ({:.2f}%)", report.foreign_documents,
              fmt::join(options.languages, ", "), percent(report.foreign_documents));
  }
  log::info("removed {} of fewer than {} tokens ({:.2f}%), {} exact ({:.2f}%) and {} near duplicates ({:.2f}%)",
            report.short_documents, options.min_tokens, percent(report.short_documents), report.exact_duplicates,
            percent(report.exact_duplicates), report.near_duplicates, percent(report.near_duplicates));
  if (options.jaccard < 1) {
    const double chance = 1 - std::pow(1 - std::pow(options.jaccard, options.minhash.rows), options.minhash.bands);
    log::info("compared {} pairs of documents; {} bands of {} find a pair of similarity {} with probability {:.4f}",
              report.compared_pairs, options.minhash.bands, options.minhash.rows, options.jaccard, chance);
  }
  log::info("{} bytes of memory a document; reading {:.1f} s ({:.1f} MB/s), duplicates {:.1f} s, writing {:.1f} s",
            report.state_bytes, report.read_s, input_mb / report.read_s, report.search_s, report.write_s);
}

}  // namespace

int corpus_clean_command(const CommandLine& line) {
  CleanCommandOptions o;
  Options options(
      line.command(),
      "Copies text to one file of JSON lines without short documents, documents of equal text and near duplicates. "
      "These are found by MinHash and locality-sensitive hashing, and confirmed by exact Jaccard similarity. Under "
      "mpirun the ranks share the work; the result is the same. Memory grows with the number of documents, not with "
      "their length. Meanwhile a second copy of the text is on disk, in OUTPUT.partial.");
  o.declare(options);
  if (!line.read(options)) return 0;
  o.check(options);

  const auto world = line.environment().make_world();
  check_same_options(*world, options);
  std::optional<NamedInputs> inputs;
  collectively(*world, [&] { inputs.emplace(o.clean.inputs, world->size()); });
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (o.clean.min_tokens > 0) {
    collectively(*world, [&] { tokenizer = o.tokenizer.make(); });
  }
  ThreadPool pool(thread_count(*world, o.workers));
  std::optional<ProgressBar> bar;
  if (world->rank() == 0) bar.emplace("cleaning", "MB", 1e6);
  const auto show = [&](std::int64_t done, std::int64_t total) {
    if (bar) bar->update(done, total);
  };
  const prepare::CorpusCleanReport report =
      prepare::clean_corpus(io::prepare_files(), o.clean, tokenizer.get(), *world, pool, show);
  bar.reset();
  if (world->rank() == 0) print_summary(o.clean, report);
  return 0;
}

}  // namespace trireme::app

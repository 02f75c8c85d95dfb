#include "src/app/commands/commands.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "io/corpus/prepare_files.hpp"
#include "io/json/chat_json.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/options/named_inputs.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/options/text_files.hpp"
#include "src/app/options/text_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/prepare/corpus_cleaner.hpp"

namespace trireme::app {
namespace {

struct CleanCommandOptions {
  CleanCommandOptions() { clean.filters.min_tokens = 128; }

  prepare::CorpusCleanOptions clean;
  TokenizerOptions tokenizer;
  std::string languages, quality_filters, quality_bounds, blocked_urls, blocked_titles, blocked_words, classifier,
      labels;
  std::optional<data::TextPart> repeated_text;
  std::optional<std::int64_t> repeated_span;
  prepare::RepeatedTextOptions repeated;
  bool chat = false;
  std::optional<int> workers;

  void declare(Options& options) {
    options.section("Input and output");
    options.add(
        "input", &clean.inputs, "FILE",
        "Files of JSON lines (.json, .jsonl, .ndjson), one object per line, Parquet and Arrow, and text files, one "
        "document each. A folder stands for its files, a pattern (*, ?, []) for those that match.");
    options.add("output", &clean.output, "FILE.jsonl",
                "Remaining documents, in order, as their original lines of JSON, or rows as such lines; compressed as "
                "FILE.jsonl.gz, "
                ".zst, .bz2 or .xz. The file gets this name once it is complete.");
    options.add("report", &clean.report, "FILE.jsonl",
                "Removed documents and the reasons, one object per document; compressed likewise.");
    add_document_format(options, "input-format", &clean.reader.format,
                        "Format of the input files; auto: by their names; lines: each line of text is a document.");
    options.add("json-key,json-keys", &clean.reader.json_key, "KEY", "Key of the text in each JSON object.");
    options.add_flag(
        "chat", &chat,
        "Lines of JSON are conversations, with \"messages\" or \"conversations\", judged and compared by the "
        "text of their messages. Those that remain are unchanged.");
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
    options.add_flag("join-lines", &clean.joins_lines,
                     "Replace line feeds after letters and digits, and runs of spaces, by one space, as Megatron-LM's "
                     "general_cleaning of CC-Stories does.");
    options.add("language", &languages, "LANG,...",
                "Keep only documents that CLD2 identifies as one of these languages (ISO 639 codes: en,de,zh); default "
                "all.");
    options.add("language-confidence", &clean.filters.min_language_fraction, "X",
                "Minimum fraction of a document's letters that CLD2 attributes to these languages.", between(0, 1));
    options.section("Quality");
    options.add(
        "quality-filters", &quality_filters, "NAME,...",
        "Remove documents that break a rule of these filters, in the order given: gopher-quality, gopher-repetition, "
        "c4 (also removes lines), c4-paragraphs, fineweb.");
    options.add("quality-bounds", &quality_bounds, "RULE=X,...",
                "Other bounds than the published ones: gopher-quality.min-words=30. A wrong name shows all.");
    options.add(
        "blocked-urls", &blocked_urls, "FILE",
        "Remove documents of these addresses: one domain, which stands for its subdomains, or complete address on "
        "each line.");
    options.add("url-key", &clean.url_key, "KEY", "Key of the documents' addresses.");
    options.add("blocked-titles", &blocked_titles, "FILE",
                "Remove articles of these titles: one on each line, or WikiText (wiki.test.raw), whose articles are "
                "removed from Wikipedia.");
    options.add("title-key", &clean.title_key, "KEY", "Key of the documents' titles.");
    options.add("blocked-words", &blocked_words, "FILE",
                "Remove documents with one of these words or phrases, one on each line; case does not matter.");
    options.add("classifier", &classifier, "FILE.bin",
                "Model of fastText (`fasttext supervised`) that keeps or removes documents.");
    options.add(
        "classifier-labels", &labels, "LABEL=P,...",
        "Labels, without __label__, of the documents meant: those of which one has at least the probability P; without "
        "=P at least 0.5.");
    options.add_choice("classifier-action", &clean.filters.keeps_class, {{"keep", true}, {"remove", false}},
                       "keep: remove all other documents. remove: remove these.");
    options.section("Short documents");
    options.add("min-tokens", &clean.filters.min_tokens, "N",
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
    options.section("Repeated text");
    options.add_choice(
        "repeated-text", &repeated_text,
        {{"keep", std::nullopt}, {"lines", data::TextPart::lines}, {"sentences", data::TextPart::sentences}},
        "lines, sentences: remove those that occur earlier, in a document that stays or in the same one. "
        "Case, accents, numbers, signs and white space do not count.");
    options.add("repeated-span", &repeated_span, "N",
                "Successive lines or sentences that must occur earlier, in the same order, to be removed; default 1 "
                "line, as in CCNet, or 3 sentences, as in C4.",
                between(1, 1000));
    options.add("min-rest-words", &repeated.min_rest_words, "N",
                "Remove documents of which fewer words are left after that.", at_least(0));
    options.add("min-rest-sentences", &repeated.min_rest_sentences, "N",
                "Remove documents of which fewer sentences are left after that.", at_least(0));
    options.section("Speed");
    add_workers(options, &workers);
    options.require({"input", "output"});
  }

  void check(const Options& options) {
    TRIREME_CHECK(!options.given("language-confidence") || options.given("language"), ConfigError,
                  "--language-confidence {} needs --language", clean.filters.min_language_fraction);
    for (const auto& [option, need] : {std::pair("quality-bounds", "quality-filters"),
                                       {"url-key", "blocked-urls"},
                                       {"title-key", "blocked-titles"},
                                       {"classifier-labels", "classifier"},
                                       {"classifier-action", "classifier"},
                                       {"classifier", "classifier-labels"},
                                       {"repeated-span", "repeated-text"},
                                       {"min-rest-words", "repeated-text"},
                                       {"min-rest-sentences", "repeated-text"}}) {
      TRIREME_CHECK(!options.given(option) || options.given(need), ConfigError, "--{} needs --{}", option, need);
    }
    if (repeated_text) {
      repeated.spans = {*repeated_text, repeated_span.value_or(*repeated_text == data::TextPart::lines ? 1 : 3)};
      clean.repeated_text = repeated;
    }
    Problems problems;
    for (const char* option : {"input-format", "json-key", "unicode", "join-lines", "repeated-text"}) {
      problems.exclude(!chat || !options.requested(option), "chat", option, unchanged_lines);
    }
    const auto filters = split(quality_filters, ',');
    problems.exclude(!chat || std::ranges::find(filters, "c4") == filters.end(), "chat", "quality-filters c4",
                     unchanged_lines);
    problems.report();
    if (chat) {
      clean.reader.format = prepare::TextFormat::json_lines;
      clean.reader.text_in_line = [](std::string_view line, const std::string& where) {
        return io::text_of_chat(io::parse_chat(line, where));
      };
    }
    check_one_key(clean.reader.json_key);
    TRIREME_CHECK(!options.given("quality-filters") || !split(quality_filters, ',').empty(), ConfigError,
                  "--quality-filters is empty: name a filter, or leave it out");
    TRIREME_CHECK(!options.given("language") || !split(languages, ',').empty(), ConfigError,
                  "--language is empty. Try --language en, or leave it out to keep all");
  }

  static constexpr const char* unchanged_lines = "conversations are JSON lines that remain as they are";

  /// Reads the files of the filters.
  void make_filters() {
    prepare::DocumentFilters& filters = clean.filters;
    if (filters.min_tokens > 0) filters.tokenizer = tokenizer.make();
    if (!languages.empty()) {
      const auto codes = split(languages, ',');
      filters.languages =
          std::make_shared<data::LanguageDetector>(std::vector<std::string>(codes.begin(), codes.end()));
    }
    if (!quality_filters.empty()) {
      filters.quality = std::make_shared<data::QualityFilters>(split(quality_filters, ','), split(quality_bounds, ','));
    }
    constexpr std::int64_t max_list_bytes = std::int64_t{1} << 30;
    if (!blocked_urls.empty()) {
      filters.blocked_urls =
          std::make_shared<data::UrlBlocklist>(read_text_file("blocked-urls", blocked_urls, max_list_bytes));
    }
    if (!blocked_titles.empty()) {
      filters.blocked_titles =
          std::make_shared<data::TitleList>(read_text_file("blocked-titles", blocked_titles, max_list_bytes));
    }
    if (!blocked_words.empty()) {
      filters.blocked_words =
          std::make_shared<data::WordBlocklist>(read_text_file("blocked-words", blocked_words, max_list_bytes));
    }
    if (!classifier.empty()) filters.classifier = std::make_shared<data::TextClassifier>(classifier, class_labels());
  }

  std::vector<data::ClassLabel> class_labels() const {
    std::vector<data::ClassLabel> result;
    for (const std::string_view label : split(labels, ',')) {
      const std::size_t sign = label.find('=');
      data::ClassLabel& added = result.emplace_back(std::string(label.substr(0, sign)));
      if (sign == label.npos) continue;
      const std::string_view text = label.substr(sign + 1);
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), added.min_probability);
      TRIREME_CHECK(error == std::errc() && end == text.data() + text.size() && added.min_probability >= 0 &&
                        added.min_probability <= 1,
                    ConfigError, "--classifier-labels {}: give {}=P with a probability P from 0 to 1", shortened(label),
                    added.name);
    }
    return result;
  }
};

void print_summary(const prepare::CorpusCleanOptions& options, const prepare::CorpusCleanReport& report) {
  const auto percent = [&](std::int64_t documents) {
    return 100.0 * static_cast<double>(documents) / static_cast<double>(report.documents);
  };
  const double input_mb = static_cast<double>(report.input_bytes) / 1e6;
  log::info("{}, {:.1f} MB: {} kept in {}", counted(report.documents, "document"), input_mb, report.kept_documents,
            options.output);
  for (const std::string& line : report.first_bad_lines) log::warn("skipped {}", line);
  if (report.bad_lines > 0) log::warn("skipped {} in total", counted(report.bad_lines, "bad line"));
  if (report.changed_documents > 0) {
    log::info("changed the text of {} ({:.2f}%)", counted(report.changed_documents, "document"),
              percent(report.changed_documents));
  }
  const auto print_missing = [&](bool is_used, std::int64_t having, const char* member) {
    const std::int64_t without = report.documents - having;
    if (is_used && without > 0) log::info("{} documents have no {} ({:.2f}%)", without, member, percent(without));
  };
  print_missing(options.filters.blocked_urls != nullptr, report.documents_with_url, "address");
  if (options.filters.blocked_titles) {
    log::info("{} to remove", counted(static_cast<std::int64_t>(options.filters.blocked_titles->size()), "title"));
  }
  print_missing(options.filters.blocked_titles != nullptr, report.documents_with_title, "title");
  for (const auto& [reason, count] : report.filtered) {
    log::info("removed {} ({:.2f}%): {}", counted(count, "document"), percent(count), reason);
  }
  log::info("removed {} exact ({:.2f}%) and {} near duplicates ({:.2f}%)", report.exact_duplicates,
            percent(report.exact_duplicates), report.near_duplicates, percent(report.near_duplicates));
  if (options.repeated_text) {
    log::info("found {} of {} {} that occur earlier, and shortened {} documents ({:.2f}%)",
              counted(report.repeated_spans, "span"), options.repeated_text->spans.size,
              options.repeated_text->spans.part == data::TextPart::lines ? "lines" : "sentences",
              report.shortened_documents, percent(report.shortened_documents));
  }
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
  collectively(*world, [&] { o.make_filters(); });
  ThreadPool pool(thread_count(*world, o.workers));
  std::optional<ProgressBar> bar;
  if (world->rank() == 0) bar.emplace("cleaning", "MB", 1e6);
  const auto show = [&](std::int64_t done, std::int64_t total) {
    if (bar) bar->update(done, total);
  };
  const prepare::CorpusCleanReport report = prepare::clean_corpus(io::prepare_files(), o.clean, *world, pool, show);
  bar.reset();
  if (world->rank() == 0) print_summary(o.clean, report);
  return 0;
}

}  // namespace trireme::app

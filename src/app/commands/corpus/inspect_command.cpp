#include "src/app/commands/commands.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/prepare_files.hpp"
#include "src/app/job/job.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/problems.hpp"
#include "src/app/options/text_files.hpp"
#include "src/app/options/text_options.hpp"
#include "src/base/text.hpp"
#include "src/data/dataset/document_lengths.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/report/histogram.hpp"
#include "src/report/scale.hpp"

namespace trireme::app {
namespace {

constexpr double shares[] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

std::vector<std::int32_t> ids_in(const data::TokenStore& store, std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> ids;
  data::read_tokens(store, begin, end - begin,
                    [&](const auto& tokens, std::int64_t) { ids.insert(ids.end(), tokens.begin(), tokens.end()); });
  return ids;
}

/// Returns "bos 1, eos 2, stops 2 7, before texts 1"; empty if there are none.
std::string text_of(const data::SpecialTokens& special) {
  std::string text;
  const auto add = [&](const char* name, const std::vector<std::int32_t>& ids) {
    if (!ids.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, fmt::join(ids, " "));
  };
  const auto list = [](std::optional<std::int32_t> id) { return id ? std::vector{*id} : std::vector<std::int32_t>(); };
  add("bos", list(special.bos));
  add("eos", list(special.eos));
  add("pad", list(special.pad));
  add("stops", special.stops);
  add("before texts", special.prefix);
  return text;
}

std::string row_of(const std::string& name, const data::DocumentLengths& lengths) {
  std::string row = fmt::format("{:>12} {:>16} {:>10.1f} {:>9}", lengths.documents(), lengths.tokens(), lengths.mean(),
                                lengths.least());
  for (const double share : shares) row += fmt::format(" {:>9}", lengths.quantile(share));
  return row + fmt::format(" {:>11}  {}\n", lengths.greatest(), printable(name));
}

double share_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string range_of(const data::DocumentLengths::Bin& bin) {
  return bin.first == bin.last ? std::to_string(bin.first) : fmt::format("{} to {}", bin.first, bin.last);
}

report::Histogram histogram_of(const data::DocumentLengths& lengths, const std::string& title) {
  report::Histogram histogram{title, "tokens of a document", {"documents", "tokens"}, {}};
  for (const data::DocumentLengths::Bin& bin : lengths.bins()) {
    histogram.bars.push_back({report::short_number(static_cast<double>(bin.first), 3),
                              range_of(bin) + " tokens",
                              {share_of(bin.documents, lengths.documents()), share_of(bin.tokens, lengths.tokens())}});
  }
  return histogram;
}

/// Prints the lengths of the documents of each corpus and of all, and draws them if `svg` names a file.
void print_statistics(const std::vector<std::string>& paths, const std::string& svg) {
  data::DocumentLengths all;
  std::string rows;
  for (const std::string& path : paths) {
    data::DocumentLengths lengths;
    lengths.add(io::CorpusStore(path));
    rows += row_of(path, lengths);
    all.add(lengths);
  }
  if (paths.size() > 1) rows += row_of("all", all);
  fmt::print("{:>12} {:>16} {:>10} {:>9}", "documents", "tokens", "mean", "least");
  for (const double share : shares) fmt::print(" {:>9}", fmt::format("{:.0f} %", 100 * share));
  fmt::print(" {:>11}  corpus\n{}\n{:>23} {:>13} {:>12}\n", "greatest", rows, "tokens", "of documents", "of tokens");
  constexpr double columns = 50;
  for (const data::DocumentLengths::Bin& bin : all.bins()) {
    const double documents = share_of(bin.documents, all.documents());
    fmt::print("{:>23} {:>11.2f} % {:>10.2f} %  {}\n", range_of(bin), 100 * documents,
               100 * share_of(bin.tokens, all.tokens()),
               std::string(static_cast<std::size_t>(std::lround(columns * documents)), '#'));
  }
  if (svg.empty()) return;
  const std::string title = fmt::format("{} of {}", counted(all.documents(), "document"),
                                        paths.size() == 1 ? paths.front() : counted(std::ssize(paths), "corpus file"));
  write_text_file("svg", svg, report::svg_of(histogram_of(all, title)));
}

}  // namespace

int corpus_inspect_command(const CommandLine& line) {
  std::vector<std::string> paths;
  bool statistics = false;
  std::string svg;
  std::int64_t documents_shown = 3;
  std::int64_t tokens_shown = 48;
  Options options(line.command(), "Prints the properties of a corpus and the beginnings of its first documents.");
  options.add_arguments("FILE.h5...", &paths, "Corpora made by trireme corpus build: several with --statistics.");
  options.add("documents", &documents_shown, "N", "Documents to show.", between(0, 1e15));
  options.add("tokens", &tokens_shown, "N", "Tokens of each to show.", between(0, 1e15));
  options.add_flag("statistics", &statistics,
                   "Print instead the lengths of the documents of each corpus and of all: quantiles and a histogram.");
  options.add("svg", &svg, "FILE", "With --statistics: draw the histogram as an SVG picture.");
  if (!line.read(options)) return 0;
  Problems problems;
  problems.need(options, {"svg"}, statistics, "--statistics");
  problems.expect(statistics || paths.size() == 1, "several corpora need --statistics");
  problems.report();
  if (!svg.empty()) {
    const auto inputs = io::prepare_files().inputs;
    for (const std::string& path : paths) {
      inputs->check_different(path, svg);
      const io::CorpusStore store(path);
      for (const data::TokenStore* owner : store.token_owners()) inputs->check_different(owner->name(), svg);
    }
  }
  if (statistics) {
    print_statistics(paths, svg);
    return 0;
  }

  const std::string& path = paths.front();
  const io::CorpusStore store(path);
  const data::CorpusInfo& info = store.info();
  const auto offsets = store.document_offsets();
  std::int64_t min_length = store.documents() > 0 ? store.token_count() : 0;
  std::int64_t max_length = 0;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    min_length = std::min(min_length, offsets[i + 1] - offsets[i]);
    max_length = std::max(max_length, offsets[i + 1] - offsets[i]);
  }
  const double mean =
      store.documents() > 0 ? static_cast<double>(store.token_count()) / static_cast<double>(store.documents()) : 0;
  const int token_bits = std::holds_alternative<std::span<const std::uint16_t>>(store.tokens(0, 0)) ? 16 : 32;
  fmt::print("file             {}\n", path);
  for (const auto& source : store.sources()) fmt::print("view of          {}\n", printable(source->name()));
  fmt::print("documents        {}\n", store.documents());
  fmt::print("tokens           {}, {} bits each\n", store.token_count(), token_bits);
  fmt::print("document length  {} to {} tokens, mean {:.1f}\n", min_length, max_length, mean);
  if (const auto sentences = store.sentence_offsets(); !sentences.empty()) {
    fmt::print("sentences        {}, mean {:.1f} tokens\n", sentences.size() - 1,
               static_cast<double>(store.token_count()) / static_cast<double>(sentences.size() - 1));
  }
  if (const auto ranges = store.learned_ranges()) {
    fmt::print("learned tokens   {}, in {}\n", data::learned_tokens(store, 0, store.token_count()),
               counted(std::ssize(*ranges), "range"));
  }
  fmt::print("tokenizer        {}, {} ids, digest {}\n", printable(info.tokenizer), info.vocabulary_size,
             printable(info.tokenizer_digest));
  fmt::print("digest of ids    {}\n", printable(info.ids_digest));
  fmt::print("end of document  {}\n", info.end_of_document);
  fmt::print("greatest id      {}\n", info.max_id);
  fmt::print("content digest   {}\n", printable(info.content_digest));
  const auto tokenizer = data::tokenizer_from_payload(info.tokenizer, info.tokenizer_payload);
  if (const std::string text = text_of(tokenizer->special()); !text.empty()) fmt::print("special tokens   {}\n", text);
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

int corpus_verify_command(const CommandLine& line) {
  std::string path;
  std::optional<int> workers;
  Options options(line.command(),
                  "Reads an entire corpus and checks it against its digests. Under mpirun the ranks share the work.");
  options.add_argument("FILE.h5", &path, "A corpus made by trireme corpus build.");
  add_workers(options, &workers);
  if (!line.read(options)) return 0;

  const auto world = line.environment().make_world();
  check_same_options(*world, options);
  std::unique_ptr<io::CorpusStore> store;
  collectively(*world, [&] { store = std::make_unique<io::CorpusStore>(path); });
  ThreadPool pool(thread_count(*world, workers));
  store->verify(*world, pool);
  if (world->rank() == 0) {
    fmt::print("{} is complete: {}, {} tokens, digest {}\n", path, counted(store->documents(), "document"),
               store->token_count(), store->info().content_digest);
  }
  return 0;
}

}  // namespace trireme::app

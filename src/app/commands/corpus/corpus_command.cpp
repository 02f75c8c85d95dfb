#include "src/app/commands/corpus/corpus_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "io/corpus/corpus_store.hpp"
#include "src/app/commands/corpus/corpus_files_command.hpp"
#include "src/app/options/nearest_name.hpp"
#include "src/app/options/options.hpp"
#include "src/app/options/printable.hpp"
#include "src/base/check.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::app {
namespace {

constexpr const char* usage =
    "Usage: trireme corpus clean|overlap|build|inspect|verify|merge|split|sample|import|export [OPTION]...\n"
    "Tokenized corpora for training, in HDF5, and the text before.\n\n"
    "  clean    copy text without short documents, duplicates and near duplicates\n"
    "  overlap  count the n-grams of test sets that occur in text; copy it without them\n"
    "  build    tokenize text or JSON lines into a corpus\n"
    "  inspect  print the header of a corpus\n"
    "  verify   read a whole corpus and check it; exit code 3 where it is damaged\n"
    "  merge    put several corpora into one\n"
    "  split    cut a corpus into files for training, validation and test\n"
    "  sample   take a random share of a corpus' documents\n"
    "  import   read the token files of Megatron-LM or llm.c\n"
    "  export   write the token files of Megatron-LM\n\n"
    "trireme corpus COMMAND --help explains each.\n";

std::vector<std::int32_t> ids_in(const data::TokenStore& store, std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> ids;
  data::read_tokens(store, begin, end - begin,
                    [&](const auto& tokens, std::int64_t) { ids.insert(ids.end(), tokens.begin(), tokens.end()); });
  return ids;
}

int inspect(const std::vector<std::string>& arguments) {
  std::string path;
  std::int64_t documents_shown = 3;
  std::int64_t tokens_shown = 48;
  Options options("trireme corpus inspect", "Prints what a corpus holds and how its first documents begin.");
  options.add_argument("FILE.h5", &path, "A corpus that trireme corpus build made.");
  options.add("documents", &documents_shown, "N", "Documents to show.", between(0, 1e15));
  options.add("tokens", &tokens_shown, "N", "Tokens of each to show.", between(0, 1e15));
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
  const int token_bits = std::holds_alternative<std::span<const std::uint16_t>>(store.tokens(0, 0)) ? 16 : 32;
  fmt::print("file             {}\n", path);
  for (const auto& source : store.sources()) fmt::print("view of          {}\n", source->name());
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

}  // namespace

int corpus_command(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments.front();
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (command == "inspect") return inspect(rest);
  if (command == "merge") return corpus_merge(rest);
  if (command == "split") return corpus_split(rest);
  if (command == "sample") return corpus_sample(rest);
  if (command == "import") return corpus_import(rest);
  if (command == "export") return corpus_export(rest);
  if (command == "--help" || command == "-h") {
    std::fputs(usage, stdout);
    return 0;
  }
  const std::vector<std::string> words = {"clean", "overlap", "build",  "inspect", "verify",
                                          "merge", "split",   "sample", "import",  "export"};
  refuse_subcommand("corpus", command, words);
}

}  // namespace trireme::app

#include "src/app/commands/commands.hpp"

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "io/corpus/foreign_corpus.hpp"
#include "io/corpus/prepare_files.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "src/app/options/text_options.hpp"
#include "src/app/run_config/data_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/prepare/corpus_copy.hpp"

namespace trireme::app {
namespace {

void log_written(const std::string& path, const prepare::CorpusSize& size) {
  log::info("{}: {}, {} tokens", path, counted(size.documents, "document"), size.tokens);
}

prepare::CorpusKind kind_of(bool view) { return view ? prepare::CorpusKind::view : prepare::CorpusKind::copy; }

void add_view(Options& options, bool* view) {
  options.add_flag("view", view,
                   "Copy no tokens: the new file refers to the documents in the others, which must stay unchanged.");
}

void add_output(Options& options, std::string* output) {
  options.add("output", output, "FILE.h5", "The corpus. It gets this name once it is complete.");
  options.require({"output"});
}

}  // namespace

int corpus_merge_command(const CommandLine& line) {
  std::vector<std::string> inputs;
  std::string output;
  Options options(line.command(), "Concatenates corpora of the same tokenizer into one file.");
  options.add_arguments("FILE.h5...", &inputs, "Corpora, in this order.");
  add_output(options, &output);
  bool view = false;
  add_view(options, &view);
  if (!line.read(options)) return 0;
  log_written(output, prepare::merge_corpora(io::prepare_files(), inputs, output, kind_of(view)));
  return 0;
}

int corpus_split_command(const CommandLine& line) {
  std::string input;
  std::string prefix;
  std::string split = "969,30,1";
  auto by = data::SplitBy::automatic;
  Options options(line.command(),
                  "Splits a corpus into PREFIX_train.h5, PREFIX_valid.h5 and PREFIX_test.h5, with the documents that a "
                  "training run with the same --split would use.");
  options.add_argument("FILE.h5", &input, "A corpus.");
  options.add("output-prefix", &prefix, "PREFIX", "Prefix of the files' names.");
  options.add("split", &split, "A,B,C", "Proportions of training, validation and test; 0: no file.");
  add_split_by(options, &by);
  bool view = false;
  add_view(options, &view);
  options.require({"output-prefix"});
  if (!line.read(options)) return 0;
  const std::array<std::string, 3> outputs{prefix + "_train.h5", prefix + "_valid.h5", prefix + "_test.h5"};
  const auto sizes =
      prepare::split_corpus(io::prepare_files(), input, data::parse_split(split), by, outputs, kind_of(view));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (sizes[i].documents > 0) {
      log_written(outputs[i], sizes[i]);
    } else {
      const bool is_older = io::is_there(outputs[i]);
      log::info("{} would be empty and is not written{}", outputs[i],
                is_older ? "; the file of this name is of an earlier split" : "");
    }
  }
  return 0;
}

int corpus_sample_command(const CommandLine& line) {
  std::string input;
  std::string output;
  double probability = 0;
  std::uint64_t seed = 1234;
  Options options(
      line.command(),
      "Draws each document of a corpus with the same probability. The same seed draws the same documents, and with a "
      "larger probability additional ones.");
  options.add_argument("FILE.h5", &input, "A corpus.");
  add_output(options, &output);
  options.add("share", &probability, "X", "Probability of each document.", between(0, 1));
  options.add("seed", &seed, "N", "Seed of the selection.");
  bool view = false;
  add_view(options, &view);
  options.require({"share"});
  if (!line.read(options)) return 0;
  log_written(output, prepare::sample_corpus(io::prepare_files(), input, probability, seed, output, kind_of(view)));
  return 0;
}

int corpus_import_command(const CommandLine& line) {
  std::vector<std::string> inputs;
  std::string output;
  TokenizerOptions tokens;
  Options options(line.command(),
                  "Makes a corpus from token files of Megatron-LM (PREFIX.bin with PREFIX.idx) or llm.c (FILE.bin, cut "
                  "into documents before every end-of-document token). Ids stay unchanged. The sequences of "
                  "Megatron-LM's documents become sentences, for BERT, if a document has several or the tokenizer is "
                  "wordpiece.");
  options.add_arguments("FILE...", &inputs, "PREFIX, PREFIX.bin or FILE.bin; several are concatenated.");
  add_output(options, &output);
  tokens.declare(options, TokenizerOptions::Ids::from_elsewhere);
  if (!line.read(options)) return 0;
  const auto tokenizer = tokens.make();

  for (const std::string& input : inputs) {
    const std::string prefix = io::megatron_prefix(input);
    for (const std::string& file :
         prefix.empty() ? std::vector{input} : std::vector{prefix + ".bin", prefix + ".idx"}) {
      io::prepare_files().inputs->check_different(file, output);
    }
  }
  const io::FolderLock lock(output + ".lock", output);
  io::CorpusWriter writer(output, *tokenizer);
  for (const std::string& input : inputs) {
    if (const std::string prefix = io::megatron_prefix(input); !prefix.empty()) {
      io::import_megatron(prefix, writer,
                          tokens.tokenizer == "wordpiece" ? io::Sequences::sentences : io::Sequences::automatic);
    } else if (io::is_llmc(input)) {
      io::import_llmc(input, tokenizer->end_of_document(), writer);
    } else {
      throw DataError("{} has no .idx of Megatron-LM beside it and does not start like a token file of llm.c", input);
    }
  }
  TRIREME_CHECK(writer.token_count() > 0, DataError, "the {} files contain no tokens", inputs.size());
  writer.finish();
  log_written(output, {writer.documents(), writer.token_count()});
  return 0;
}

int corpus_export_command(const CommandLine& line) {
  std::string input;
  std::string prefix;
  Options options(line.command(),
                  "Writes a corpus as PREFIX.bin and PREFIX.idx, byte by byte as Megatron-LM's own tools do.");
  options.add_argument("FILE.h5", &input, "A corpus.");
  options.add("output-prefix", &prefix, "PREFIX", "Name of the two files without .bin and .idx.");
  options.require({"output-prefix"});
  if (!line.read(options)) return 0;
  const io::CorpusStore store(input);
  for (const char* extension : {".bin", ".idx"}) {
    for (const data::TokenStore* owner : store.token_owners()) {
      io::prepare_files().inputs->check_different(owner->name(), prefix + extension);
    }
    io::prepare_files().inputs->check_different(input, prefix + extension);
  }
  const io::FolderLock lock(prefix + ".lock", prefix);
  io::export_megatron(store, prefix);
  log::info("{0}.bin and {0}.idx: {1} documents, {2} tokens", prefix, store.documents(), store.token_count());
  return 0;
}

}  // namespace trireme::app

#include "src/app/commands/finetune/task_data.hpp"

#include "io/json/task_json.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/data/dataset/bert/bert_sample.hpp"

namespace trireme::app {
namespace {

constexpr std::int64_t max_file_bytes = std::int64_t{8} << 30;
constexpr std::int64_t max_qa_tokens = 128;

/// Appends the files *.txt of a folder, sorted. Returns whether there are any.
bool append_texts(const std::string& folder, std::vector<std::string>& files) {
  const std::size_t before = files.size();
  for (const std::string& name : io::names_in(folder)) {
    if (name.ends_with(".txt")) files.push_back(folder + "/" + name);
  }
  return files.size() > before;
}

}  // namespace

std::vector<std::string> task_files(const train::FinetuneTask& task, const std::string& path) {
  if (!task.is_race() || !io::is_folder(path + "/.")) return {path};
  std::vector<std::string> files;
  bool found = append_texts(path, files);
  if (!found) {
    for (const std::string& name : io::names_in(path)) {
      const std::string inner = path + "/" + name;
      if (io::is_folder(inner)) found = append_texts(inner, files) || found;
    }
  }
  TRIREME_CHECK(found, DataError, "{}: there are no files *.txt in the folder or its subfolders", path);
  return files;
}

namespace {

void log_skipped(const data::BadLines& bad) {
  if (bad.count() == 0) return;
  log::warn("skipped {} lines or questions:", bad.count());
  for (const std::string& message : bad.messages()) log::warn("  {}", message);
}

train::TaskSplit read_files(const TaskOptions& options, const std::vector<std::string>& paths,
                            const TaskTokenizer& tokenizer, const data::TaskPacking& packing, SplitUse use) {
  train::TaskSplit split;
  data::BadLines bad(options.skip_bad_lines);
  data::RaceExamples race;
  std::vector<data::TextPair> pairs;
  std::string digests;
  const data::GlueTask* const glue = options.task.glue();
  const auto labels = [&] { return std::ssize(race.questions) + std::ssize(pairs); };
  const auto read_one = [&](const std::string& path) {
    const data::TaskFile file{path, io::read_whole_file(path, max_file_bytes, io::Symlinks::follow)};
    digests += digest(file.text.data(), file.text.size());
    if (options.task.is_race()) {
      add_race(file, io::parse_race_article, *tokenizer.tokenizer, max_qa_tokens, bad, race);
    } else if (glue) {
      data::GlueExamples examples = read_glue(*glue, file, bad);
      TRIREME_CHECK(
          !examples.is_test || use == SplitUse::test, DataError,
          "{}:1: the header is that of a test set, which has no labels to train on or to evaluate with. Try it as "
          "--test-data, with a --predictions-file",
          path);
      TRIREME_CHECK(!examples.is_test || !options.predictions_file.empty(), ConfigError,
                    "{}:1: the header is that of a test set without labels, which only yields predictions: give a "
                    "--predictions-file",
                    path);
      split.has_labels = !examples.is_test;
      for (const data::TextPair& pair : examples.pairs) split.ids.push_back(pair.id);
      std::ranges::move(examples.pairs, std::back_inserter(pairs));
    } else {
      split.squad_file = std::make_unique<data::SquadFile>(io::parse_squad(file.text, path, bad));
      split.squad = std::make_unique<data::SquadExamples>(
          *split.squad_file, dynamic_cast<const data::WordPieceTokenizer&>(*tokenizer.tokenizer),
          data::SquadOptions{packing.sequence_length, options.task.doc_stride, options.task.max_query_length,
                             packing.tokens},
          use == SplitUse::training, bad);
    }
  };
  for (const std::string& given : paths) {
    const std::int64_t before = labels();
    for (const std::string& path : task_files(options.task, given)) read_one(path);
    if (labels() > before) split.sets.emplace_back(given, labels() - before);
  }
  split.digest = digest(digests.data(), digests.size());
  log_skipped(bad);
  if (options.task.is_race()) {
    split.samples = std::make_unique<data::RaceSamples>(packing, std::move(race));
  } else if (glue) {
    split.samples = std::make_unique<data::PairSamples>(packing, *tokenizer.tokenizer, pairs);
  } else {
    split.samples = std::make_unique<data::SquadSamples>(packing, *split.squad);
  }
  TRIREME_CHECK(split.samples->labels() > 0, DataError, "{} has no examples", paths.front());
  return split;
}

}  // namespace

TaskTokenizer make_task_tokenizer(const std::string& name, const std::string& payload, bool is_bert) {
  if (!is_bert) {
    TaskTokenizer made{data::tokenizer_from_payload(name, payload), {}};
    const std::int32_t end = made.tokenizer->end_of_document();
    made.tokens = {end, end, end};
    return made;
  }
  TRIREME_CHECK(name == "wordpiece", CheckpointError,
                "the checkpoint's BERT has the tokenizer {}, but the tasks of BERT need WordPiece", name);
  auto tokenizer = std::make_unique<data::WordPieceTokenizer>(data::wordpiece_from_payload(payload));
  const data::BertVocabulary vocabulary = data::bert_vocabulary_of(data::wordpiece_from_payload(payload).tokens);
  return {std::move(tokenizer), {vocabulary.cls, vocabulary.sep, vocabulary.pad}};
}

train::TaskSplit read_task(Communicator& world, const TaskOptions& options, const std::vector<std::string>& paths,
                           const TaskTokenizer& tokenizer, std::int64_t sequence_length, SplitUse use) {
  train::TaskSplit split;
  collectively(world, [&] { split = read_files(options, paths, tokenizer, {sequence_length, tokenizer.tokens}, use); });
  return split;
}

}  // namespace trireme::app

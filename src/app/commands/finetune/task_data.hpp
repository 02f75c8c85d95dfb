#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/app/commands/finetune/task_options.hpp"
#include "src/app/job/job.hpp"

namespace trireme::app {

/// Use of a set of examples. A GLUE test set needs no labels.
enum class SplitUse { training, validation, test };

/// Tokenizer of a model and its delimiters of texts: [CLS], [SEP] and [PAD] of a BERT; the end-of-document token of a
/// GPT.
struct TaskTokenizer {
  std::unique_ptr<data::Tokenizer> tokenizer;
  data::PairTokens tokens;
};
/// Throws DataError if a BERT's vocabulary lacks one of them.
TaskTokenizer make_task_tokenizer(const std::string& name, const std::string& payload, bool is_bert);

/// Returns the files of a task at `path`. For RACE that may be a folder: its files *.txt or, if there are none, those
/// of its subfolders. Throws DataError if there are none either.
std::vector<std::string> task_files(const train::FinetuneTask& task, const std::string& path);

/// Reads the files at `paths`. Logs what it skips. Throws DataError for bad files, and if no example remains.
/// Collective.
train::TaskSplit read_task(Communicator& world, const TaskOptions& options, const std::vector<std::string>& paths,
                           const TaskTokenizer& tokenizer, std::int64_t sequence_length, SplitUse use);

}  // namespace trireme::app

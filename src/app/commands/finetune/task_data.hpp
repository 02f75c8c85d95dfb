#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/app/commands/finetune/task_options.hpp"
#include "src/app/job/job.hpp"
#include "src/data/tasks/task_samples.hpp"

namespace trireme::app {

/// Use of some examples. Those of a test need no labels where the task is one of GLUE's.
enum class SplitUse { training, validation, test };

/// Examples of one use.
struct TaskSplit {
  std::string digest;  ///< digest of the bytes of the files
  std::unique_ptr<data::SquadFile> squad_file;
  std::unique_ptr<data::SquadExamples> squad;
  std::unique_ptr<data::TaskSamples> samples;
  std::vector<std::int64_t> ids;  ///< numbers of GLUE's examples
  bool has_labels = true;
};

/// Tokenizer of a model and the tokens that it puts around texts: [CLS], [SEP] and [PAD] of a BERT; the end of a
/// document of a GPT.
struct TaskTokenizer {
  std::unique_ptr<data::Tokenizer> tokenizer;
  data::PairTokens tokens;
};
/// Throws DataError if a BERT's vocabulary lacks one of them.
TaskTokenizer make_task_tokenizer(const std::string& name, const std::string& payload, bool is_bert);

/// Reads the files at `paths`, which are folders, too, for RACE: their files *.txt, or if there are none those of
/// the folders in them. Logs what was left out. Throws DataError for bad files, and where nothing is left. Collective.
TaskSplit read_task(Communicator& world, const TaskOptions& options, const std::vector<std::string>& paths,
                    const TaskTokenizer& tokenizer, std::int64_t sequence_length, SplitUse use);

}  // namespace trireme::app

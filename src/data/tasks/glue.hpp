#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/data/tasks/task_samples.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

enum class GlueTask { mnli, qqp };

/// Labels of a task: MNLI has contradiction 0, entailment 1, neutral 2; QQP has 1 for equivalent questions.
constexpr std::int64_t classes_of(GlueTask task) { return task == GlueTask::mnli ? 3 : 2; }

/// Returns the name of a class in the task's files: "entailment", or for QQP "1".
std::string glue_label(GlueTask task, std::int32_t number);

/// Two texts and their label.
struct TextPair {
  std::int64_t id = 0;  ///< the file's own number
  std::string a, b;     ///< cleaned
  std::int32_t label = 0;
};

struct GlueExamples {
  std::vector<TextPair> pairs;
  bool is_test = false;  ///< the file has no labels: all are 0
};

/// Reads a file of GLUE (Wang et al. 2018) as Megatron-LM does. The first line is a header and never an example. Each
/// line is stripped, then split at tabs; quotes have no meaning.
///   MNLI  columns 0 (number), 8 and 9 (texts), the last (label); 10 columns of header mean a test without labels.
///   QQP   columns 0, 3, 4 and 5 of exactly 6; 3 columns of header mean a test: number and texts.
/// QQP training lines with other counts or an empty text are always skipped, and recorded in `bad`. Throws DataError
/// "path:line: ..." through `bad` for other lines that lack a column, a text, a number of at least 0 or a known label.
/// Always throws it for an invalid header.
GlueExamples read_glue(GlueTask task, const TaskFile& file, BadLines& bad);

/// Returns predicted classes in GLUE's form of submissions: a header, then the number and the class of each example, by
/// its name (MNLI) or number (QQP). `ids` and `classes` have one element for each example.
std::string glue_predictions(GlueTask task, std::span<const std::int64_t> ids, std::span<const std::int32_t> classes);

/// Pairs of texts with a class.
class PairSamples final : public TaskSamples {
 public:
  PairSamples(const TaskPacking& packing, const Tokenizer& tokenizer, const std::vector<TextPair>& pairs);
  std::int64_t size() const override { return std::ssize(labels_); }
  std::int32_t label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }

 private:
  PackedPair packed(std::int64_t index) const override;
  TokenLists texts_;  // two for each pair
  std::vector<std::int32_t> labels_;
};

}  // namespace trireme::data

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tasks/metrics.hpp"
#include "src/data/tasks/task_samples.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// A class: its label in the task's files, and its name in the published models of the task.
struct GlueClass {
  std::string_view label, name;
};

/// Columns of a line, counted from 0.
struct GlueColumns {
  std::size_t count = 0;
  int id = -1;     ///< the example's number; negative: its place in the file
  int a = 0;       ///< text
  int b = -1;      ///< second text; negative: none
  int label = -1;  ///< negative: the last column
};

inline constexpr Metric accuracy_only[] = {Metric::accuracy};

/// Task of GLUE (Wang et al. 2018, arXiv:1804.07461), which classifies a text or two, or predicts a value of two.
struct GlueTask {
  std::string_view name;
  std::span<const GlueClass> classes;               ///< empty: the label is a value, from 0 to `largest`
  GlueColumns labelled, test;                       ///< `test`: of files without labels
  std::span<const Metric> metrics = accuracy_only;  ///< GLUE's; their mean is its score
  double largest = 0;
  bool has_more_columns = false;  ///< lines may have more than `count` columns
  bool has_header = true;         ///< the first line of a labelled file is one
};

/// All such tasks.
std::span<const GlueTask> glue_tasks();
/// Returns null if there is no such task.
const GlueTask* find_glue_task(std::string_view name);

/// Returns the classes' names for a model, or their labels where these are names: "not_duplicate", "entailment".
std::vector<std::string> glue_names(const GlueTask& task);
/// Returns for each class the index of its label or name in `names`, in any case, with "-" for "_"; negative if absent.
std::vector<std::int64_t> find_glue_classes(const GlueTask& task, std::span<const std::string_view> names);

/// One or two texts and their label.
struct TextPair {
  std::int64_t id = 0;
  std::string a, b;        ///< cleaned
  std::int32_t label = 0;  ///< a class, or label_of_value
};

struct GlueExamples {
  std::vector<TextPair> pairs;
  bool is_test = false;  ///< the file has no labels: all are 0
};

/// Reads a file of GLUE, of MNLI and QQP as Megatron-LM does. The first line is a header and never an example, except
/// in labelled files of CoLA. Each line is stripped, then split at tabs; quotes have no meaning. A header with the
/// columns of a test means a file without labels. Throws DataError "path:line: ..." through `bad` for lines that lack a
/// column, a text, a number of at least 0 or a known label. Always throws it for an invalid header.
GlueExamples read_glue(const GlueTask& task, const TaskFile& file, BadLines& bad);

/// Returns predictions in GLUE's form of submissions: a header, then the number and the label of each example. `ids`
/// has one element for each example, and `values` their values, or for a task with classes `classes`.
std::string glue_predictions(const GlueTask& task, std::span<const std::int64_t> ids,
                             std::span<const std::int32_t> classes, std::span<const double> values);

/// Texts, or pairs of them, with a label.
class PairSamples final : public TaskSamples {
 public:
  /// Pairs all have a second text, or none has.
  PairSamples(const TaskPacking& packing, const Tokenizer& tokenizer, const std::vector<TextPair>& pairs);
  std::int64_t size() const override { return std::ssize(labels_); }
  std::int32_t label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }

 private:
  PackedPair packed(std::int64_t index) const override;
  bool are_pairs_;
  TokenLists texts_;  // two for each sample
  std::vector<std::int32_t> labels_;
};

}  // namespace trireme::data

#include "src/data/tasks/glue.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

using Columns = std::vector<std::string_view>;

constexpr GlueClass mnli[] = {{"contradiction", ""}, {"entailment", ""}, {"neutral", ""}};
constexpr GlueClass inference[] = {{"entailment", ""}, {"not_entailment", ""}};
constexpr GlueClass duplicates[] = {{"0", "not_duplicate"}, {"1", "duplicate"}};
constexpr GlueClass equivalence[] = {{"0", "not_equivalent"}, {"1", "equivalent"}};
constexpr GlueClass acceptability[] = {{"0", "unacceptable"}, {"1", "acceptable"}};
constexpr GlueClass sentiment[] = {{"0", "negative"}, {"1", "positive"}};
constexpr GlueClass pronouns[] = {{"0", "not_entailment"}, {"1", "entailment"}};

constexpr Metric accuracy_and_f1[] = {Metric::accuracy, Metric::f1}, matthews[] = {Metric::matthews},
                 correlations[] = {Metric::pearson, Metric::spearman};

constexpr GlueColumns pairs{.count = 4, .id = 0, .a = 1, .b = 2}, test_pairs{.count = 3, .id = 0, .a = 1, .b = 2};
constexpr GlueColumns test_text{.count = 2, .id = 0, .a = 1};

constexpr GlueTask tasks[] = {
    {.name = "MNLI",
     .classes = mnli,
     .labelled = {.count = 11, .id = 0, .a = 8, .b = 9},
     .test = {.count = 10, .id = 0, .a = 8, .b = 9},
     .has_more_columns = true},
    {.name = "QQP",
     .classes = duplicates,
     .labelled = {.count = 6, .id = 0, .a = 3, .b = 4},
     .test = test_pairs,
     .metrics = accuracy_and_f1},
    {.name = "QNLI", .classes = inference, .labelled = pairs, .test = test_pairs},
    {.name = "RTE", .classes = inference, .labelled = pairs, .test = test_pairs},
    {.name = "WNLI", .classes = pronouns, .labelled = pairs, .test = test_pairs},
    {.name = "MRPC",
     .classes = equivalence,
     .labelled = {.count = 5, .a = 3, .b = 4, .label = 0},
     .test = {.count = 5, .id = 0, .a = 3, .b = 4},
     .metrics = accuracy_and_f1},
    {.name = "STS-B",
     .classes = {},
     .labelled = {.count = 10, .id = 0, .a = 7, .b = 8},
     .test = {.count = 9, .id = 0, .a = 7, .b = 8},
     .metrics = correlations,
     .largest = 5},
    {.name = "SST-2", .classes = sentiment, .labelled = {.count = 2, .a = 0}, .test = test_text},
    {.name = "CoLA",
     .classes = acceptability,
     .labelled = {.count = 4, .a = 3, .label = 1},
     .test = test_text,
     .metrics = matthews,
     .has_header = false}};

/// Returns the labels of a task, for messages.
std::string labels_of(const GlueTask& task) {
  if (task.classes.empty()) return fmt::format("a number from 0 to {}", task.largest);
  std::vector<std::string_view> labels;
  for (const GlueClass& each : task.classes) labels.push_back(each.label);
  return fmt::format("{}", fmt::join(labels, " or "));
}

/// Reads the lines of one file.
class GlueReader {
 public:
  GlueReader(const GlueTask& task, const std::string& path) : task_(task), path_(path) {}

  /// Reads the first line. Returns whether it is a header.
  bool read_header(const Columns& columns) {
    const std::size_t count = columns.size();
    const bool is_as_wide = task_.test.count == task_.labelled.count;
    examples_.is_test = count == task_.test.count && (!is_as_wide || columns[0] == "index");
    check(fits(count), "the header has {} columns instead of {}, or {} in a test. Try a file of {}", count,
          expected(task_.labelled), task_.test.count, task_.name);
    if (!examples_.is_test && !task_.has_header) return false;
    check(!whole_number(columns[0]),
          "the line is an example, number {}, but files of {} begin with a header. Put it back", columns[0],
          task_.name);
    check(examples_.is_test || !parse_label(label_of(columns)),
          "the line is an example of {}, but files of {} begin with a header. Put it back", label_of(columns),
          task_.name);
    return true;
  }

  void read_line(const Columns& columns) {
    check(fits(columns.size()), "the line has {} columns instead of {}. <on_bad_line> skip leaves such lines out",
          columns.size(), expected(layout()));
    TextPair pair;
    if (!examples_.is_test) {
      const std::string_view label = label_of(columns);
      const auto found = parse_label(label);
      check(found.has_value(), "unknown label '{}' instead of {}", shortened(label), labels_of(task_));
      pair.label = *found;
    }
    pair.id = task_.has_header || examples_.is_test ? line_ - 2 : line_ - 1;
    if (layout().id >= 0) {
      const std::string_view column = at(columns, layout().id);
      const auto number = whole_number(column);
      check(number.has_value(), "'{}' is not an example number", shortened(column));
      check(*number >= 0, "the example's number {} is negative", *number);
      pair.id = *number;
    }
    const auto text = [&](int column, const char* name) {
      std::string cleaned = clean_text(stripped(at(columns, column)));
      check(!cleaned.empty(), "the {}text is empty. <on_bad_line> skip leaves such lines out", name);
      return cleaned;
    };
    pair.a = text(layout().a, layout().b < 0 ? "" : "first ");
    if (layout().b >= 0) pair.b = text(layout().b, "second ");
    examples_.pairs.push_back(std::move(pair));
  }

  void at_line(std::int64_t number) { line_ = number; }
  GlueExamples finish() { return std::move(examples_); }

 private:
  template <class... Values>
  void check(bool good, fmt::format_string<Values...> format, Values&&... values) const {
    TRIREME_CHECK(good, DataError, "{}:{}: {}", path_, line_, fmt::format(format, std::forward<Values>(values)...));
  }

  const GlueColumns& layout() const { return examples_.is_test ? task_.test : task_.labelled; }
  bool fits(std::size_t count) const {
    return count == layout().count || (task_.has_more_columns && count > layout().count);
  }
  std::string expected(const GlueColumns& columns) const {
    return fmt::format("{}{}", columns.count, task_.has_more_columns ? " or more" : "");
  }
  static std::string_view at(const Columns& columns, int column) { return columns[static_cast<std::size_t>(column)]; }
  std::string_view label_of(const Columns& columns) const {
    return stripped(task_.labelled.label < 0 ? columns.back() : at(columns, task_.labelled.label));
  }
  /// Returns the class of a label, or label_of_value; a class that is a number may have a sign or zeros.
  std::optional<std::int32_t> parse_label(std::string_view label) const {
    if (task_.classes.empty()) {
      const std::optional<double> value = parse_number<double>(label);
      if (!value || !(*value >= 0 && *value <= task_.largest)) return std::nullopt;
      return label_of_value(*value);
    }
    const auto found = std::ranges::find_if(task_.classes, [&](const GlueClass& each) {
      return each.label == label || (whole_number(each.label) && whole_number(each.label) == whole_number(label));
    });
    if (found == task_.classes.end()) return std::nullopt;
    return static_cast<std::int32_t>(found - task_.classes.begin());
  }

  const GlueTask& task_;
  const std::string& path_;
  std::int64_t line_ = 0;
  GlueExamples examples_;
};

/// Returns a class's name in lower case, with underscores.
std::string plain_name(std::string_view name) {
  std::string plain = lower_case(name);
  std::ranges::replace(plain, '-', '_');
  std::ranges::replace(plain, ' ', '_');
  return plain;
}

}  // namespace

std::span<const GlueTask> glue_tasks() { return tasks; }

const GlueTask* find_glue_task(std::string_view name) {
  const auto found = std::ranges::find(tasks, name, &GlueTask::name);
  return found == std::end(tasks) ? nullptr : found;
}

std::vector<std::string> glue_names(const GlueTask& task) {
  std::vector<std::string> names;
  for (const GlueClass& each : task.classes) names.emplace_back(each.name.empty() ? each.label : each.name);
  return names;
}

std::vector<std::int64_t> find_glue_classes(const GlueTask& task, std::span<const std::string_view> names) {
  std::vector<std::int64_t> found;
  for (const GlueClass& each : task.classes) {
    const auto place = std::ranges::find_if(names, [&](std::string_view name) {
      const std::string plain = plain_name(name);
      return plain == each.label || plain == each.name;
    });
    found.push_back(place == names.end() ? -1 : place - names.begin());
  }
  return found;
}

GlueExamples read_glue(const GlueTask& task, const TaskFile& file, BadLines& bad) {
  GlueReader reader(task, file.path);
  for (TextLines lines(file.text); lines.next();) {
    reader.at_line(lines.number());
    Columns columns = split(stripped(lines.line()), '\t');
    if (columns.empty()) columns.emplace_back();  // a blank line
    if (lines.number() == 1 && reader.read_header(columns)) continue;
    bad.attempt([&] {
      TRIREME_CHECK(is_utf8(lines.line()), DataError, "{}:{}: the line has bytes that are not UTF-8", file.path,
                    lines.number());
      reader.read_line(columns);
    });
  }
  return reader.finish();
}

std::string glue_predictions(const GlueTask& task, std::span<const std::int64_t> ids,
                             std::span<const std::int32_t> classes, std::span<const double> values) {
  std::string text = "index\tprediction\n";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    text += task.classes.empty()
                ? fmt::format("{}\t{:.9g}\n", ids[i], values[i])
                : fmt::format("{}\t{}\n", ids[i], task.classes[static_cast<std::size_t>(classes[i])].label);
  }
  return text;
}

PairSamples::PairSamples(const TaskPacking& packing, const Tokenizer& tokenizer, const std::vector<TextPair>& pairs)
    : TaskSamples(packing, 1),
      are_pairs_(std::ranges::any_of(pairs, [](const TextPair& pair) { return !pair.b.empty(); })) {
  std::vector<std::int32_t> ids;
  for (const TextPair& pair : pairs) {
    for (const std::string* text : {&pair.a, &pair.b}) {
      ids.clear();
      tokenizer.encode(*text, ids);
      texts_.add(ids);
    }
    labels_.push_back(pair.label);
  }
}

PackedPair PairSamples::packed(std::int64_t index) const {
  return pack_pair(texts_[2 * index], are_pairs_ ? std::optional(texts_[2 * index + 1]) : std::nullopt,
                   packing().sequence_length, packing().tokens);
}

}  // namespace trireme::data
